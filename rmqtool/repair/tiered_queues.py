"""A queue of tiered storage put right: records as the commit log has them, units written again from the tier's log.

A real broker serves then what it served before the damage; units that are written again are byte for byte its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile, read_at
from rmqtool.broker.copied_records import differing_in_run
from rmqtool.broker.damaged_tags import damaged_tags
from rmqtool.clients.losses import BesideLog
from rmqtool.findings.finding import counted
from rmqtool.formats.consume_queue import UNIT_DTYPE, UNIT_SIZE
from rmqtool.formats.tiered import CODA_MAGIC, CODA_SIZE, TieredCoda, segment_name
from rmqtool.repair.change import KEPT, Change, Resized, TakenOut, name_in_store
from rmqtool.scan.block import Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.compaction import copies_for
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import DELETED, QUEUE_KINDS, SegmentKind, Tier, TieredQueue, are_of, built_units, units_at
from rmqtool.store.unit_files import open_units
from rmqtool.transaction.transaction import Transaction

SEGMENT, UNIT, RECORD, DESTROYED = "tiered.segment", "tiered.unit", "tiered.record", "tiered.destroyed"
OF_QUEUES = frozenset({SEGMENT, UNIT, RECORD, DESTROYED})

_PIECE = 1 << 16  # units that are read at once
_MOST_CONTRADICTIONS = 1 << 12  # of a piece, which are looked up one by one
_OUTSIDE = (
    "the tier is outside the store, in a linked directory or on another disk, where a repair cannot replace files: "
    "copy {path} into the store, repair that copy (--tiered-path), and put it back while no broker runs"
)
_LOST = (
    "the messages of these segments are no longer in the commit log: restore the segments from a copy of the tier. "
    "Without one, consumers do not get these messages"
)
_UNITS_LOST = (
    "neither the tier's log nor the commit log has the messages of all queue entries: restore the segments from a copy "
    "of the tier, or export what can be read"
)
_CUT_TOO_FAR = (
    "the remaining tier would end before the local queue begins, and the first dispatch would delete it: do not start "
    "a broker with messageStorePlugIn before you have restored it from a copy of the tier, or exported it"
)


@dataclass(frozen=True)
class Segment:
    """A segment as it should be, and the file that has its bytes, if any; both sizes in bytes.

    `end_timestamp` of one that was sealed ends it, up to 5.2.0.
    """

    base: int
    size: int
    file: MappedFile | None
    is_named: bool = True
    end_timestamp: int | None = None

    @property
    def stop(self) -> int:
        """Where it should end, bytes in its flat file."""
        return self.base + self.size

    @property
    def held(self) -> int:
        """How much of it is there, bytes."""
        return min(self.file.size, self.size) if self.file else 0

    @property
    def coda(self) -> tuple[int, int] | None:
        """Where its coda begins and ends, bytes in its flat file."""
        return None if self.end_timestamp is None else (self.stop - CODA_SIZE, self.stop)

    @property
    def is_right(self) -> bool:
        """Whether a file of its name and size is there."""
        return self.file is not None and self.file.size == self.size and self.is_named


def segments_of(tier: Tier, queue: TieredQueue, kind: SegmentKind) -> list[Segment]:
    """The segments of a flat file as metadata and files show them together: each ends where the next begins."""
    rows = {base: row for base, row in tier.rows(queue, kind).items() if row.status != DELETED}
    files = {file.start_offset: file for file in queue.files[kind].files}
    bases = sorted(rows.keys() | files.keys())
    segments = []
    for number, base in enumerate(bases):
        row, file = rows.get(base), files.get(base)
        known = max(row.size if row else 0, file.size if file else 0)
        size = bases[number + 1] - base if number + 1 < len(bases) else known
        is_named = True
        if file is None and kind == "COMMIT_LOG" and (file := _renamed(queue, base, size)):
            is_named = False
        end = row.end_timestamp if row and row.status == _SEALED and kind == "COMMIT_LOG" else None
        segments.append(Segment(base, size, file, is_named, end))
    if len(segments) > 1 and segments[-1].file is None and not segments[-1].size:
        segments.pop()
    return segments


_SEALED = 1  # FileSegmentMetadata.STATUS_SEALED, up to 5.2.0


def _renamed(queue: TieredQueue, base: int, size: int) -> MappedFile | None:
    """The segment of a log under another name: its first record says where it belongs."""
    for stray in queue.files["COMMIT_LOG"].strays:
        if stray.kind == "name" and stray.path.stat().st_size == size:
            file = MappedFile(stray.path, base, size)
            if single_record_at([file], base):
                return file
    return None


@dataclass
class _Log:
    """What a scan of the log has found: damage, and the units of its records, by queue offset from `first` on.

    `right` are units that lead to a record of theirs, `built` those that could be written again. In `wrong_records`
    body or properties are damaged, and the units that lead there are right.
    """

    first: int
    damages: list[tuple[int, int]] = field(default_factory=list)
    wrong_records: list[tuple[int, int]] = field(default_factory=list)
    built: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    right: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    records: int = 0

    def note(self, numbers: NDArray[np.int64], is_right: NDArray[np.bool_], most: int) -> None:
        """Note the units of a run; `most` may be there at all, so that a damaged queue offset takes no memory."""
        self.records += len(numbers)
        rows = numbers - self.first
        kept = (rows >= 0) & (rows < most + self.records)
        rows, is_right = rows[kept], is_right[kept]
        if len(rows) and int(rows.max()) >= len(self.built):
            grown = np.zeros(int(rows.max()) + 1 + len(self.built) // 2, np.bool_)
            grown[: len(self.built)] = self.built
            self.built = grown
            self.right = np.concatenate([self.right, np.zeros(len(grown) - len(self.right), np.bool_)])
        self.built[rows] = True
        self.right[rows[is_right]] = True

    def are_right(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which queue offsets have a unit that leads to their record."""
        rows = numbers - self.first
        is_known = (rows >= 0) & (rows < len(self.right))
        found = np.zeros(len(numbers), np.bool_)
        found[is_known] = self.right[rows[is_known]]
        return found

    def has(self, mask: NDArray[np.bool_], start: int, stop: int) -> NDArray[np.bool_]:
        """A mask of queue offsets from `start` to before `stop`; False beyond what was noted."""
        found = np.zeros(max(0, stop - start), np.bool_)
        there = mask[max(0, start - self.first) : max(0, stop - self.first)]
        found[: len(there)] = there
        return found


