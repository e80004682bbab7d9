"""The copying of a store, step by step, in a directory beside its place, where an interrupted run goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import Progress, RateLimit, ReadPolicy, no_progress
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.paths import is_remote
from rmqtool.base.signals import WAIT_SECONDS
from rmqtool.copy.log_end import LogEnd, end_log
from rmqtool.copy.manifest import CopiedFile, Manifest, Origin
from rmqtool.copy.notes import Notes, name_of
from rmqtool.copy.objects import Uploads
from rmqtool.copy.order import STEPS, Database, Found, Step, inventory
from rmqtool.copy.transfer import (
    Content,
    content_of,
    copy_attributes,
    copy_content,
    copy_database,
    copy_index,
    copy_small,
    copy_tables,
    vanishing,
)
from rmqtool.formats.file_name import start_offset_of
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.salvage.new_store import NewStore
from rmqtool.store.consume_queues import UNIT_FORMATS
from rmqtool.store.index_files import Geometry, geometry_or_none, read_header
from rmqtool.store.lock import lock_holder
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import COMMIT_LOG, Store
from rmqtool.transaction.system import SYSTEM

BLOCK = 512  # of st_blocks, bytes
_COPIES, _UPLOADS = 2, 8  # files at once
_BULK_PASSES = 3  # files that are full meanwhile are copied by the next one
_BUFFERED = 1.0  # seconds for which an acknowledged message may be in the broker's memory alone, and more
_LARGE = 1 << 20  # bytes
_SMALL = {"positions", "names"}
_TRIES, _PAUSE = 20, 0.01  # of what is read of an index file that grows, seconds
_UNIT_SIZES = {each.directory: each.dtype.itemsize for each in UNIT_FORMATS.values()}


@dataclass
class Totals:
    """What was done; `linked` files are those of the earlier copy that had not changed."""

    copied: int = 0
    linked: int = 0
    went_on: int = 0
    vanished: int = 0
    bytes_read: int = 0
    bulk_seconds: float = 0
    ordered_seconds: float = 0


@dataclass
class Copied:
    """A store that is copied, before it is settled."""

    end: LogEnd
    files: dict[str, CopiedFile]
    stamps: dict[str, tuple[int, int]]  # of each file when it was copied: what has another one now was changed since
    started: int
    index_geometry: Geometry | None = None  # of the newest index file, as the store showed it
    totals: Totals = field(default_factory=Totals)
    there: Sequence[CopiedFile] = ()  # what of the earlier copy stays on another machine

    @property
    def log_bytes(self) -> int:
        """Sizes of the log's files together, bytes."""
        return sum(file.size for file in self.files.values() if file.kind == "log")


@dataclass(frozen=True)
class Earlier:
    """A copy that is brought up to date: where it is, and its manifest; with `prune` what the source lacks goes.

    `root` is None of one on another machine.
    """

    root: Path | None
    manifest: Manifest
    prune: bool = False


