"""The new log: which records are copied, and what stands in its gaps, so that a broker walks over them.

All stays at its physical offset. A gap becomes dummy records, the end of a file a blank; where a gap is too small for
a dummy record, the record behind or before it gives way.

What of the sources is not in it is counted to the byte; zeros, and copies of what is in it, do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.formats.message import BLANK_SIZE, MIN_MESSAGE_SIZE
from rmqtool.salvage.carve import BLANK, NO_EXTENTS, Extents, Sources, ends, joined, of_records, shifts
from rmqtool.salvage.inputs import Input
from rmqtool.scan.inert_records import SMALLEST_INERT

Ranges = NDArray[np.int64]


def ranges_of(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Ranges:
    """Ranges in any order, put in order; those that touch or overlap become one."""
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    begins = np.append(True, starts[1:] > reached[:-1])[: len(starts)]
    lasts = np.append(begins[1:], True)[: len(starts)]
    return np.stack([starts[begins], reached[lasts]], axis=1).astype(np.int64)


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """The ranges less `others`."""
    edges = np.concatenate([ranges.ravel(), others.ravel()])
    steps = np.concatenate([np.tile([1, -1], len(ranges)), np.tile([-2, 2], len(others))])
    order = np.argsort(edges, kind="stable")
    edges, state = edges[order], np.cumsum(steps[order])
    is_in = (state == 1) & (np.append(edges[1:], 0) > edges)
    rows = np.flatnonzero(is_in)
    return np.stack([edges[rows], edges[rows + 1]], axis=1) if len(rows) else np.empty((0, 2), np.int64)


def meets(ranges: Ranges, start: int, end: int) -> bool:
    """Whether a range overlaps any of `ranges`."""
    row = int(np.searchsorted(ranges[:, 1], start, "right"))
    return row < len(ranges) and bool(ranges[row, 0] < end)


MAX_MISSING_FILES = 1024
"""Files in a row of which nothing is left; records beyond so many are of another log."""

Offsets = NDArray[np.int64]

_SMALLEST_ENTRY = ENTRY_HEADER_SIZE + MIN_MESSAGE_SIZE
_SMALLEST_LOSS = SMALLEST_INERT + BLANK_SIZE  # at the end of a file; in less there was no message, bytes


class Gap(NamedTuple):
    """Lost bytes of the log; `timestamp` is the store time of a neighbour, epoch ms, never 0."""

    physical_offset: int
    size: int
    timestamp: int


@dataclass
class LogFile:
    """A file of the new log; `blank` is the physical offset of the one at its end, `timestamp` its last store time."""

    start_offset: int
    copies: Extents
    gaps: list[Gap] = field(default_factory=list)
    blank: int | None = None
    timestamp: int = 0


@dataclass
class Layout:
    """The new log in order, and whole records that cannot be in it: `no_room` beside a gap, `elsewhere` far away.

    Where it `is_moved` all is at the offsets of a DLedger log, in one file: messages move when it is written.
    """

    file_size: int
    files: list[LogFile]
    no_room: Extents
    elsewhere: Extents
    is_moved: bool = False

    @property
    def copies(self) -> Extents:
        """All records that are copied, by physical offset."""
        return joined(*(file.copies for file in self.files))

    @property
    def gaps(self) -> list[Gap]:
        """All gaps; those that follow each other in two files are two."""
        return [gap for file in self.files for gap in file.gaps]


def lay_out(taken: Extents, blanks: Extents, file_size: int, sources: Sources) -> Layout:
    """Make files of `file_size` bytes; `blanks` are those that were found, by physical offset."""
    near, elsewhere = _nearest(taken, file_size)
    within, crossing = _within_files(near, file_size, sources)
    no_room = [crossing]
    by_file = _by_file(within, file_size)
    last = max(by_file, default=-1)
    files: list[LogFile] = []
    known = np.unique(blanks["physical_offset"])
    before = int(within["first_time"][0]) if len(within) else 0
    for start in range(min(by_file, default=0), last + 1, file_size):
        fitting = _Fitting(by_file.get(start, NO_EXTENTS), sources)
        copies = fitting.fitted(start, start + file_size)
        no_room.append(fitting.left_out)
        file = _fill(LogFile(start, copies), file_size, known, max(before, 1), is_last=start == last)
        before = file.timestamp
        files.append(file)
    return Layout(file_size, files, joined(*no_room), elsewhere)


def lay_out_moved(taken: Extents, blanks: Extents, file_size: int, starts: Sequence[int]) -> Layout:
    """The order of messages that move: only what is lost between them counts, `starts` are those of the log's files."""
    near, elsewhere = _nearest(taken, file_size)
    if not len(near):
        return Layout(file_size, [], NO_EXTENTS, elsewhere, is_moved=True)
    first = int(near["physical_offset"][0])
    named = max((each for each in starts if each <= first), default=None)
    start, begin = (first // file_size * file_size, first) if named is None else (named, named)
    file = LogFile(start, near, timestamp=max(int(near["last_time"][-1]), 1))
    known = np.concatenate([near, blanks])
    held = ranges_of(known["physical_offset"], ends(known))
    lost = without(np.array([[begin, int(ends(near).max())]], np.int64), held)
    lost = lost[lost[:, 1] - lost[:, 0] >= _SMALLEST_ENTRY]
    times = np.append(near["first_time"][0], near["last_time"])[np.searchsorted(near["physical_offset"], lost[:, 0])]
    for (low, high), time in zip(lost.tolist(), times.tolist(), strict=True):
        file.gaps.append(Gap(low, high - low, max(time, 1)))
    return Layout(file_size, [file], NO_EXTENTS, elsewhere, is_moved=True)


def _nearest(taken: Extents, file_size: int) -> tuple[Extents, Extents]:
    """Split off what is so far from most of the log that it is of another one."""
    if not len(taken):
        return taken, taken
    far = np.diff(taken["physical_offset"] // file_size) > MAX_MISSING_FILES
    part = np.append(0, np.cumsum(far))
    largest = int(np.argmax(np.bincount(part, weights=taken["size"])))
    return taken[part == largest], taken[part != largest]


def _within_files(taken: Extents, file_size: int, sources: Sources) -> tuple[Extents, Extents]:
    """Cut extents where a file ends; a record across such an end is left out."""
    first = taken["physical_offset"] // file_size
    crosses = (ends(taken) - 1) // file_size != first
    within, lost = [taken[~crosses]], [NO_EXTENTS]
    for row in np.flatnonzero(crosses).tolist():
        extent, start = taken[row], int(taken["physical_offset"][row])
        stop = start + int(extent["size"])
        borders = [start, *range((start // file_size + 1) * file_size, stop, file_size), stop]
        parts = [sources.carve_between(extent, low, high) for low, high in pairwise(borders)]
        within += parts
        lost.append(_rest(taken[row : row + 1], joined(*parts)))
    return joined(*within), joined(*lost)


def _rest(extent: Extents, parts: Extents) -> Extents:
    """The records of one extent that are in none of its parts, each between two of them."""
    starts = np.append(extent["physical_offset"], ends(parts))
    sizes = np.append(parts["physical_offset"], ends(extent)) - starts
    rest = np.repeat(extent, len(starts))
    rest["position"] = starts - shifts(extent)
    rest["physical_offset"], rest["size"], rest["records"] = starts, sizes, 1
    lost: Extents = rest[sizes > 0]
    return lost


def _by_file(taken: Extents, file_size: int) -> dict[int, Extents]:
    """The extents of each file by its start offset."""
    starts = taken["physical_offset"] // file_size * file_size
    parts = np.split(taken, np.flatnonzero(np.diff(starts)) + 1) if len(taken) else []
    return {int(part["physical_offset"][0]) // file_size * file_size: part for part in parts}


class _Fitting:
    """The records of one file, of which some give way where a gap takes no dummy record, or the end no blank."""

    def __init__(self, extents: Extents, sources: Sources) -> None:
        self._extents = extents
        self._sources = sources
        self._left_out: list[NDArray[np.void]] = []

    @property
    def left_out(self) -> Extents:
        """The records that have given way."""
        return joined(*self._left_out)

    def fitted(self, start: int, end: int) -> Extents:
        """What stays, of a file between two physical offsets."""
        gaps = self._extents["physical_offset"] - np.append(start, ends(self._extents)[:-1])[: len(self._extents)]
        has_room = not len(gaps) or end - int(ends(self._extents)[-1]) >= BLANK_SIZE
        if has_room and not ((gaps > 0) & (gaps < SMALLEST_INERT)).any():
            return self._extents
        kept: list[np.void] = []
        position = start
        for extent in self._extents:
            rest: np.void | None = extent
            while rest is not None and 0 < int(rest["physical_offset"]) - position < SMALLEST_INERT:
                rest = self._without_first(rest)
            if rest is not None:
                kept.append(rest)
                position = int(rest["physical_offset"] + rest["size"])
        if kept and end - position < BLANK_SIZE:
            shortened = self._without_last(kept.pop())
            kept += [shortened] if shortened is not None else []
        return np.array(kept, NO_EXTENTS.dtype) if kept else NO_EXTENTS

    def _without_first(self, extent: np.void) -> np.void | None:
        first = self._sources.first_of(extent)
        self._left_out.append(first)
        rest = self._sources.carve_between(extent, int(ends(first)[0]), int(extent["physical_offset"] + extent["size"]))
        return rest[0] if len(rest) else None

    def _without_last(self, extent: np.void) -> np.void | None:
        start, size = int(extent["physical_offset"]), int(extent["size"] - extent["last_size"])
        rest = self._sources.carve_between(extent, start, start + size)
        self._left_out.append(_rest(np.array([extent], NO_EXTENTS.dtype), rest))
        return rest[0] if len(rest) else None


def _fill(file: LogFile, file_size: int, blanks: Offsets, before: int, *, is_last: bool) -> LogFile:
    """Put gaps and a blank into a file; `before` is the store time of the last record before it."""
    position, file.timestamp = file.start_offset, before
    for start, size, last_time in file.copies[["physical_offset", "size", "last_time"]].tolist():
        if start > position:
            file.gaps.append(Gap(position, start - position, file.timestamp))
        position, file.timestamp = start + size, max(last_time, 1)
    file.blank = _blank(position, file.start_offset + file_size, blanks, is_last=is_last)
    if file.blank is not None and file.blank > position:
        file.gaps.append(Gap(position, file.blank - position, file.timestamp))
    return file


def _blank(position: int, end: int, blanks: Offsets, *, is_last: bool) -> int | None:
    """Where the blank of a file that ends at `end` begins, after its last record; None where the log ends."""
    following = int(np.searchsorted(blanks, position))
    known = int(blanks[following]) if following < len(blanks) and blanks[following] < end else None
    if is_last:
        return position if known == position else None  # one further on may be from before a cut
    if known is None:
        known = position if end - position < _SMALLEST_LOSS else end - BLANK_SIZE
    return known if known - position >= SMALLEST_INERT else position


Reason = Literal["damaged", "unreadable", "stale", "contradicted", "no-room", "other-log", "not-a-record"]
MEANINGS: dict[Reason, str] = {
    "damaged": "bytes of the log with no verifiable message",
    "unreadable": "the disk cannot read them",
    "stale": "intact records from before a cut, or that differ from those saved at their offsets",
    "contradicted": "records with a damaged field, of which another source has the right copy",
    "no-room": "intact records next to a gap that is too small to be filled without them",
    "other-log": "intact records so far from the others that they belong to another log",
    "not-a-record": "other bytes of a file without the name of a log file",
}
"""The sentence for each reason."""

MOST_LISTED = 1000
"""Ranges that are listed one by one; all are counted."""

_BLOCK = 1 << 20
_SIZE_MAGIC_AND_CRC = 12  # bytes that a record begins with


class Left(NamedTuple):
    """Bytes of a file that are left behind; `physical_offset` None where nothing shows it."""

    input: int
    position: int
    size: int
    reason: Reason
    records: int
    physical_offset: int | None


@dataclass
class Total:
    """All ranges of one reason."""

    ranges: int = 0
    size: int = 0  # bytes
    records: int = 0

    def add(self, size: int, records: int) -> None:
        """Count a range."""
        self.ranges, self.size, self.records = self.ranges + 1, self.size + size, self.records + records


@dataclass
class LeftBehind:
    """All that is not copied: the first MAX_LISTED ranges, and how much there is of each reason."""

    listed: list[Left] = field(default_factory=list)
    totals: dict[Reason, Total] = field(default_factory=lambda: defaultdict(Total))

    def add(self, left: Left) -> None:
        """Count a range."""
        self.totals[left.reason].add(left.size, left.records)
        if len(self.listed) < MOST_LISTED:
            self.listed.append(left)

    @property
    def is_loss(self) -> bool:
        """Whether any of it may have been a message."""
        return any(reason not in ("not-a-record", "contradicted") for reason in self.totals)


def left_behind(found: Sequence[Extents], refused: Extents, layout: Layout, sources: Sources) -> LeftBehind:
    """Account for all bytes of all files; `found` is all that proves itself in each, `refused` what is stale of it."""
    left, log = LeftBehind(), _Log(layout, sources)
    sets: tuple[tuple[Reason, Extents], ...] = (
        ("stale", refused),
        ("no-room", layout.no_room),
        ("other-log", layout.elsewhere),
    )
    for file, extents in zip(sources.files, found, strict=True):
        rest = without(_positions(of_records(extents)), _positions(_in(file, log.copies)))
        for reason, of_reason in sets:
            for extent in _in(file, of_reason):
                left.add(_left(extent, "contradicted" if log.has_right_copies(file, extent) else reason))
            rest = without(rest, _positions(_in(file, of_reason)))
        for row in log.other_records(file, extents, rest):
            left.add(row)
        for row in _unproven(file, extents, log, sources):
            left.add(row)
    return left


def _left(extent: np.void, reason: Reason) -> Left:
    position, size, records = int(extent["position"]), int(extent["size"]), int(extent["records"])
    return Left(int(extent["input"]), position, size, reason, records, int(extent["physical_offset"]))


def _shift(extent: np.void) -> int:
    return int(extent["physical_offset"] - extent["position"])


def _in(file: Input, extents: Extents) -> Extents:
    rows: Extents = extents[extents["input"] == file.number]
    return rows


def _positions(extents: Extents) -> Ranges:
    return ranges_of(extents["position"], extents["position"] + extents["size"])


class _Log:
    """The new log, as something to compare with."""

    def __init__(self, layout: Layout, sources: Sources) -> None:
        self.copies = layout.copies
        self._sources = sources
        gaps = np.array([(gap.physical_offset, gap.physical_offset + gap.size) for gap in layout.gaps], np.int64)
        self._lost: Ranges = gaps.reshape(-1, 2)
        begin = layout.files[0].start_offset if layout.files else 0
        end = int(ends(self.copies)[-1]) if len(self.copies) else 0
        if layout.files and layout.files[-1].blank is not None:
            end = layout.files[-1].start_offset + layout.file_size
        self._range = begin, end

    def lacks(self, start: int, end: int) -> bool:
        """Whether some of a range of physical offsets is not in it."""
        begin, stop = self._range
        return start < begin or end > stop or meets(self._lost, start, end)

    def has_right_copies(self, file: Input, extent: np.void) -> bool:
        """Whether all records of an extent are doubtful, and the log has another copy of each."""
        return all(self._has_right_copy(file, extent, offset, size) for offset, size in self._records_of(extent))

    def _records_of(self, extent: np.void) -> Iterator[tuple[int, int]]:
        """Physical offset and size of each record of an extent."""
        offset, end = int(extent["physical_offset"]), int(extent["physical_offset"] + extent["size"])
        while offset < end:
            size = self._sources.record_size(extent, offset)
            yield offset, size
            offset += size

    def _has_right_copy(self, file: Input, extent: np.void, offset: int, size: int) -> bool:
        """Whether a record is doubtful, and the log has one of the same size and body at its offset."""
        if offset + int(extent["header_size"]) not in file.doubtful:
            return False
        copies = self._between(offset, offset + size)
        if len(copies) != 1 or not copies[0]["physical_offset"] <= offset <= ends(copies)[0] - size:
            return False
        start = offset + int(extent["header_size"])
        return self._sources.equal(copies[0], extent, start, _SIZE_MAGIC_AND_CRC)

    def other_records(self, file: Input, extents: Extents, rest: Ranges) -> Iterator[Left]:
        """Records at the positions of `rest`, which are not copied: those that the log has not from elsewhere."""
        for extent in of_records(extents):
            start, size = int(extent["position"]), int(extent["size"])
            if meets(rest, start, start + size) and self._may_differ(extent):
                yield from self._differing(file, extent, rest)

    def _may_differ(self, extent: np.void) -> bool:
        """Whether an extent may have records that the log does not have.

        Logs that have gone apart stay apart: where their last records are the same, so are those before.
        """
        start, end = int(extent["physical_offset"]), int(extent["physical_offset"] + extent["size"])
        copies = self._between(start, end)
        covered = ranges_of(copies["physical_offset"], ends(copies))
        if len(without(np.array([[start, end]], np.int64), covered)):
            return True
        return any(not self._ends_alike(extent, copy) for copy in copies)

    def _between(self, start: int, end: int) -> Extents:
        low = int(np.searchsorted(ends(self.copies), start, "right"))
        high = int(np.searchsorted(self.copies["physical_offset"], end, "left"))
        copies: Extents = self.copies[low:high]
        return copies

    def _ends_alike(self, one: np.void, other: np.void) -> bool:
        """Whether two extents have the same bytes in the last record that both hold."""
        one_end, other_end = (int(each["physical_offset"] + each["size"]) for each in (one, other))
        shorter = one if one_end < other_end else other
        start = max(int(one["physical_offset"]), int(other["physical_offset"]))
        end = min(one_end, other_end)
        size = min(int(shorter["last_size"] - shorter["header_size"]), end - start)
        return self._sources.equal(one, other, end - size, size)

    def _differing(self, file: Input, extent: np.void, rest: Ranges) -> Iterator[Left]:
        """The records of an extent that the log does not have, those one after the other as one."""
        shift, run = _shift(extent), None
        for offset, size in self._records_of(extent):
            position = offset - shift
            if meets(rest, position, position + size) and not self._has(extent, offset, size):
                reason: Reason = "contradicted" if self._has_right_copy(file, extent, offset, size) else "stale"
                if run and run.reason != reason:
                    yield run
                    run = None
                run = run or Left(int(extent["input"]), position, 0, reason, 0, offset)
                run = run._replace(size=run.size + size, records=run.records + 1)
            elif run:
                yield run
                run = None
        if run:
            yield run

    def _has(self, extent: np.void, offset: int, size: int) -> bool:
        """Whether the log has the same bytes as an extent at an offset."""
        copies = self._between(offset, offset + size)
        header_size = int(extent["header_size"])  # which another node may have with another term, or not at all
        offset, size = offset + header_size, size - header_size
        copies = copies[copies["physical_offset"] <= offset]
        is_covered = len(copies) > 0 and ends(copies)[-1] >= offset + size
        return bool(is_covered) and self._sources.equal(copies[-1], extent, offset, size)


def _unproven(file: Input, extents: Extents, log: _Log, sources: Sources) -> Iterator[Left]:
    """Ranges of a file in which nothing proves itself, and that the new log has not from elsewhere."""
    is_moved = shifts(extents) != (-1 if file.start_offset is None else file.start_offset)
    sizes = np.where(is_moved & (extents["records"] == BLANK), BLANK_SIZE, extents["size"])
    proven = ranges_of(extents["position"], extents["position"] + sizes)
    unread = sources.unread(file.number)
    for low, high in without(np.array([[0, file.size]], np.int64), proven).tolist():
        start, end = _trimmed(sources.file(file.number), low, high)
        pages = [page for page in unread if low - low % _PAGE <= page < high] if unread else []
        if pages:  # which count as zeros, and are none
            start, end = min(start, max(low, min(pages))), max(end, min(high, max(pages) + _PAGE))
        if start == end:
            continue
        offset = _offset_of(file, extents, start, end)
        if offset is not None and not log.lacks(offset, offset + end - start):
            continue
        reason: Reason = "not-a-record" if offset is None else "damaged"
        yield Left(file.number, start, end - start, "unreadable" if pages else reason, 0, offset)


_PAGE = 4096


def _offset_of(file: Input, extents: Extents, start: int, end: int) -> int | None:
    """The physical offset of bytes of a log: as the records on both sides have it, else as the file's name."""
    following = int(np.searchsorted(extents["position"], end))
    around = {_shift(extents[row]) for row in (following - 1, following) if 0 <= row < len(extents)}
    has_both = 0 < following < len(extents)
    shift = around.pop() if len(around) == 1 and (has_both or file.start_offset is not None) else file.start_offset
    return None if shift is None or shift + start < 0 else shift + start


def _trimmed(file: InputFile, start: int, end: int) -> tuple[int, int]:
    """A range without the zeros at its begin and end."""
    start = file.next_data(start, end)
    if end == file.size:
        return start, max(start, file.data_end(start))
    while end > start:
        low = max(start, end - _BLOCK)
        data = file.read(low, end - low).rstrip(b"\0")
        if data:
            return start, low + len(data)
        end = low
    return start, end
