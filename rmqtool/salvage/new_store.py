"""The new store, made in a directory beside its place and put there by one rename once all of it is on the disk.

A process that writes holds a lock in that directory: where nobody holds it, it is left from a run that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rmqtool.base.errors import (
    RmqtoolError,
    UnreadableError,
    UnsupportedError,
    UnwritableError,
    UsageError,
    WrongKindError,
)
from rmqtool.base.files import list_directory, read_all
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.new_files import copy_file, new_file, set_time, write_all
from rmqtool.base.numbers import byte_size
from rmqtool.base.tolerant import ReadErrors
from rmqtool.base.visible import join
from rmqtool.findings.finding import Finding
from rmqtool.formats.layout import decode_units
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import QUEUE_FILE_SIZE
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET, Version
from rmqtool.store.checkpoint import checkpoint_file, credible, read_checkpoint
from rmqtool.store.config_json import read_config_file
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind
from rmqtool.store.index_files import list_index_files
from rmqtool.store.missing import common_file_sizes, unknown_sizes
from rmqtool.store.paths import COMPACTION, TIMER_LOG
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE_EXT, SIDE_STORE, Store
from rmqtool.store.tiered import Unreadable, tier_of
from rmqtool.transaction.system import SYSTEM, remove_tree, sync_path

_LOCK = "new-store.lock"
_STORE, _DERIVED, _TREE, _NOTES = "store", "derived", "tree", "notes"
_RESERVE = 64 << 20  # bytes that stay free
_ELSEWHERE = "name a directory on another file system"


def require_free_name(target: Path, sources: Sequence[Path]) -> None:
    """Raise UsageError unless a store may be made at `target`: absent or empty, and not inside a source."""
    where = Path(os.path.realpath(target))
    for source in map(Path, map(os.path.realpath, sources)):
        if where == source or source in where.parents:
            raise UsageError("--output must not be inside a source, which is only read", file=target)
    if os.path.lexists(target) and (not target.is_dir() or target.is_symlink() or any(target.iterdir())):
        hint = _left_beside(target)
        raise UsageError("--output must be an empty directory, or one that does not exist yet", file=target, hint=hint)
    if not where.parent.is_dir():
        raise UsageError("the parent directory of --output does not exist", file=target)


def _left_beside(target: Path) -> str | None:
    """What to do about what a run has left that was killed as soon as its store was in place; None without it."""
    left = partial_directory(target)
    if not left.is_dir() or os.path.lexists(left / _STORE):
        return None
    verify = join(["rmqtool", "verify", str(target)])
    return f"a run that was killed when its store was in place has left {left}: remove that; next: {verify}"


@contextmanager
def new_tree(directory: Path, root: Path) -> Iterator[NewStore]:
    """Make a tree inside `directory`, which may be a mount, from the store at `root`: it is moved there when whole.

    Raises UsageError unless `directory` is absent or empty and not inside the store, UnwritableError.
    """
    where = Path(os.path.realpath(directory))
    if Path(os.path.realpath(root)) in (where, *where.parents):
        raise UsageError("--output must not be inside the store, which is only read", file=directory)
    new = NewStore(where / _TREE)
    left = partial_directory(where / _TREE)
    if os.path.lexists(where) and (not where.is_dir() or any(entry != left for entry in where.iterdir())):
        hint = "an earlier run was killed while it put its files there: remove them" if left.exists() else None
        raise UsageError(
            "--output must be an empty directory, or one that does not exist yet", file=directory, hint=hint
        )
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from error
    with new.making():
        yield new


def partial_directory(target: Path) -> Path:
    """Where a store is made that is not finished."""
    where = Path(os.path.abspath(target))
    return where.parent / f".{where.name}.rmqtool-new"


class NewStore:
    """A store that is being made; `directory` is where, `derived` is the place beside it of a rebuild's tree.

    One that `goes_on` keeps what an interrupted run has written, for the next one.
    """

    def __init__(self, target: Path, *, goes_on: bool = False) -> None:
        self._target = Path(os.path.abspath(target))
        self._goes_on = goes_on
        self._is_done = False
        self._partial = partial_directory(target)
        self.directory = self._partial / _STORE
        self.derived = self._partial / _DERIVED
        self.began_anew = False
        """Whether an earlier run was interrupted, and what it had written is removed."""

    @property
    def notes(self) -> Path:
        """A file beside the store, for what the next run must know to go on."""
        return self._partial / _NOTES

    def begin_anew(self) -> None:
        """Remove what an interrupted run has written."""
        self.notes.unlink(missing_ok=True)
        remove_tree(SYSTEM, str(self.directory))
        SYSTEM.make_directory(str(self.directory))

    @contextmanager
    def making(self) -> Iterator[NewStore]:
        """Make it; what is not finished when the block ends is removed, unless the next run goes on with it.

        Raises UsageError where another run is about it, UnwritableError for what cannot be written.
        """
        lock = self._begin()
        try:
            yield self
        except OSError as error:
            raise _unwritable(self._partial, error) from error
        except UnwritableError as error:
            if isinstance(error.__cause__, OSError):  # of a file of a rebuild
                raise _unwritable(self._partial, error.__cause__) from error
            raise
        finally:
            if self._is_done or not (self._goes_on and self.notes.exists()):
                with suppress(OSError):  # the next run removes what is left
                    remove_tree(SYSTEM, str(self._partial))
            SYSTEM.release(lock)

    def require_space(self, size: int) -> None:
        """Raise UnwritableError unless `size` bytes can be written."""
        free = SYSTEM.free_bytes(str(self._partial))
        if free < size + _RESERVE:
            raise UnwritableError(
                f"about {byte_size(size + _RESERVE)} are needed, {byte_size(max(0, free))} are free",
                file=self._target.parent,
                hint=_ELSEWHERE,
            )

    def empty_derived(self) -> Path:
        """The place of a rebuild's tree, without what an earlier one has left there."""
        remove_tree(SYSTEM, str(self.derived))
        return self.derived

    def adopt_derived(self, directory: Path | None = None) -> None:
        """Move what a rebuild has written into the store; or, once it is on the disk, to its place in `directory`."""
        if directory:
            _sync_all_below(self.derived)
        place = directory or self.directory
        for entry in SYSTEM.list(str(self.derived)):
            SYSTEM.rename(entry.path, str(place / entry.name))
        for each in (self.derived, place):
            sync_path(SYSTEM, str(each))

    def finish(self, owner: tuple[int, int] | None, *, replaces: bool = False) -> None:
        """Bring it to the disk and to its place; `owner` is the user and group that it gets.

        If it `replaces` a store in that place, both change places, and that one is removed. Else what another run has
        put there meanwhile is an OSError.
        """
        for path in _paths_below(self.directory):
            if owner:
                os.chown(path, *owner, follow_symlinks=False)
        _sync_all_below(self.directory)
        self.notes.unlink(missing_ok=True)  # they are not about the store that is there after an exchange
        if replaces:
            SYSTEM.exchange(str(self.directory), str(self._target))
        else:
            SYSTEM.rename(str(self.directory), str(self._target))
        for each in (self._partial, self._target.parent):
            sync_path(SYSTEM, str(each))
        self._is_done = True

    def _begin(self) -> int:
        """Make the directory, after what an earlier run has left of one; a descriptor that holds its lock."""
        try:
            if self._goes_on and os.path.isdir(self.directory):
                return self._locked(os.O_RDWR)
            if os.path.lexists(self._partial):
                os.close(self._locked(os.O_RDWR))
                remove_tree(SYSTEM, str(self._partial))
                self.began_anew = True
            SYSTEM.make_directory(str(self._partial))
            lock = self._locked(os.O_RDWR | os.O_CREAT | os.O_EXCL)
            sync_path(SYSTEM, str(self._partial))  # by its lock the next run knows it, after a power failure, too
            SYSTEM.make_directory(str(self.directory))
        except OSError as error:
            raise _unwritable(self._partial, error) from error
        return lock

    def _locked(self, flags: int) -> int:
        """Lock the directory; raises UsageError where it is not ours to take."""
        if not flags & os.O_CREAT and not os.path.isfile(self._partial / _LOCK):
            if self._partial.is_dir() and not any(self._partial.iterdir()):
                flags |= os.O_CREAT  # killed before it made its lock
            else:
                raise UsageError("in the way, and not made by rmqtool: move it away", file=self._partial)
        descriptor = os.open(self._partial / _LOCK, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise UsageError("another rmqtool is writing this store", file=self._partial) from error
        return descriptor


def _paths_below(directory: Path) -> Iterator[Path]:
    """Everything below a directory, and itself; directories after what is in them."""
    for above, _, files in os.walk(directory, topdown=False):
        yield from (Path(above, name) for name in files)
        yield Path(above)


def _sync_all_below(directory: Path) -> None:
    if not SYSTEM.sync_all(str(directory)):
        for path in _paths_below(directory):
            sync_path(SYSTEM, str(path))


def _unwritable(path: Path, error: OSError) -> UnwritableError:
    file = Path(error.filename) if isinstance(error.filename, str) else path
    hint = _ELSEWHERE if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
    return UnwritableError(f"cannot be written: {(error.strerror or str(error)).lower()}", file=file, hint=hint)


_BACKUP = ".bak"
_JSON = ".json"
_TREES = (TIMER_LOG, COMPACTION, SIDE_STORE)
_FILES = ("timerwheel", "epochFileCheckpoint", "brokerIdentity")


@dataclass(frozen=True)
class Carried:
    """A file or directory, relative to a store, of source number `source`; None where `problem` is with all of them.

    `is_unread`: it could not be read, and nobody knows what was in it. What is not in the source under this name is at
    `path`.
    """

    name: str
    source: int | None
    problem: str | None = None
    is_unread: bool = False
    path: Path | None = None

    def place(self, stores: Sequence[Store]) -> Path | None:
        """Where it is; None where it has a problem."""
        return None if self.source is None else self.path or stores[self.source].root / self.name


TIER = "tiered"
"""The directory in a new store to which a tier is taken along."""


def carried_tier(stores: Sequence[Store]) -> Carried:
    """The tier of the first source that has one, with all that it holds; raises UsageError where none can be read."""
    why = "no source has tiered storage: give --tiered-path DIRECTORY"
    for number, store in enumerate(stores):
        tier = tier_of(store)
        if isinstance(tier, Unreadable):
            why = tier.why
        elif tier is not None and tier.directory is not None and tier.directory in tier.directories:
            return Carried(f"{TIER}/{tier.directory.relative_to(tier.path)}", number, path=tier.directory)
        elif tier is not None:
            why = f"{tier.path} has no directory of this broker, or several: broker.conf names it (--broker-conf)"
    raise UsageError(f"--tiered: {why}")


def find_carried(stores: Sequence[Store], main: Store | None, *, only_config: bool = False) -> list[Carried]:
    """What is carried over; ext units go with the queues of `main` that point to them.

    With `only_config` without the files in which physical offsets stand, or messages of all topics (`not_carried`).
    """
    names = {f"{CONFIG}/{entry.name}" for store in stores for entry in list_directory(store.root / CONFIG)}
    found = [_first_of(stores, name) for name in sorted(names)]
    found += [] if only_config else [_first_of(stores, name) for name in not_carried(stores)]
    if main and main.has_ext_units:
        found.append(Carried(CONSUME_QUEUE_EXT, stores.index(main)))
    return found


def not_carried(stores: Sequence[Store]) -> list[str]:
    """What stores have beside log, queues, index and config: timers, epochs, compacted messages, RocksDB."""
    names = (*_TREES, *_FILES, *(f"{file}{_BACKUP}" for file in _FILES))
    return [name for name in names if any(os.path.exists(store.root / name) for store in stores)]


def carry_over(stores: Sequence[Store], carried: Sequence[Carried], directory: Path) -> list[Carried]:
    """Copy them below `directory` with their modification times; what has a problem now, or had one before.

    Raises OSError for what cannot be written.
    """
    problems = []
    for each in carried:
        if each.source is None:
            problems.append(each)
            continue
        place = each.place(stores) or Path()
        for path in _files_of(place):
            error = _copying_problem(path, directory / each.name / path.relative_to(place))
            if error:
                problems.append(Carried(each.name, None, str(error), is_unread=True))
    return problems


def _copying_problem(path: Path, to: Path) -> RmqtoolError | None:
    """Copy a file; why it could not be read. Raises OSError for what cannot be written, which ends the run."""
    try:
        copy_file(path, to)
    except (UnreadableError, WrongKindError) as error:
        return error
    return None


def carried_bytes(stores: Sequence[Store], carried: Sequence[Carried]) -> int:
    """Their sizes, bytes."""
    found = (each.place(stores) for each in carried)
    return sum(os.stat(file).st_blocks * 512 for path in found if path for file in _files_of(path))


def _first_of(stores: Sequence[Store], name: str) -> Carried:
    problem = None
    for number, store in enumerate(stores):
        path = store.root / name
        if not os.path.exists(path):
            continue
        problem = _problem_of(path)
        if problem is None:
            return Carried(name, number)
    return Carried(name, None, problem)


def _problem_of(path: Path) -> str | None:
    """Why a file is not carried over: a broker refuses to start on some that it cannot decode."""
    if not path.name.removesuffix(_BACKUP).endswith(_JSON) or path.is_dir():
        return None
    try:
        read_config_file(path)
    except RmqtoolError as error:
        return error.message
    return None


def _files_of(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for above, _, names in os.walk(path):
        yield from (Path(above, name) for name in sorted(names) if not os.path.islink(Path(above, name)))


def main_store(stores: Sequence[Store]) -> Store | None:
    """The source whose queues and sizes of files count: the first of those that show the most sizes."""
    unknown: dict[int, int] = {}
    for number, store in enumerate(stores):
        with suppress(RmqtoolError):
            unknown[number] = len(unknown_sizes(Snapshot(store)))
    if unknown:
        return stores[min(unknown, key=lambda number: (unknown[number], number))]
    return stores[0] if stores else None


def known_topics(stores: Sequence[Store]) -> frozenset[str]:
    """The topics that have queues or are configured in any source that shows them."""
    names: set[str] = set()
    for store in stores:
        with suppress(RmqtoolError):
            names.update(Snapshot(store).topic_names)
    return frozenset(names)


def rebuild_sources(main: Store | None, directory: Path, conf: BrokerConf) -> Iterator[Store]:
    """The new log in `directory` with the queues of the main source, and, where these cannot be read, without.

    What can be read of that source shows sizes and delays all the same, as far as `conf` does not set them.
    """
    log = (directory / COMMIT_LOG,)
    if main:
        yield replace(main, commit_log_directories=log)
        conf = replace(conf, settings={**dict(_shown_settings(main)), **conf.settings})
    yield Store(directory, "default", conf, log)


def _shown_settings(store: Store) -> Iterator[tuple[str, str]]:
    """The settings that files of a store show, some of which cannot be read."""
    snapshot = Snapshot(store, scope=ReadErrors().scope)
    for kind, size in common_file_sizes(snapshot.queues).items():
        yield QUEUE_FILE_SIZE[kind][0], str(size)
    geometry = snapshot.shown_index_geometry
    if geometry:
        yield "maxHashSlotNum", str(geometry.slots)
        yield "maxIndexNum", str(geometry.units)
    with suppress(RmqtoolError):
        yield "messageDelayLevel", _delays(snapshot)


def with_delays(store: Store) -> Store:
    """The store with its delay levels as settings: of another log its queues do not show them."""
    settings = {**store.conf.settings, "messageDelayLevel": _delays(Snapshot(store))}
    return replace(store, conf=replace(store.conf, settings=settings))


def _delays(snapshot: Snapshot) -> str:
    return " ".join(f"{delay // 1000}s" for delay in snapshot.delay_levels.delays)


def write_checkpoint(store: Store, main: Store | None, last_record: tuple[int, int], version: Version | None) -> None:
    """Write the checkpoint of the new `store`: all queues are complete to the last record, and so is the index.

    `last_record` is its physical offset and store time. Raises OSError.
    """
    physical_offset, timestamp = last_record
    fields = {"physic_message_timestamp": timestamp, "logics_message_timestamp": timestamp}
    fields["index_message_timestamp"] = max((file.end_timestamp for file in list_index_files(store)), default=0)
    if _had_logics_offset(main) or (version and version >= CHECKPOINT_HAS_LOGICS_OFFSET):
        fields["logics_physical_offset"] = physical_offset
    data = checkpoint_file(fields)
    with new_file(store.root / CHECKPOINT, len(data)) as descriptor:
        write_all(descriptor, data, 0)
        set_time(descriptor, timestamp)


def _had_logics_offset(main: Store | None) -> bool:
    with suppress(RmqtoolError):
        return main is not None and credible(read_checkpoint(main)).get("logics_physical_offset", 0) > 0
    return False


_JUMP = "rebuild.queue-offset-jump"


def require_derived(findings: Iterable[Finding]) -> None:
    """Raise UnsupportedError where a queue was not derived from the log, so that its units lead to other messages.

    `findings` are those of the rebuild.
    """
    for finding in findings:
        if finding.code == _JUMP:
            raise UnsupportedError(f"topic {finding.topic}, queue {finding.queue_id}: {finding.message}")


def cut_queue(kind: Kind, directory: Path, start: int) -> None:
    """Cut a queue that was copied at its first unit of a message from physical offset `start` on.

    Raises OSError.
    """
    files = list_mapped_files(directory).files
    for number, file in enumerate(files):
        units = decode_units(UNIT_FORMATS[kind].dtype, read_all(file.path, file.size))
        moved = np.flatnonzero(UNIT_FORMATS[kind].is_written(units) & (units["physical_offset"] >= start))
        if not len(moved):
            continue
        if not (number or moved[0]):
            shutil.rmtree(directory)
            with suppress(OSError):  # other queues of the topic stay
                directory.parent.rmdir()
            return
        for behind in files[number + 1 :]:
            behind.path.unlink()
        _zero_from(file, int(moved[0]) * units.itemsize)
        return


def _zero_from(file: MappedFile, position: int) -> None:
    timestamp = file.path.stat().st_mtime_ns // 1_000_000
    with new_file(file.path, file.size) as descriptor:
        write_all(descriptor, bytes(file.size - position), position)
        set_time(descriptor, timestamp)