class Copying:
    """Copies a store into `new`; `earlier` is the copy that it follows.

    With `uploads` full files go to another machine, and `new` has links that lead to them in the source. The log ends
    so that a start completes queues and index which reads no more than its last `most_files`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        new: NewStore,
        *,
        limit: RateLimit | None = None,
        earlier: Earlier | None = None,
        expected: Manifest | None = None,
        uploads: Uploads | None = None,
        most_files: int | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self._most_files = most_files
        self._log_stop: int | None = None
        self._snapshot, self._store, self._new = snapshot, snapshot.store, new
        self._root = new.directory
        self._earlier = earlier
        self._before = earlier.manifest.by_path if earlier else {}
        self._expected = expected.by_path if expected else {}
        self._is_live = snapshot.holder is not None
        self._reading = ReadPolicy(limit, drop_page_cache=self._is_live)
        self._progress = progress
        self._uploads = uploads
        self._lock = threading.Lock()
        self._is_stopped = False
        self._there: list[CopiedFile] = []  # what only the earlier copy on another machine has
        self._notes = Notes(new.notes, name_of(self._store))
        self._files: dict[str, CopiedFile] = {}
        self._stamps: dict[str, tuple[int, int]] = {}
        self._totals = Totals()
        self._index_geometry: Geometry | None = None

    def run(self) -> Copied:
        """Copy all; raises UnreadableError, ChangedError, OSError."""
        started, began = time.time_ns() // 1_000_000, time.monotonic()
        self._begin()
        self._bulk()
        ordered = time.monotonic()
        for step in STEPS:
            if step == "log" and self._is_live:
                time.sleep(max(0.0, _BUFFERED - (time.monotonic() - began)))
            if step == "index":
                self._stop_log()
            self._copy_step(step)
            if step == "log":
                self._drop_leftovers()
                end = self._end()
        self._keep_earlier()
        kept = list_mapped_files(self._root / COMMIT_LOG).files
        starts = [file.first for file in self._there if file.kind == "log" and file.first is not None]
        end = replace(end, start=min([*starts, kept[0].start_offset if kept else end.start]))
        self._totals.bulk_seconds = ordered - began
        self._totals.ordered_seconds = time.monotonic() - ordered
        return Copied(end, self._files, self._stamps, started, self._index_geometry, self._totals, self._there)

    def _begin(self) -> None:
        """Go on with what an interrupted run has copied, where that was of the same store."""
        known = None if self._uploads else self._notes.read()
        if known is None:
            self._new.begin_anew()
            known = {}
        self._known = known
        if not self._uploads:
            self._notes.open(is_new=not known)
        for name, directory in inventory(self._store).directories:
            self._make_like(self._root / name, directory)

    # What never changes again comes first, at any rate

    def _bulk(self) -> None:
        for _ in range(_BULK_PASSES):
            found = inventory(self._store)
            left = [file for file in found.files if file.is_full and file.name not in self._files]
            self._copy_at_once(left, self._copy_full)
            for database in found.databases:
                copy_tables(database.path, self._made(f"{database.name}/CURRENT").parent, self._reading, self._count)
            if not left:
                break
        self._drop_gap()

    def _copy_at_once(self, files: Sequence[Found], copy: Callable[..., None]) -> None:
        """Copy files that the broker does not write, some at once unless that is to be slow."""
        at_once = 1 if self._reading.rate_limit else min(len(files), _UPLOADS if self._uploads else _COPIES)
        with ThreadPoolExecutor(max(1, at_once)) as threads:
            waiting = [threads.submit(copy, file, is_one_of_many=at_once > 1) for file in files]
            try:
                for each in waiting:
                    while not each.done():
                        wait([each], WAIT_SECONDS)
                    each.result()
            except BaseException:
                self._is_stopped = True
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _copy_full(self, file: Found, *, is_one_of_many: bool) -> None:
        """Copy a file that the broker writes no more; one that an earlier run or copy has is taken from there."""
        with vanishing(file.path) as gone:
            status = os.stat(file.path)
            if self._uploads:
                self._upload(file, status, self._uploads)
            elif not (self._take_known(file, status) or self._take_linked(file, status)):
                self._copy(file, status, is_one_of_many=is_one_of_many)
                self._notes.add(self._files[file.name])
                if self._is_live and status.st_size >= _LARGE:
                    self._forget(self._root / file.name)
        self._tally("vanished", len(gone))

    def _upload(self, file: Found, status: os.stat_result, uploads: Uploads) -> None:
        """Let another machine have a full file; one that is there is known by what it was when it was copied."""
        known, is_earlier = uploads.known(file.name, lambda each: each.is_full and each.origin == Origin.of(status))
        if known:
            self._tally("linked" if is_earlier else "went_on")
            self._count(_allocated(status))
        else:
            content, there = uploads.put(file.name, file.path, self._count)
            made = described(file.name, file.step, content, status.st_mtime_ns)
            known = replace(made, is_full=True, origin=Origin.of(status), object=there)
            uploads.note(known)
            self._tally("copied")
        link = self._made(file.name)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.realpath(file.path))
        self._have(known)

    def _drop_vanished(self) -> None:
        """Leave out what the broker has deleted in the meantime, the oldest files of the log first."""
        self._tally("vanished", len(dropped := drop_dangling(self._root)))
        for name in dropped:
            self._files.pop(name, None)

    def _forget(self, path: Path) -> None:
        """Leave a copied file out of the page cache, on which the broker lives."""
        descriptor = SYSTEM.open_to_sync(str(path))
        try:
            SYSTEM.sync(descriptor)
            SYSTEM.forget(descriptor)
        finally:
            SYSTEM.close(descriptor)

    def _take_known(self, file: Found, status: os.stat_result) -> bool:
        known = self._known.get(file.name)
        if known is None or known.origin != Origin.of(status):
            return False
        with suppress(OSError):
            if os.stat(self._root / file.name).st_size == known.size:
                self._have(known)
                self._tally("went_on")
                self._count(_allocated(status))
                return True
        return False

    def _take_linked(self, file: Found, status: os.stat_result) -> bool:
        """Share a file with the earlier copy, where neither the source's nor that one has changed."""
        before = self._before.get(file.name)
        if not self._earlier or not before or not before.is_full or before.origin != Origin.of(status):
            return False
        if not self._link(before, self._earlier):
            return False
        self._tally("linked")
        self._count(_allocated(status))
        return True

    def _link(self, before: CopiedFile, earlier: Earlier) -> bool:
        """Give a file of the earlier copy a second name here; where the file system has none, copy it."""
        if earlier.root is None:
            self._there.append(before)
            return True
        path, to = earlier.root / before.path, self._made(before.path)
        status = os.stat(path)
        if (status.st_size, status.st_mtime_ns) != (before.size, before.mtime_ns):
            return False
        to.unlink(missing_ok=True)
        try:
            os.link(path, to)
        except OSError:
            copy_content(path, to, self._reading, no_progress)
            copy_attributes(status, to)
        self._have(before)
        return True

    def _drop_leftovers(self) -> None:
        """Remove what an interrupted run has copied, perhaps in part, and the source does not have any more."""
        for above, _, names in os.walk(self._root):
            for name in names:
                path = Path(above, name)
                if path.relative_to(self._root).as_posix() not in self._files:
                    path.unlink()

    def _drop_gap(self) -> None:
        """Drop the log files before a gap that the broker's cleaner has made meanwhile: it deletes the oldest first."""
        self._drop_vanished()
        files = list_mapped_files(self._root / COMMIT_LOG).files
        there = {file.path.name for file in inventory(self._store, "log").of("log")}
        for before, after in reversed([*pairwise(files)]):
            if before.end_offset < after.start_offset and before.path.name not in there:
                for file in files:
                    if file.start_offset <= before.start_offset:
                        file.path.unlink()
                        self._files.pop(f"{COMMIT_LOG}/{file.path.name}", None)
                return

    # What changes comes in order

    def _stop_log(self) -> None:
        """Decide where the log ends at the latest: a start has to read what no queue has yet, two files back at most.

        The last file of now may be one that the broker has made in advance.
        """
        files = list_mapped_files(*self._store.commit_log_directories).files if self._most_files else ()
        if files and self._most_files:
            self._log_stop = files[-1].start_offset + max(1, self._most_files - 2) * files[-1].size

    def _is_too_late(self, file: Found) -> bool:
        start = start_offset_of(file.path.name)
        return file.step == "log" and self._log_stop is not None and start is not None and start >= self._log_stop

    def _copy_step(self, step: Step) -> None:
        """Copy what is listed now: what is made after that, nothing leads to that was copied before.

        Of a step that no broker has written meanwhile the files come at once, else one after the other. On another
        machine a broker may run that is not seen here.
        """
        known = set(self._files)
        if not (self._is_written() or is_remote(self._store.root)):
            self._copy_listed(step, known, at_once=True)
            if not self._is_written():
                return
        self._copy_listed(step, known, at_once=False)

    def _is_written(self) -> bool:
        """Whether a broker runs: one may have started meanwhile."""
        self._is_live = self._is_live or lock_holder(self._store.root) is not None
        return self._is_live

    def _copy_listed(self, step: Step, known: Collection[str], *, at_once: bool) -> None:
        found = inventory(self._store, step)
        for database in found.databases:
            if database.step == step:
                self._copy_database(database)
        files = [file for file in found.of(step) if file.name not in known and not self._is_too_late(file)]
        if at_once:
            self._copy_at_once(files, self._copy_changing)
            return
        for file in files:
            self._copy_changing(file)

    def _copy_changing(self, file: Found, *, is_one_of_many: bool = False) -> None:
        with vanishing(file.path) as gone:
            if file.step in _SMALL:
                status = os.stat(file.path)
                if copy_small(file.path, self._made(file.name)):
                    self._add(file, content_of(self._root / file.name, self._reading, self._count), status)
            else:
                self._copy(file, os.stat(file.path), is_one_of_many=is_one_of_many)
        self._tally("vanished", len(gone))

    def _copy(self, file: Found, status: os.stat_result, *, is_one_of_many: bool = False) -> None:
        to = self._made(file.name)
        if file.step == "index" and not file.is_full:
            geometry = self._index_geometry = self._geometry_of(file.path)
            content = copy_index(file.path, to, geometry, self._reading, self._count)
        else:
            content = copy_content(file.path, to, self._reading, self._count,
                                   is_full=file.is_full or not self._is_live,
                                   is_one_of_many=is_one_of_many)  # fmt: skip
        self._add(file, content, status)

    def _geometry_of(self, path: Path) -> Geometry | None:
        """The geometry of an index file that may grow, so that what proves it is soon no longer so."""
        for _ in range(_TRIES):
            geometry = geometry_or_none(read_header(path), self._store.conf.index_geometry)
            if geometry or not self._is_live:
                break
            time.sleep(_PAUSE)
        return geometry or self._snapshot.shown_index_geometry

    def _add(self, file: Found, content: Content, status: os.stat_result) -> None:
        copy_attributes(status, self._root / file.name)
        expected = self._expected.get(file.name)
        if expected:  # a copy may have been moved without its times
            os.utime(self._root / file.name, ns=(expected.mtime_ns, expected.mtime_ns))
        self._require_expected(file.name, content)
        made = described(file.name, file.step, content, expected.mtime_ns if expected else status.st_mtime_ns)
        self._have(replace(made, is_full=file.is_full, origin=Origin.of(status)))
        self._tally("copied")

    def _require_expected(self, name: str, content: Content) -> None:
        """Raise UnreadableError where a file of a copy that is restored is not as the manifest says."""
        expected = self._expected.get(name)
        if expected and (expected.used, expected.sha256) != (content.used, content.sha256):
            raise UnreadableError(
                "does not match the manifest of the copy: the copy is damaged",
                file=self._store.root / name,
                hint="copy --verify names all damaged files; another copy may be intact",
            )

    def _have(self, file: CopiedFile) -> None:
        self._files[file.path] = file
        self._stamps[file.path] = stamp_of(os.stat(self._root / file.path))

    def _copy_database(self, database: Database) -> None:
        to = self._made(f"{database.name}/CURRENT").parent
        statuses = copy_database(database.path, to, self._reading, self._count)
        for name, status in statuses.items():
            path = f"{database.name}/{name}"
            content = content_of(self._root / path, ReadPolicy(), no_progress)
            self._require_expected(path, content)
            self._have(described(path, "database", content, status.st_mtime_ns))
            self._tally("copied")

    def _end(self) -> LogEnd:
        sources = {file.name: file.path for file in inventory(self._store, "log").of("log")}

        def source(name: str) -> Path:
            return sources.get(f"{COMMIT_LOG}/{name}", self._store.root / COMMIT_LOG / name)

        def again(name: str) -> None:
            path = source(name)
            self._copy(Found(f"{COMMIT_LOG}/{name}", path, "log"), os.stat(path))

        self._drop_gap()
        rules = RecoveryRules.of(self._snapshot.release, self._store.conf)
        return end_log(self._root / COMMIT_LOG, source, rules, again=again if self._is_written() else None)

    def _keep_earlier(self) -> None:
        """Keep what the earlier copy has and the source's cleaner has deleted: older files of log, queues and index."""
        earlier = self._earlier
        if earlier is None or earlier.prune:
            return
        firsts = _first_files(self._files)
        for file in earlier.manifest.files:
            if file.path in self._files or not file.is_full:
                continue
            directory, _, name = file.path.rpartition("/")
            start = start_offset_of(name)
            is_older = directory not in firsts or start is None or start < firsts[directory]
            if file.kind in ("log", "queues", "index") and is_older:
                self._link(file, earlier)

    def _made(self, name: str) -> Path:
        """A path of the copy, with the directories above; some are new in the source."""
        path = self._root / name
        if not path.parent.is_dir():
            for above in reversed(Path(name).parents):
                self._make_like(self._root / above, self._store.root / above)
        return path

    def _make_like(self, path: Path, directory: Path) -> None:
        """Make a directory with the mode and owner of one of the source."""
        path.mkdir(exist_ok=True)
        with vanishing(directory):
            status = os.stat(directory)
            os.chmod(path, status.st_mode & 0o7777)
            if os.geteuid() == 0:
                os.chown(path, status.st_uid, status.st_gid)

    def _count(self, size: int) -> None:
        """Take note of what was read; raises CancelledError where another thread has met an error."""
        if self._is_stopped:
            raise CancelledError
        with self._lock:
            self._totals.bytes_read += size
            self._progress(size)

    def _tally(self, name: str, count: int = 1) -> None:
        with self._lock:
            setattr(self._totals, name, getattr(self._totals, name) + count)


