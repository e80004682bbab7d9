"""A log that an ordinary broker reads, of a DLedger log or of one with several paths: planned by reading only.

An entry is a header of 48 bytes and one message (`DLedgerCommitLog`), which stands without it in the new log. Where
entries are lost, dummy records take their room, as after a salvage: so queues keep the offsets of all other messages.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import ChangedError, UnsupportedError, WrongKindError
from rmqtool.base.files import UNLIMITED, Progress, ReadPolicy, no_progress
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.base.new_files import copy_file, new_file, set_time, write_all
from rmqtool.findings.finding import Finding, counted
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.formats.message import BLANK_SIZE, build_blank
from rmqtool.salvage.carve import Sources
from rmqtool.salvage.choose import go_on, without_single_changes
from rmqtool.salvage.layout import MEANINGS, MOST_LISTED, Layout, Ranges, Total, meets
from rmqtool.salvage.new_store import Carried, find_carried
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.salvage.selection import Piece, runs_of
from rmqtool.salvage.write_log import Filling, MovedLog, Offsets, Placement, Taken, write_moved
from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.frames import RecordRun, entry_headers
from rmqtool.scan.inert_records import filling
from rmqtool.scan.reader import scan_files
from rmqtool.store.commit_log import log_range
from rmqtool.store.dledger_node import committed_index
from rmqtool.store.lock import lock_holder
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, layout_of_queues
from rmqtool.transaction.losses import MAX_LISTED, DroppedUnits, Loss, LostExtent, recorded_losses

SALVAGE = "salvage"
_NEUTRAL = "rebuild.neutral-units"
_SEEN_IN_GAPS = ("damaged", "unreadable")


def losses_of(
    plan: SalvagePlan,
    derived: Loss | None,
    findings: Sequence[Finding],
    sources: Sequence[Store],
    filled: Sequence[tuple[int, int]] | None = None,
) -> list[Loss]:
    """What the new store lacks: by this salvage, and by what is on record in the sources and was not filled.

    `derived` and `findings` are what deriving its queues has shown; `filled` are the places of dummy records in a new
    log of messages that have moved.
    """
    recorded = [*_of_sources(plan, sources)]
    if filled is not None:  # old places are other ones there
        recorded = [replace(loss, extents=()) for loss in recorded]
    known = {(extent.physical_offset, extent.size) for loss in recorded for extent in loss.extents}
    gaps = [gap for gap in plan.layout.gaps if (gap.physical_offset, gap.size) not in known]
    places = [(gap.physical_offset, gap.size) for gap in gaps] if filled is None else filled
    behind = derived or Loss(SALVAGE, int(time.time() * 1000))
    loss = Loss(
        SALVAGE,
        behind.time,
        sum(gap.size for gap in gaps),
        tuple(LostExtent(offset, size, "missing") for offset, size in places[:MAX_LISTED]),
        behind.dropped,
        behind.files,
        lost_messages(behind.dropped, findings),
        (*behind.proofs, *_left(plan)),
    )
    return [*recorded, *(() if loss.is_none else (loss,))]


def lost_messages(dropped: Iterable[DroppedUnits], findings: Sequence[Finding]) -> dict[str, int]:
    """Lost messages by topic as far as the queues of the source show."""
    counts: Counter[str] = Counter()
    for each in dropped:
        counts[each.topic] += each.units
    for finding in findings:
        if finding.code == _NEUTRAL and finding.topic:
            counts[finding.topic] += finding.count
    return dict(sorted(counts.items()))


def _left(plan: SalvagePlan) -> Iterator[str]:
    """What was left behind beside the gaps."""
    if plan.committed_missing:
        yield f"missing: {counted(plan.committed_missing, 'committed message')}, by the Raft indices of the entries"
    for reason, total in sorted(plan.left.totals.items()):
        if reason in ("not-a-record", "contradicted") or (reason in _SEEN_IN_GAPS and plan.layout.gaps):
            continue
        messages = f", {counted(total.records, 'message')}" if total.records else ""
        yield f"not copied: {counted(total.size, 'byte')}{messages}: {MEANINGS[reason]}"


def _of_sources(plan: SalvagePlan, sources: Sequence[Store]) -> Iterator[Loss]:
    """The losses on record, but for those of bytes that this salvage has found elsewhere."""
    pairs = [(gap.physical_offset, gap.physical_offset + gap.size) for gap in plan.layout.gaps]
    gaps: Ranges = np.array(pairs, np.int64).reshape(-1, 2)
    for source in sources:
        for recorded in recorded_losses(source.root):
            loss = recorded.loss
            extents = (
                [(each.physical_offset, each.physical_offset + each.size) for each in loss.extents] if loss else []
            )
            if loss and (not extents or any(meets(gaps, *each) for each in extents)):
                yield loss


LeftReason = Literal["uncommitted", "stale", "damaged"]
LEFT_MEANINGS: dict[LeftReason, str] = {
    "uncommitted": "after the committed index of the DLedger checkpoint: another node may have other messages there",
    "stale": "older entries after newer ones, left where the log was cut",
    "damaged": "no entry with an intact message",
}
_KINDS: tuple[LeftReason | None, ...] = (None, "uncommitted", "stale")
# Of an entry; `begin` and `end` of its message in the log, `end` with the next entry's header, bytes, `time` epoch ms.
_STEP_DTYPE = np.dtype([("term", "i8"), ("index", "i8"), ("begin", "i8"), ("end", "i8"), ("time", "i8")])


class LeftOut(NamedTuple):
    """An extent of the DLedger log that is not taken: physical offset of its first message or byte, and bytes."""

    reason: LeftReason
    physical_offset: int
    size: int
    messages: int = 0


class EntryWalk:
    """One pass over the entries of `files`; runs are for use before the next step.

    `committed` is the Raft index up to which entries are taken, None for all. The new log has files of `file_size` from
    `start` on. `missing` is how many committed entries are nowhere, once the pass is over.
    """

    def __init__(self, files: Sequence[MappedFile], committed: int | None, start: int, file_size: int) -> None:
        self.missing = 0
        self._files = files
        self._committed = committed
        self._placement = Placement(start, file_size)

    def pieces(self, reading: ReadPolicy = UNLIMITED) -> Iterator[Taken | Filling | LeftOut]:
        """What is taken, what fills the room of lost entries, and what is left out, in the order of the log."""
        order, lost, timestamp = _RaftOrder(self._committed), 0, 0
        for event in scan_files(self._files, reading=reading):
            if isinstance(event, Blank):
                continue
            if not isinstance(event, RecordRun):
                lost += event.size
                yield LeftOut("damaged", event.physical_offset, event.size)
                continue
            for rows, reason in _groups(order.kinds(event)):
                run = event[rows]
                if reason:
                    yield LeftOut(reason, run.physical_offset, run.size, len(run))
                    continue
                if lost and timestamp:  # nothing has to fill the room before the first message
                    yield self._placement.fill(lost, timestamp)
                lost, timestamp = 0, int(run.headers.field("store_timestamp")[-1])
                yield Taken(run, self._placement.place(run.message_sizes))
        self.missing = order.missing


class _RaftOrder:
    """Entries by their headers: terms never go down in a Raft log, and each index is there once."""

    def __init__(self, committed: int | None) -> None:
        self._committed = committed
        self._gaps = 0
        self._last = np.zeros(0, _STEP_DTYPE)  # the last two entries that are no stale ones

    def kinds(self, run: RecordRun) -> NDArray[np.intp]:
        """The number in _KINDS of each entry of a run."""
        entries = np.append(self._last, _steps(run))
        _settle(entries)
        known, entries = entries[: len(self._last)], entries[len(self._last) :]
        terms, indices = entries["term"], entries["index"]
        term, index = (int(known["term"][-1]), int(known["index"][-1])) if len(known) else (-1, -1)
        in_order = np.flatnonzero(terms >= np.maximum.accumulate(np.append(term, terms))[:-1])
        rising = indices[in_order] > np.maximum.accumulate(np.append(index, indices[in_order]))[:-1]
        fresh = in_order[rising]
        kinds = np.full(len(run), _KINDS.index("stale"), np.intp)
        kinds[fresh] = 0 if self._committed is None else indices[fresh] > self._committed
        steps = np.append(known["index"][-1:], indices[fresh])
        self._gaps += sum(self._gap(before, after) for before, after in _jumps(steps))
        self._last = np.append(known, entries[fresh])[-2:]
        return kinds

    @property
    def missing(self) -> int:
        """Committed entries that were not met, from the first that was met on."""
        last = int(self._last["index"][-1]) if len(self._last) else -1
        return self._gaps + (0 if self._committed is None else max(0, self._committed - last))

    def _gap(self, before: int, after: int) -> int:
        """Committed entries between two that follow each other."""
        last = after - 1 if self._committed is None else min(after - 1, self._committed)
        return max(0, last - before)


def _steps(run: RecordRun) -> NDArray[np.void]:
    headers = entry_headers(run)
    steps = np.empty(len(run), _STEP_DTYPE)
    steps["term"], steps["index"], steps["begin"] = headers["term"], headers["index"], run.physical_offsets
    steps["end"] = run.physical_offsets + run.message_sizes + ENTRY_HEADER_SIZE
    steps["time"] = run.headers.field("store_timestamp")
    return steps


def _settle(entries: NDArray[np.void]) -> None:
    """Give entries whose terms or indices are damaged those that they must have."""
    before, behind = entries[:-1], entries[1:]
    _settle_indices(entries["index"], behind["begin"] == before["end"])
    if (behind["term"] < before["term"]).any():
        rooms, steps_back = behind["begin"] - before["end"], before["time"] - behind["time"]
        follow = go_on(rooms, behind["index"] - before["index"], steps_back)
        entries["term"] = without_single_changes(entries["term"], follow)


def _settle_indices(indices: Offsets, touches: NDArray[np.bool_]) -> None:
    """A single index is damaged where the next one goes on with that before; `touches` has all entries but the first.

    So is the first, where the next two go on.
    """
    goes_on = touches[1:] & touches[:-1] & (indices[2:] == indices[:-2] + 2)
    indices[1:-1][goes_on] = indices[:-2][goes_on] + 1
    if touches[:2].sum() == 2 and indices[2] == indices[1] + 1:
        indices[0] = indices[1] - 1


def _jumps(indices: Offsets) -> Iterator[tuple[int, int]]:
    for row in np.flatnonzero(np.diff(indices) != 1).tolist():
        yield int(indices[row]), int(indices[row + 1])


def _groups(kinds: NDArray[np.intp]) -> Iterator[tuple[slice, LeftReason | None]]:
    """Rows of one kind that follow each other."""
    edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
    for start, stop in pairwise(edges):
        yield slice(start, stop), _KINDS[int(kinds[start])]


_MORE_OF_A_MESSAGE = 60  # bytes of units and keys


@dataclass(frozen=True)
class Conversion:
    """What is converted: whole files of a plain log first, then the entries of a DLedger log.

    `committed` is the Raft index up to which entries are taken, None for all.
    """

    store: Store
    plain: Sequence[MappedFile]
    entries: Sequence[MappedFile]
    file_size: int
    committed: int | None

    @property
    def start(self) -> int:
        """Physical offset at which the messages of entries begin in the new log."""
        return self.plain[-1].start_offset + self.file_size if self.plain else self.entries[0].start_offset

    @property
    def min_offset(self) -> int:
        """Physical offset at which the new log begins."""
        return self.plain[0].start_offset if self.plain else self.start

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(file.size for file in (*self.plain, *self.entries))

    def walk(self) -> EntryWalk:
        """A pass over the entries."""
        return EntryWalk(self.entries, self.committed, self.start, self.file_size)


@dataclass
class ConversionPlan:
    """What a conversion takes and leaves; offsets are those of the new log, timestamps epoch ms."""

    conversion: Conversion
    messages: int = 0
    bytes: int = 0
    end: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    missing: int = 0  # committed entries that are nowhere
    wrong_bodies: int = 0  # messages of entries whose body is not what was stored, by its CRC
    filled: list[tuple[int, int]] = field(default_factory=list)  # the first dummy records: physical offsets and sizes
    filled_bytes: int = 0
    left: list[LeftOut] = field(default_factory=list)
    totals: dict[LeftReason, Total] = field(default_factory=lambda: defaultdict(Total))

    @property
    def is_lossy(self) -> bool:
        """Whether messages that were committed are not there; those with a wrong body are, as they are."""
        return bool(self.missing) or "damaged" in self.totals

    @property
    def files(self) -> int:
        """Files of the new log."""
        return (self.end - self.conversion.min_offset + self.conversion.file_size - 1) // self.conversion.file_size

    @property
    def needed(self) -> int:
        """About how many bytes the new store takes: log, queues and index."""
        plain = sum(file.size for file in self.conversion.plain)
        return plain + self.bytes + self.filled_bytes + _MORE_OF_A_MESSAGE * self.messages

    def leave(self, extent: LeftOut) -> None:
        """Count what is left out."""
        self.left += [extent] if len(self.left) < MOST_LISTED else []
        self.totals[extent.reason].add(extent.size, extent.messages)

    def fill(self, filling: Filling) -> None:
        """Count dummy records."""
        self.filled_bytes += int(filling.sizes.sum())
        self.filled += filling.listed(MOST_LISTED - len(self.filled))


def conversion_of(store: Store, *, with_uncommitted: bool) -> Conversion:
    """What is to be converted; raises UnsupportedError for a store that is an ordinary one."""
    committed, log = None, store.commit_log()
    if store.dledger_directory:
        committed = None if with_uncommitted else committed_index(store.dledger_directory)
    elif len(store.commit_log_directories) <= 1:
        raise UnsupportedError("a plain store already: there is nothing to convert", file=store.root)
    if not log.files:
        raise UnsupportedError("the log has no file: there is nothing to convert", file=store.root)
    plain = [file for file in log.files if not file.header_size]
    entries = [file for file in log.files if file.header_size]
    of_plain = MappedFiles(tuple(plain)).file_size
    file_size = of_plain or store.conf.size("mappedFileSizeCommitLog") or log.file_size
    _require_whole((*plain, *entries[:1]), file_size)
    return Conversion(store, plain, entries, file_size, committed)


def _require_whole(files: Sequence[MappedFile], file_size: int) -> None:
    """Raise WrongKindError unless files that are copied as they are, and the first with entries, make one log."""
    for before, after in pairwise(files):
        if before.size != file_size:
            raise WrongKindError(f"a log file of {before.size} bytes, others have {file_size}", file=before.path)
        if before.start_offset == after.start_offset:
            raise WrongKindError(f"the same log file is in {before.path.parent}, too", file=after.path)
        if before.end_offset != after.start_offset:
            raise WrongKindError(f"the log file that begins at {before.end_offset} is missing", file=after.path)


def plan_conversion(
    conversion: Conversion, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> ConversionPlan:
    """Read all entries, and say what becomes of them."""
    plan = ConversionPlan(conversion, end=conversion.start)
    walk, start = conversion.walk(), conversion.entries[0].start_offset if conversion.entries else 0
    for piece in walk.pieces(reading):
        if isinstance(piece, LeftOut):
            plan.leave(piece)
            continue
        if isinstance(piece, Filling):
            plan.fill(piece)
            continue
        stamps = piece.run.headers.field("store_timestamp")
        plan.first_timestamp = plan.first_timestamp or int(stamps[0])
        plan.last_timestamp = int(stamps[-1])
        plan.messages += len(piece.run)
        plan.wrong_bodies += int(piece.run.wrong_bodies.sum())
        plan.bytes += int(piece.run.message_sizes.sum())
        plan.end = int(piece.offsets[-1] + piece.run.message_sizes[-1])
        progress(piece.run.physical_offset + piece.run.size - start)
    plan.missing = walk.missing
    return plan


COMMAND = "convert"
_BY_PHYSICAL_OFFSET = ("timerwheel", TIMER_LOG, f"{CONFIG}/{TIMER_CHECK}", SIDE_STORE)
"""What leads to messages by physical offset: a broker makes it again where it finds none of them."""


def require_stopped(store: Store) -> None:
    """Raise StoreInUseError where a broker runs on the store."""
    holder = lock_holder(store.root)
    if holder is not None:
        raise holder.refusal(store.root)


def require_messages(plan: ConversionPlan) -> None:
    """Raise UnsupportedError where no message is taken."""
    if not (plan.messages or plan.conversion.plain):
        hint = "--uncommitted also takes those after the committed index" if "uncommitted" in plan.totals else None
        raise UnsupportedError("there is no message to take", file=plan.conversion.store.root, hint=hint)


def as_ordinary(store: Store) -> Store:
    """The store as the rebuild of the new log sees it; raises UnsupportedError for queues that it cannot derive."""
    layout = layout_of_queues(store.root)
    if layout == "rocksdb" and store.dledger_directory:
        message = "a DLedger store with its queues in RocksDB, which cannot be written for a log whose offsets change"
        raise UnsupportedError(message, file=store.root)
    return replace(store, layout=layout, older_log_directories=(), dledger_directory=None)


def carried_with(store: Store) -> tuple[list[Carried], list[str]]:
    """What is carried over, and the names of what is not, for its physical offsets are no longer true."""
    carried = find_carried([store], store)
    return without_offsets(carried) if store.dledger_directory else (carried, [])


def without_offsets(carried: Iterable[Carried]) -> tuple[list[Carried], list[str]]:
    """What stays true where messages move, and the names of what does not, for it holds physical offsets."""
    found, left = list[Carried](), list[str]()
    for each in carried:
        if each.name.removesuffix(".bak") in _BY_PHYSICAL_OFFSET:
            left.append(each.name)
        else:
            found.append(each)
    return found, left


def loss_of(plan: ConversionPlan, findings: Sequence[Finding]) -> Loss | None:
    """What the new store lacks, for its record; `findings` are those of the rebuild."""
    if not plan.is_lossy:
        return None
    extents = tuple(LostExtent(offset, size, "missing") for offset, size in plan.filled)
    messages, proofs = lost_messages((), findings), tuple(_proofs(plan))
    return Loss(COMMAND, int(time.time() * 1000), plan.filled_bytes, extents, messages=messages, proofs=proofs)


def _proofs(plan: ConversionPlan) -> Iterator[str]:
    if plan.missing:
        yield f"missing: {counted(plan.missing, 'committed message')}, by the Raft indices of the entries"
    for reason, total in sorted(plan.totals.items()):
        yield f"left out: {counted(total.size, 'byte')}, {counted(total.records, 'message')}: {LEFT_MEANINGS[reason]}"


def write_conversion(
    plan: ConversionPlan, directory: Path, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> None:
    """Write the new log into `directory`; modification times are the store times of the files' last messages.

    Raises ChangedError where the entries are not those of the plan any more.
    """
    conversion, done = plan.conversion, 0
    directory.mkdir(parents=True, exist_ok=True)
    for file in conversion.plain:
        _copy(file, directory / file.path.name, reading)
        done += file.size
        progress(done)
    if conversion.plain and conversion.entries:
        _end_plain(conversion.plain[-1], directory / conversion.plain[-1].path.name, reading)
    pieces = (piece for piece in conversion.walk().pieces(reading) if not isinstance(piece, LeftOut))
    moved = write_moved(
        pieces, directory, conversion.start, conversion.file_size, lambda entries: progress(done + entries)
    )
    if (moved.messages, moved.end) != (plan.messages, plan.end):
        raise ChangedError("the entries have changed while they were read", file=conversion.store.root)


def _copy(file: MappedFile, to: Path, reading: ReadPolicy) -> None:
    """Copy a plain log file; its modification time becomes the store time of its last message."""
    copy_file(file.path, to)
    timestamp = log_range([file], reading=reading).last_store_timestamp
    if timestamp:
        with new_file(to, file.size) as descriptor:
            set_time(descriptor, timestamp)


def _end_plain(file: MappedFile, to: Path, reading: ReadPolicy) -> None:
    """End the last plain file with a blank where it has none: a broker would never read on after it."""
    end, timestamp, is_ended, is_damaged = file.start_offset, 0, False, False
    for event in scan_files([file], reading=reading):
        is_ended = isinstance(event, Blank)
        is_damaged |= isinstance(event, Damage)
        if isinstance(event, RecordRun):
            end, is_damaged = event.physical_offset + event.size, False
            timestamp = int(event.headers.field("store_timestamp")[-1])
    rest = file.end_offset - end
    if is_ended or rest < BLANK_SIZE:
        return
    is_lost = is_damaged and timestamp
    parts = filling(end, rest, timestamp, ends_file=True) if is_lost else [(end, build_blank(rest))]
    with new_file(to, file.size) as descriptor:
        for offset, data in parts:
            write_all(descriptor, data, offset - file.start_offset)
        set_time(descriptor, timestamp or os.stat(file.path).st_mtime_ns // 1_000_000)


def write_saved(
    plan: SalvagePlan, directory: Path, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> MovedLog:
    """Write the new log into `directory`; it begins where the first of the old files did.

    Raises ChangedError where a source is not what was planned any more, WrongKindError for a message that no file of
    the new log can hold, OSError for what cannot be written.
    """
    layout = plan.layout
    with Sources(plan.inputs.files, layout.file_size, reading) as sources:
        return write_moved(_pieces(layout, sources), directory, begin_of_moved(layout), layout.file_size, progress)


def begin_of_moved(layout: Layout) -> int:
    """Physical offset at which the new log begins, bytes."""
    return layout.files[0].start_offset if layout.files else 0


def _pieces(layout: Layout, sources: Sources) -> Iterator[Taken | Filling]:
    placement, copies = Placement(begin_of_moved(layout), layout.file_size), layout.copies
    gaps = iter(layout.gaps)
    waiting = next(gaps, None)
    columns = copies[["physical_offset", "position", "size", "header_size"]].tolist()
    is_plain = not columns[0][-1]
    for number, (offset, position, size, header_size) in enumerate(columns):
        while waiting is not None and waiting.physical_offset < offset:
            yield placement.fill(waiting.size, waiting.timestamp)
            waiting = next(gaps, None)
        if is_plain and header_size:  # from before DLedger: a broker ends that log with a blank
            placement.next_file()
        is_plain = not header_size
        for _, run in runs_of(copies, Piece(number, position, size), sources):
            yield Taken(run, placement.place(run.message_sizes))