def runs_of(
    log: Sequence[MappedFile], queue: TieredQueue, snapshot: Snapshot
) -> Iterator[tuple[RecordRun, NDArray[np.intp]] | Damage]:
    """The records of a log with which of them are of its queue, and damage."""
    for event in scan_files(log, reading=snapshot.reading):
        if isinstance(event, RecordRun):
            yield event, np.flatnonzero(are_of(event, queue.topic, queue.queue_id))
        elif isinstance(event, Damage):
            yield event


class QueueRepair:
    """The changes for one queue, the sizes that its segments have then, and why some of it stays as it is.

    `sizes` has the segments that a broker should know, by where they begin; None where all stays as it is.
    """

    def __init__(self, snapshot: Snapshot, tier: Tier, queue: TieredQueue, codes: frozenset[str]) -> None:
        self._snapshot, self._tier, self._queue, self._codes = snapshot, tier, queue, codes
        self.changes: list[Change] = []
        self.refusals: list[tuple[str, str, tuple[str, ...]]] = []  # code, why, files that are needed
        self.lost = 0
        self.missing: list[str] = []  # segments at the beginning of the log that are gone
        self._wanted = {kind: segments_of(tier, queue, kind) for kind in QUEUE_KINDS}
        self.sizes: dict[SegmentKind, dict[int, int]] | None = None
        if self._is_reachable():
            self._plan()
        elif self._only_named():
            self.sizes = {kind: {each.base: each.size for each in self._wanted[kind]} for kind in QUEUE_KINDS}
        else:
            self._refuse(SEGMENT, _OUTSIDE.format(path=tier.directory))

    @property
    def saved(self) -> int:
        """How many messages that only the tier has are served again."""
        lost = self._snapshot.kept.get(BesideLog) or BesideLog()
        count = lost.tiered_by_queue.get((self._queue.topic, self._queue.queue_id), 0)
        return 0 if self.sizes is None or self.refusals else max(0, count - self.lost)

    def _refuse(self, code: str, why: str, needed: Sequence[str] = ()) -> None:
        found = code if code in self._codes else min(self._codes & OF_QUEUES)
        self.refusals.append((found, why, tuple(needed)))

    def _name(self, kind: SegmentKind, base: int) -> str:
        return str(name_in_store(self._snapshot.store, self._path(kind, base)))

    def _path(self, kind: SegmentKind, base: int) -> Path:
        return self._queue.directory / kind / segment_name(base)

    def _is_reachable(self) -> bool:
        return all(name_in_store(self._snapshot.store, self._path(kind, 0)) for kind in QUEUE_KINDS)

    def _only_named(self) -> bool:
        """Whether all segments are whole, and only the metadata are not."""
        whole = all(each.held == each.size for kind in QUEUE_KINDS for each in self._wanted[kind])
        return whole and not self._codes & {UNIT, RECORD} and not any(
            each.size % UNIT_SIZE for each in self._wanted["CONSUME_QUEUE"])  # fmt: skip

    @cached_property
    def _local_begin(self) -> int:
        """Where the local queue begins: a tier that ends before is deleted."""
        local = self._snapshot.queue(self._queue.topic, self._queue.queue_id)
        return local.range.min_offset if local else 0

    def _plan(self) -> None:
        log = self._read_log()
        segments = self._log_segments(log)
        if segments is None:
            return
        units = self._unit_segments(log, segments[-1].stop if segments else 0)
        if units is None:
            self.changes.clear()  # sizes of the log stay with those of the metadata
            return
        self.sizes = {
            "COMMIT_LOG": {each.base: each.size for each in segments},
            "CONSUME_QUEUE": {each.base: each.size for each in units},
        }
        for kind, sizes in self.sizes.items():
            gone = [file.path for file in self._queue.files[kind].files if file.start_offset not in sizes]
            self._take_out(gone, "after the end of the tier's log")
        self._take_out_strays()

    @cached_property
    def _log_files(self) -> list[MappedFile]:
        """What is there of the log, each file up to where it should end."""
        return [each.file.with_size(each.held) for each in self._wanted["COMMIT_LOG"] if each.file]

    def _read_log(self) -> _Log:
        """Scan the log, and compare the units that are there with its records."""
        wanted, units = self._wanted["COMMIT_LOG"], self._wanted["CONSUME_QUEUE"]
        held = sum(each.size for each in units) // UNIT_SIZE
        log = _Log(units[0].base // UNIT_SIZE if units else 0)
        begin, files = wanted[0].base if wanted else 0, self._log_files
        if files and files[0].start_offset > begin:
            log.damages.append((begin, files[0].start_offset))
        with open_units(self._queue.queue, self._snapshot.reading) as stored:
            for event in runs_of(files, self._queue, self._snapshot):
                if isinstance(event, Damage):
                    log.damages.append((event.physical_offset, event.physical_offset + event.size))
                    continue
                run, rows = event
                numbers, built = built_units(run, rows)
                found = units_at(stored, numbers)
                is_damaged = damaged_tags(run, numbers, built, found, stored)
                log.note(numbers, (found == built) | is_damaged, held)
                wrong = run.wrong_bodies | np.isin(run.physical_offsets, built["physical_offset"][is_damaged])
                compared = np.setdiff1d(rows, np.flatnonzero(wrong))
                others = differing_in_run(self._snapshot, self._queue.topic, self._queue.queue_id, run, compared)
                wrong[others.here] = True
                starts = run.physical_offsets[wrong]
                log.wrong_records += zip(starts.tolist(), (starts + run.message_sizes[wrong]).tolist(), strict=True)
        end, stop = (files[-1].end_offset if files else begin), (wanted[-1].stop if wanted else begin)
        if end < stop:
            log.damages.append((end, stop))
        return log

    def _stored(self) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The units that are there piece by piece, each with the queue offset of its first one."""
        with open_units(self._queue.queue, self._snapshot.reading) as units:
            for file in self._queue.units:
                for index in range(0, units.room_of(file), _PIECE):
                    yield file.start_offset // UNIT_SIZE + index, units.units_in(file, index, _PIECE)

    def _copies(self, log: _Log) -> _Copies:
        """The records of the commit log for damage of the tier's log, and where its records contradict their units."""
        parts = np.array(sorted({*log.damages, *log.wrong_records}), np.int64).reshape(-1, 2)
        numbers, found = list[NDArray[np.int64]](), list[NDArray[np.void]]()
        for first, units in self._stored():
            places = units["physical_offset"].astype(np.int64)
            part = np.searchsorted(parts[:, 0], places, side="right") - 1
            is_in = (part >= 0) & (places < parts[part, 1]) if len(parts) else np.zeros(len(units), np.bool_)
            built, right = (log.has(mask, first, first + len(units)) for mask in (log.built, log.right))
            is_in &= ~built | right  # else its record is elsewhere, and the unit is what is wrong
            is_in |= self._contradict(log, first, units, is_in)
            numbers.append(first + np.flatnonzero(is_in & (units["message_size"] > 0)))
            found.append(units[numbers[-1] - first])
        stored = np.frombuffer(b"".join(each.tobytes() for each in found), UNIT_DTYPE)
        every = np.concatenate([np.zeros(0, np.int64), *numbers])
        return _Copies(self._snapshot, self._queue, every, stored)

    def _contradict(
        self, log: _Log, first: int, units: NDArray[np.void], is_known: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which units lead to a record that is not theirs, nor another's, where the commit log has the right one."""
        wrong = np.zeros(len(units), np.bool_)
        is_right = log.has(log.right, first, first + len(units))
        rows = np.flatnonzero(~is_right & ~is_known & (units["message_size"] > 0))[:_MOST_CONTRADICTIONS]
        copies = copies_for(self._snapshot, self._queue.topic, self._queue.queue_id, first + rows, units[rows])
        by_place = {int(units[row]["physical_offset"]): int(row) for row in rows}
        for place, data in copies:
            record = single_record_at(self._log_files, place)
            if record is None or record.number("message_size") != len(data):
                continue  # the unit leads into other records
            other = record.number("queue_offset")
            is_of_other = other != first + by_place[place] and log.has(log.right, other, other + 1).any()
            if not is_of_other and read_at(self._log_files, place, len(data)) != data:
                wrong[by_place[place]] = True
                log.note(np.array([first + by_place[place]]), np.ones(1, np.bool_), len(log.built))
        return wrong

    def _log_segments(self, log: _Log) -> list[Segment] | None:
        """The segments of the log after the repair, whose changes are noted; None where it stays as it is."""
        segments, copies = self._wanted["COMMIT_LOG"], self._copies(log)
        codas = {each.coda for each in segments if each.coda}
        left = [part for damage in log.damages for part in copies.left(*damage) if part not in codas]
        whole = segments
        segments, left = _without_front(segments, left)
        self._note_front(whole[: len(whole) - len(segments)], segments)
        stop = segments[-1].stop if segments else 0
        if left and left[-1][1] == stop and (kept := self._cut_log(log, segments, left[-1][0])) is not None:
            segments, left = kept, left[:-1]
        if lost := [each for each in segments if each.held < each.size and _meets(each, left)]:
            self._refuse(SEGMENT, _LOST, [f"{self._path('COMMIT_LOG', each.base)}" for each in lost])
            return None
        for segment in segments:
            inside = copies.within(segment)
            if inside.places_and_ends or not segment.is_right:
                self._resize(segment, inside)
        if left:
            self._refuse(RECORD, _LOST, sorted({f"{each.file.path}" for each in segments
                                                if each.file and _meets(each, left)}))  # fmt: skip
        return segments

    def _note_front(self, gone: Sequence[Segment], segments: Sequence[Segment]) -> None:
        """Note the messages of segments that are gone, which only the tier had."""
        if gone and segments:
            first = max(self._queue.first_offset_from(segments[0].base), self._queue.first_unit)
            self.lost = max(0, min(first, self._local_begin) - self._queue.first_unit)
            self.missing = [f"{self._path('COMMIT_LOG', each.base)}" for each in gone]

    def _cut_log(self, log: _Log, segments: list[Segment], end: int) -> list[Segment] | None:
        """The segments without what follows `end`; None where the tier would end before the local queue begins."""
        if self._end_of_units(log, end) < min(self._local_begin, self._queue.max_offset):
            self._refuse(SEGMENT, _CUT_TOO_FAR)
            return None
        kept = [each for each in segments if each.base < end] or segments[:1]
        last = kept[-1]
        return [*kept[:-1], Segment(last.base, min(last.size, end - last.base), last.file, last.is_named)]

    def _end_of_units(self, log: _Log, end: int) -> int:
        """The queue offset after the last unit that leads to something before the `end` of the log, bytes."""
        stop = log.first + int(np.flatnonzero(log.built).max(initial=-1)) + 1
        for first, units in self._stored():
            places, sizes = (units[name].astype(np.int64) for name in ("physical_offset", "message_size"))
            begin = self._wanted["COMMIT_LOG"][0].base if self._wanted["COMMIT_LOG"] else 0
            leading = np.flatnonzero((places >= begin) & (sizes > 0) & (places < end) & (sizes <= end - places))
            stop = max(stop, first + int(leading.max(initial=-1)) + 1)
        return stop

    def _resize(self, segment: Segment, copies: _Copies) -> None:
        name, count = self._name("COMMIT_LOG", segment.base), len(copies.places_and_ends)
        what = f"{name}: {segment.size} bytes"
        what += f", {counted(count, 'record')} from the commit log" if count else ""
        what += ", which had another name" if not segment.is_named else ""
        path = segment.file.path if segment.file else None
        self.changes.append(Resized(
            codes=frozenset({SEGMENT, RECORD}), what=what, name=name, path=path, kept=segment.held,
            new_size=segment.size, writes=_Writes(segment, copies),
        ))  # fmt: skip

    def _unit_segments(self, log: _Log, log_end: int) -> list[Segment] | None:
        """The segments of units after the repair; None where some cannot be written."""
        segments = self._wanted["CONSUME_QUEUE"]
        if not segments:
            return segments
        first, stop = segments[0].base // UNIT_SIZE, segments[-1].stop // UNIT_SIZE
        held = np.zeros(stop - first, np.bool_)
        for each in segments:
            held[each.base // UNIT_SIZE - first : (each.base + each.held) // UNIT_SIZE - first] = True
        stop = max(first, min(stop, self._end_of_units(log, log_end)))
        built = log.has(log.built, first, stop)
        lacking = np.flatnonzero(~(built | held[: len(built)]))
        lacking = lacking[lacking >= int(np.argmax(built)) if built.any() else 0]  # those before have expired
        if len(lacking):
            if (lacking != np.arange(lacking[0], stop - first)).any() or first + int(lacking[0]) < self._local_begin:
                self._refuse(UNIT, _UNITS_LOST)
                return None
            stop = first + int(lacking[0])
        if DESTROYED in self._codes:
            more = log.has(log.built, stop, log.first + len(log.built))
            end = stop + (int(np.argmin(more)) if not more.all() else len(more))
            if end < self._local_begin:
                self._refuse(DESTROYED, _CUT_TOO_FAR)
            stop = end if end >= self._local_begin else stop
        return self._written(log, segments, stop)

    def _written(self, log: _Log, segments: Sequence[Segment], stop: int) -> list[Segment]:
        """The segments up to queue offset `stop`, and the change that writes those of them that are not right."""
        kept = [each for each in segments if each.base < stop * UNIT_SIZE] or segments[:1]
        last = kept[-1]
        ended = [*kept[:-1], Segment(last.base, max(0, stop * UNIT_SIZE - last.base), last.file)]
        wrong = []
        for each in ended:
            begin, end = each.base // UNIT_SIZE, each.stop // UNIT_SIZE
            is_wrong = log.has(log.built, begin, end) & ~log.has(log.right, begin, end)
            if not each.is_right or is_wrong.any():
                wrong.append(each)
        if wrong:
            names = tuple(self._name("CONSUME_QUEUE", each.base) for each in wrong)
            count = sum(each.size for each in wrong) // UNIT_SIZE
            what = f"{self._queue.topic} queue {self._queue.queue_id}: {counted(count, 'unit')} of the tier in "
            self.changes.append(RewrittenUnits(
                codes=OF_QUEUES, what=f"{what}{counted(len(wrong), 'segment')} written again from its log",
                details=names, segments=tuple(wrong), log=tuple(self._log_files), queue=self._queue,
                snapshot=self._snapshot, found=log,
            ))  # fmt: skip
        return ended

    def _take_out_strays(self) -> None:
        used = {each.file.path for each in self._wanted["COMMIT_LOG"] if each.file and not each.is_named}
        strays = [stray.path for kind in QUEUE_KINDS for stray in self._queue.files[kind].strays]
        self._take_out([path for path in strays if path not in used], "that is not a segment")
        for path in used:
            self._take_out([path], "whose segment has its own name again")

    def _take_out(self, paths: Sequence[Path], why: str) -> None:
        names = tuple(name for path in paths if (name := name_in_store(self._snapshot.store, path)))
        if names:
            what = f"{names[0] if len(names) == 1 else counted(len(names), 'entry|entries')} {why}: {KEPT}"
            self.changes.append(TakenOut(codes=frozenset({SEGMENT}), what=what, details=names))


def _without_front(segments: list[Segment], left: list[tuple[int, int]]) -> tuple[list[Segment], list[tuple[int, int]]]:
    """Without segments at the beginning of a log that are lost as a whole, as after their expiry."""
    gone = 0
    while gone < len(segments) - 1 and segments[gone].file is None and _meets(segments[gone], left):
        gone += 1
    begin = segments[gone].base if segments else 0
    return segments[gone:], [(max(start, begin), stop) for start, stop in left if stop > begin]


def _meets(segment: Segment, parts: Sequence[tuple[int, int]]) -> bool:
    return any(start < segment.stop and stop > segment.base for start, stop in parts)


class _Copies:
    """The records of the commit log that belong into the tier's log, where units lead."""

    def __init__(
        self, snapshot: Snapshot, queue: TieredQueue, numbers: NDArray[np.int64], units: NDArray[np.void]
    ) -> None:
        self._snapshot, self._queue, self._numbers, self._units = snapshot, queue, numbers, units

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Each record with its place in the log."""
        return copies_for(self._snapshot, self._queue.topic, self._queue.queue_id, self._numbers, self._units)

    def within(self, segment: Segment) -> _Copies:
        """Those of one segment."""
        places = self._units["physical_offset"]
        rows = np.flatnonzero((places >= segment.base) & (places < segment.stop))
        return _Copies(self._snapshot, self._queue, self._numbers[rows], self._units[rows])

    @cached_property
    def places_and_ends(self) -> list[tuple[int, int]]:
        """Where each record begins and ends in the log, bytes."""
        return sorted({(place, place + len(data)) for place, data in self})

    def left(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of a damaged extent that the records do not fill."""
        for begin, end in self.places_and_ends:
            if start < stop and begin < stop and end > start:
                if start < begin:
                    yield start, begin
                start = end
        if start < stop:
            yield start, stop


@dataclass(frozen=True)
class _Writes:
    """What is written into a segment: records, each with its position in the file; read as they are asked for."""

    segment: Segment
    copies: _Copies

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        base, coda = self.segment.base, self.segment.coda
        yield from ((place - base, data) for place, data in self.copies)
        if coda and self.segment.held < self.segment.size:
            values = {"size": CODA_SIZE, "magic": CODA_MAGIC, "max_store_timestamp": self.segment.end_timestamp}
            yield coda[0] - base, TieredCoda.build(values)


@dataclass(frozen=True, kw_only=True)
class RewrittenUnits(Change):
    """Segments of units, whose names are the `details`, written again from the `log`; others of their units stay."""

    segments: tuple[Segment, ...]
    log: tuple[MappedFile, ...]
    queue: TieredQueue
    snapshot: Snapshot
    found: _Log

    @property
    def size(self) -> int:
        """Bytes of the segments."""
        return sum(each.size for each in self.segments)

    def stage(self, transaction: Transaction) -> None:
        """Begin with the units that are there, and write those of all records over them."""
        files = []
        for name, segment in zip(self.details, self.segments, strict=True):
            file = transaction.file(name)
            if segment.file:
                file.copy(segment.file.path)
            file.set_size(segment.size)
            files.append((file, segment.base // UNIT_SIZE, segment.stop // UNIT_SIZE))
        for event in runs_of(self.log, self.queue, self.snapshot):
            if isinstance(event, Damage):
                continue
            numbers, built = built_units(*event)
            rows = np.flatnonzero(~self.found.are_right(numbers))
            for number, units in _stretches(numbers[rows], built[rows]):
                for file, begin, end in files:
                    low, high = max(begin, number), min(end, number + len(units))
                    if low < high:
                        file.write(units[low - number : high - number].tobytes(), (low - begin) * UNIT_SIZE)
        for name in self.details:
            transaction.put(name)


def _stretches(numbers: NDArray[np.int64], units: NDArray[np.void]) -> Iterator[tuple[int, NDArray[np.void]]]:
    """The units whose queue offsets follow each other, with the first of these; of two at the same the later one."""
    order = np.argsort(numbers, kind="stable")
    is_last = np.append(np.diff(numbers[order]) != 0, [True])[: len(order)]
    order = order[is_last]
    for piece in np.split(order, np.flatnonzero(np.diff(numbers[order]) != 1) + 1):
        if len(piece):
            yield int(numbers[piece[0]]), units[piece]
