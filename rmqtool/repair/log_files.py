"""What stands wrongly among the files of a store: strays, empty files, wrong sizes, wrong names.

Nothing is deleted: what is taken out or replaced is kept by the transaction. What no change heals, and what has to come
from elsewhere, says `missing_files.not_healed`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at
from rmqtool.base.times import file_time, rfc3339
from rmqtool.findings.finding import Finding, counted
from rmqtool.findings.report import UNREADABLE
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import BLANK_SIZE, HEAD, build_blank
from rmqtool.repair.change import (
    KEPT,
    Change,
    FileChange,
    Patched,
    Resized,
    TakenOut,
    codes_of,
    name_in_store,
    names_in_store,
    zero_from,
)
from rmqtool.repair.compaction import compaction_changes
from rmqtool.repair.fields import FIELD_CODES, right_fields
from rmqtool.repair.tiered import tiered_changes
from rmqtool.repair.timer_files import timer_changes
from rmqtool.rules.file_sizes import LOG_FILE_SIZE
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET
from rmqtool.scan.block import Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import Probe, find_next
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, checkpoint_file, credible
from rmqtool.store.lock import has_abort
from rmqtool.store.missing import missing_files
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, Store
from rmqtool.transaction.losses import Loss
from rmqtool.transaction.system import SYSTEM, same_entry
from rmqtool.transaction.transaction import Transaction

_CODE = "commitlog.blank"


def blank_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[Patched]:
    """The blanks that get the size that leads to the end of their file.

    What is missing or zeroed where a blank should be is damage, which a rebuild neutralises.
    """
    for finding in findings:
        if finding.code != _CODE or finding.offset is None:
            continue
        file = file_at(snapshot.log.files, finding.offset)
        name = file and name_in_store(snapshot.store, file.path)
        position = finding.offset - file.start_offset if file else 0
        if file and name and _has_wrong_size(file, position):
            what = f"{name}: the blank at its end gets the size of the remaining space"
            writes = [(position, build_blank(file.size - position))]
            yield Patched(codes=frozenset({_CODE}), what=what, name=name, path=file.path, writes=writes)


def _has_wrong_size(file: MappedFile, position: int) -> bool:
    """Whether a blank stands there that claims more than the rest of the file or less than none; no record follows."""
    with InputFile(file.path) as opened:
        blank = Probe(opened, file.start_offset, position)
        is_wrong = blank.kind == "blank" and not 0 <= blank.size <= file.size - position
        return is_wrong and find_next(opened, file.start_offset, position + BLANK_SIZE) == file.size


Starts = Mapping[MappedFile, int]
"""The start offset of each file as its records give it."""

_OF_NAMES = ("physical-offset", "misaligned-file", "overlap", "gap", "duplicate-file")
NAME_CODES = frozenset(f"commitlog.{each}" for each in _OF_NAMES)
"""Codes of findings that a wrong name, or a second copy, may cause."""


@dataclass(frozen=True, kw_only=True)
class Renamed(Change):
    """Commit log files that get the names that their records give: pairs of the name now and the name to be.

    `brings_back` are the physical offsets, from and to, between which the log is whole again: none where more is wrong
    with these files, or the log does not follow on after it.
    """

    names: Sequence[tuple[str, str]]
    brings_back: tuple[tuple[int, int], ...] = ()

    def stage(self, transaction: Transaction) -> None:
        """Prepare the new names as links: at no moment of the commit a file is without a name."""
        for old, new in self.names:
            transaction.link(new, old)
            transaction.put(new)
        for old in {old for old, _ in self.names} - {new for _, new in self.names}:
            transaction.remove(old)


def name_changes(snapshot: Snapshot, codes: frozenset[str]) -> list[Change]:
    """Copies that are taken out, and files that are renamed."""
    if not codes & NAME_CODES or "store.mixed" in codes:
        return []
    starts = {file: told_start(file, snapshot.reading) for file in snapshot.log.files if file.size}
    store, copies, changes = snapshot.store, dict(_copies(snapshot.store, starts)), list[Change]()
    for copy, original in copies.items():
        name = name_in_store(store, copy.path)
        if name:
            what = f"{name}, byte for byte the same as {store.relative(original.path)}: {KEPT}"
            changes.append(TakenOut(codes=codes & NAME_CODES, what=what, details=(name,)))
    return [*changes, *_renamed(snapshot, starts, copies, codes)]


def told_start(file: MappedFile, reading: ReadPolicy) -> int:
    """The start offset that the first record of a file gives, if most of the file agrees; else that of its name."""
    with InputFile(file.path, reading) as opened:
        if Probe(opened, file.start_offset, 0).kind != "physical-offset":
            return file.start_offset
        stored = int(HEAD.unpack(opened.read(0, HEAD.size))[2])
    if stored < 0:
        return file.start_offset
    sizes = {RecordRun: 0, Damage: 0}
    for event in scan_files([MappedFile(file.path, stored, file.size)], reading=reading):
        if isinstance(event, (RecordRun, Damage)):
            sizes[type(event)] += event.size
    return stored if sizes[RecordRun] > sizes[Damage] else file.start_offset


def _copies(store: Store, starts: Starts) -> Iterator[tuple[MappedFile, MappedFile]]:
    """Files that are byte for byte another one, which stands where it belongs, each with that one."""
    by_start: dict[int, list[MappedFile]] = defaultdict(list)
    for file, start in starts.items():
        by_start[start].append(file)
    for start, files in by_start.items():
        where = {file: (file.start_offset != start, name_in_store(store, file.path) is not None) for file in files}
        original, *others = sorted(files, key=lambda file: where[file])
        for other in others:
            if same_entry(SYSTEM, str(original.path), str(other.path)):
                yield other, original


def _renamed(
    snapshot: Snapshot, starts: Starts, copies: Mapping[MappedFile, MappedFile], codes: frozenset[str]
) -> Iterator[Renamed]:
    store = snapshot.store
    left = {file: start for file, start in starts.items() if file not in copies}
    moved = {file: start for file, start in left.items() if start != file.start_offset}
    wanted = set(moved.values())
    # Files of zeros, allocated in advance, give way: the transaction replaces and keeps them.
    after = {
        file: start for file, start in left.items()
        if file in moved or start not in wanted or not zero_from(file, 0)
    }  # fmt: skip
    if not moved or not _follows_better(after, list(left)):
        return
    pairs = [(file.path, file.path.with_name(file_name(start))) for file, start in moved.items()]
    found = [(name_in_store(store, old), name_in_store(store, new)) for old, new in pairs]
    names = [(old, new) for old, new in found if old and new]
    if len(names) == len(pairs):
        is_whole = not _breaks((start, start + file.size) for file, start in after.items()) and all(
            _is_sound(MappedFile(file.path, start, file.size), snapshot.reading) for file, start in moved.items()
        )
        brings_back = tuple((file.start_offset, file.end_offset) for file in moved) if is_whole else ()
        what = f"{counted(len(names), 'log file')} get the names that their records give"
        if len(names) == 1:
            what = "{} is renamed to {}: that is where its records say they are".format(*names[0])
        details = tuple(f"{old} becomes {new}" for old, new in names)
        yield Renamed(codes=codes & NAME_CODES, what=what, details=details, names=names, brings_back=brings_back)


def _is_sound(file: MappedFile, reading: ReadPolicy) -> bool:
    """Whether all that a file holds at its place are records with their bodies."""
    return not any(
        (isinstance(event, Damage) and not event.tail) or (isinstance(event, RecordRun) and event.wrong_bodies.any())
        for event in scan_files([file], reading=reading)
    )


def _follows_better(after: Mapping[MappedFile, int], before: Sequence[MappedFile]) -> bool:
    """Whether no two files have one start, and fewer do not follow on; or as many, with the same names or all new."""
    starts = sorted(after.values())
    if len(set(starts)) < len(starts):
        return False
    breaks_after = _breaks((start, start + file.size) for file, start in after.items())
    breaks_before = _breaks((file.start_offset, file.end_offset) for file in before)
    if breaks_after < breaks_before:
        return True
    is_rearranged = set(starts) <= {file.start_offset for file in before}
    return breaks_after == breaks_before and (
        is_rearranged or all(file.start_offset != start for file, start in after.items())
    )


def _breaks(extents: Iterable[tuple[int, int]]) -> int:
    """How many files do not begin where the one before them ends."""
    return sum(before[1] != after[0] for before, after in pairwise(sorted(extents)))


_MISSING, _FUTURE, _OFFSET = "checkpoint.missing", "checkpoint.future", "checkpoint.logics-offset"
_END = "commitlog.end-missing"
_KEYS = "start.keys-lost"
_INDEX = "index_message_timestamp"
_LOG_TIMES = f"{CHECKPOINT} is written with the times of the log's last record"
_INDEX_TIME = f"{CHECKPOINT} gets the time of the newest index file, which the start then keeps"
_ELSEWHERE = frozenset({"consumequeue.stray", "consumequeue.empty-file", "consumequeue.shifted"})  # lack no units


@dataclass(frozen=True, kw_only=True)
class NewCheckpoint(FileChange):
    """A checkpoint that `raises_index_time` where it calls more of the index flushed than the one before.

    `proof` is one of newer messages than the log holds, which goes with the one before.
    """

    raises_index_time: bool
    proof: str | None

    def stage(self, transaction: Transaction) -> None:
        """Write it, and record the proof."""
        super().stage(transaction)
        if self.proof:
            transaction.record(Loss(transaction.command, int(time.time() * 1000), proofs=(self.proof,)))


def _new_checkpoint(
    before: Mapping[str, int], fields: Mapping[str, int], codes: frozenset[str], what: str, proof: str | None = None
) -> NewCheckpoint:
    """A checkpoint in place of one with the fields `before`, which is empty where there is none."""
    pairs = [(name, before.get(name, 0), value) for name, value in fields.items()]
    return NewCheckpoint(
        codes=codes,
        what=what,
        lost=proof and f"the proof of a loss: {proof}. rmqtool verify reports it until it is acknowledged",
        details=tuple(f"{name}: {old} becomes {new}" for name, old, new in pairs if old != new),
        name=CHECKPOINT,
        content=checkpoint_file(fields),
        mtime_ns=None if before else file_time(fields["physic_message_timestamp"]),
        raises_index_time=fields[_INDEX] > before.get(_INDEX, 0),
        proof=proof,
    )


def checkpoint_changes(snapshot: Snapshot, codes: frozenset[str]) -> Iterator[NewCheckpoint]:
    """The new checkpoint, when one of its `codes` is told and the queues are complete."""
    before = snapshot.checkpoint or {}
    proving = credible(before)
    told = codes & {_MISSING, _FUTURE, _OFFSET, *([_END] if _offsets_beyond(snapshot, proving) else [])}
    lacks_units = any(code.startswith("consumequeue.") for code in codes - _ELSEWHERE)
    if lacks_units or snapshot.log_range.last_store_timestamp is None:
        return
    if told:
        fields = _sane(snapshot, before)
        if _KEYS in codes:
            fields[_INDEX] = _index_end(snapshot)
        yield _new_checkpoint(before, fields, told | (codes & {_KEYS}), _LOG_TIMES, _proof(snapshot, proving))
    elif _KEYS in codes:
        fields = {**before, _INDEX: _index_end(snapshot)}
        yield _new_checkpoint(before, fields, frozenset({_KEYS}), _INDEX_TIME)


def proves_more(snapshot: Snapshot, codes: Set[str]) -> bool:
    """Whether a checkpoint of which one of the `codes` is told proves a loss, which goes on record with a new one."""
    codes = frozenset(code for code in codes if not code.startswith("consumequeue."))  # complete by then
    return any(each.proof for each in checkpoint_changes(snapshot, codes))


def _proof(snapshot: Snapshot, before: Mapping[str, int]) -> str | None:
    """After a clean stop a checkpoint that is newer than the log proves that the log has lost its end.

    A time that is still to come is that of no message.
    """
    if has_abort(snapshot.store.root):
        return None
    newest = max((before.get(name, 0) for name in CHECKPOINT_TIMES), default=0)
    if newest > time.time() * 1000:
        return None
    if newest > (snapshot.log_range.last_store_timestamp or 0):
        return f"{CHECKPOINT} knew a message of {rfc3339(newest) or newest}"
    beyond = [f"{name} {before[name]}" for name in _offsets_beyond(snapshot, before)]
    return f"{CHECKPOINT} had {' and '.join(beyond)}" if beyond else None


def _offsets_beyond(snapshot: Snapshot, before: Mapping[str, int]) -> list[str]:
    """The offsets that lead past the end of the log: where it ended once, and where its last record began."""
    ends = {"confirm_physical_offset": snapshot.log_range.max_offset}
    ends["logics_physical_offset"] = ends["confirm_physical_offset"] - 1
    return [name for name, end in ends.items() if before.get(name, 0) > max(end, 0)]


def _index_end(snapshot: Snapshot) -> int:
    """The store timestamp of the last message in the index, epoch ms."""
    return max((file.end_timestamp for file in snapshot.index_files if file.keys), default=0)


def _sane(snapshot: Snapshot, before: Mapping[str, int]) -> dict[str, int]:
    """The fields: those before where they fit the log, else its own."""
    log, fields = snapshot.log_range, dict(before)
    last = log.last_store_timestamp or 0
    index_end = _index_end(snapshot)
    for name in CHECKPOINT_TIMES:
        is_index = name == _INDEX
        if not (0 if is_index else 1) <= fields.get(name, -1) <= last:
            fields[name] = min(index_end, last) if is_index else last
    for name in ("master_flushed_offset", "confirm_physical_offset"):
        fields[name] = min(max(fields.get(name, 0), 0), log.max_offset)
    version = snapshot.version
    if fields.get("logics_physical_offset", 0) or (version and version >= CHECKPOINT_HAS_LOGICS_OFFSET):
        fields["logics_physical_offset"] = log.last_record_offset or 0
    return fields


_LOG_STRAYS = frozenset({"commitlog.stray", "commitlog.stray-directory"})
_QUEUE_STRAY, _WRONG_KIND = "consumequeue.stray", "store.wrong-kind"
_EMPTY, FILE_SIZE = "commitlog.empty-file", "commitlog.file-size"

BEFORE_REBUILDS = _LOG_STRAYS | FIELD_CODES | (NAME_CODES - {"commitlog.gap"})
BEFORE_REBUILDS |= {_QUEUE_STRAY, _WRONG_KIND, _EMPTY, FILE_SIZE, _CODE}
"""Codes whose changes must be in place before a rebuild reads the log, and before the log is judged again."""


def resized(name: str, file: MappedFile, size: int, codes: frozenset[str], unit_size: int = 1) -> Resized:
    """A file that is filled up, or rid of zeros; a unit of `unit_size` bytes that is not whole goes, too."""
    what, lost = f"{name} is cut from {file.size} to {size} bytes: only zeros follow", None
    if file.size < size:
        what = f"{name} is filled up with zeros from {file.size} to {size} bytes"
    if file.size <= size:
        lost = f"what {name} had after its first {file.size} bytes, unless it is restored first"
    kept = min(file.size - file.size % unit_size, size)
    return Resized(codes=codes, what=what, lost=lost, name=name, path=file.path, kept=kept, new_size=size)


def log_file_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Change]:
    """The changes for files that stand wrongly in the store, for the timer's files and for the checkpoint.

    One after the other, each judged by a verification once the one before is done: sizes, names, the rest. Strays go
    with the first, for nothing is judged by them.
    While something cannot be read, nothing is judged by contents. A rebuild of all queues writes the checkpoint itself.
    """
    codes = codes_of(findings)
    strays = [*_strays(snapshot, findings, codes), *right_fields(snapshot, findings)]
    empty = [*_empty_files(snapshot)] if _EMPTY in codes else []
    if codes & UNREADABLE:
        return [*strays, *empty]
    resized = [*_resized(snapshot)] if FILE_SIZE in codes else []
    names_of_resized = {change.name for change in resized}
    blanks = (each for each in blank_changes(snapshot, findings) if each.name not in names_of_resized)  # judged again
    sizes = [*empty, *resized, *blanks]
    names = [] if sizes else name_changes(snapshot, codes)
    first = [*strays, *sizes, *names]
    return first or [
        *timer_changes(snapshot, findings),
        *compaction_changes(snapshot, findings),
        *tiered_changes(snapshot, findings),
        *checkpoint_changes(snapshot, codes),
    ]


def expected_size(snapshot: Snapshot) -> int | None:
    """The size that every commit log file should have, bytes; None where files and broker.conf contradict each other.

    A size that most files share is right, and a broker.conf that says another one is wrong. A single file that was cut
    shows no size.
    """
    usual = snapshot.right_log_file_size
    configured = snapshot.store.conf.size(*LOG_FILE_SIZE)
    return usual if usual and configured in (None, usual) else None


def empty_files(log: MappedFiles) -> tuple[MappedFile, ...]:
    """The files of 0 bytes; none where all of a log that goes on are empty."""
    empty = tuple(file for file in log.files if not file.size)
    return empty if len(empty) < len(log.files) or log.files[0].start_offset == 0 else ()


def _strays(snapshot: Snapshot, findings: Sequence[Finding], codes: frozenset[str]) -> Iterator[Change]:
    store = snapshot.store
    if codes & _LOG_STRAYS:
        yield from _taken_out(snapshot, [stray.path for stray in snapshot.log.strays], _LOG_STRAYS & codes)
    in_queues = [stray.path for queue in snapshot.queues for stray in queue.files.strays]
    is_in_the_way = "consumequeue.missing-queue" in codes
    told = [
        finding for finding in findings
        if finding.code == _QUEUE_STRAY and (finding.severity != "info" or is_in_the_way)
    ]  # fmt: skip
    if told:
        paths = [*in_queues, *(store.root / finding.file for finding in told if finding.file)]
        yield from _taken_out(snapshot, paths, frozenset({_QUEUE_STRAY}))
    wrong = [store.root / finding.file for finding in findings if finding.code == _WRONG_KIND and finding.file]
    yield from _taken_out(snapshot, wrong, frozenset({_WRONG_KIND}))


def _taken_out(snapshot: Snapshot, paths: Sequence[Path], codes: frozenset[str]) -> Iterator[Change]:
    names = names_in_store(snapshot.store, paths)
    if names:
        which = names[0] if len(names) == 1 else f"{len(names)} entries that do not belong there"
        yield TakenOut(codes=codes, what=f"{which}: {KEPT}", details=names)


def _empty_files(snapshot: Snapshot) -> Iterator[Change]:
    empty, last = empty_files(snapshot.log), snapshot.log.files[-1]
    names = names_in_store(snapshot.store, [file.path for file in empty])
    if names:
        what = f"{counted(len(names), 'file')} of 0 bytes of the log: removed, because it is empty"
        held = [file.start_offset for file in empty if file != last]  # the last one may never have held anything
        missing = tuple(name for start in held for name in missing_files(snapshot, start, start + 1))
        yield TakenOut(codes=frozenset({_EMPTY}), what=what, details=names, missing=missing)


def _resized(snapshot: Snapshot) -> Iterator[Resized]:
    size = expected_size(snapshot)
    for file in snapshot.log.files if size else ():
        name = name_in_store(snapshot.store, file.path)
        if name and size and is_resizable(file, size):
            yield resized(name, file, size, frozenset({FILE_SIZE}))


def is_resizable(file: MappedFile, size: int) -> bool:
    """Whether a file is short, so that no start takes it as it is, or has only zeros beyond the size of a whole one."""
    return 0 < file.size < size or (file.size > size and zero_from(file, size))