def drop_dangling(root: Path) -> list[str]:
    """Remove the links below a directory that lead nowhere any more, of the newest files first; their names.

    A cleaner deletes the oldest files first: where the newest is looked at first, no gap is left.
    """
    dropped = []
    for above, _, names in os.walk(root):
        for name in sorted(names, reverse=True):
            path = Path(above, name)
            if path.is_symlink() and not path.exists():
                path.unlink()
                dropped.append(path.relative_to(root).as_posix())
    return dropped


def _first_files(files: dict[str, CopiedFile]) -> dict[str, int]:
    """The start of the first mapped file of each directory."""
    firsts: dict[str, int] = {}
    for path in files:
        directory, _, name = path.rpartition("/")
        start = start_offset_of(name)
        if start is not None:
            firsts[directory] = min(start, firsts.get(directory, start))
    return firsts


def stamp_of(status: os.stat_result) -> tuple[int, int]:
    """What changes with each change of a file: its inode, and the time of its last change."""
    return status.st_ino, status.st_ctime_ns


def described(path: str, kind: str, content: Content, mtime_ns: int) -> CopiedFile:
    """A file as the manifest describes it."""
    return CopiedFile(path, kind, content.size, content.used, content.sha256, mtime_ns, *_range_of(path, content))


def _range_of(name: str, content: Content) -> tuple[int | None, int | None]:
    """First and last offset of a file: bytes of a log, units of a queue."""
    start = start_offset_of(name.rsplit("/", 1)[-1])
    if start is None:
        return None, None
    unit = _UNIT_SIZES.get(name.split("/", 1)[0], 1)
    return start // unit, (start + content.used + unit - 1) // unit


def _allocated(status: os.stat_result) -> int:
    return min(status.st_size, status.st_blocks * BLOCK)


def needed_bytes(store: Store, earlier: Earlier | None = None, *, only_changing: bool = False) -> int:
    """About how many bytes a copy reads and writes: what the files hold that an earlier one does not have.

    With `only_changing` without the files that are full.
    """
    found = inventory(store)
    known = earlier.manifest.by_path if earlier else {}
    total = 0
    for file in found.files:
        if only_changing and file.is_full:
            continue
        with suppress(OSError):
            status = os.stat(file.path)
            before = known.get(file.name)
            if not (before and before.is_full and before.origin == Origin.of(status)):
                total += _allocated(status)
    for database in found.databases:
        with suppress(OSError), os.scandir(database.path) as entries:
            total += sum(entry.stat().st_size for entry in entries if entry.is_file())
    return total


def allocated_below(directory: Path) -> int:
    """What the files of a copy take already, bytes, without those that another copy has, too."""
    found = (os.lstat(Path(above, name)) for above, _, names in os.walk(directory) for name in names)
    return sum(_allocated(status) for status in found if status.st_nlink == 1)
