"""What of the sources is not in the new log, to the byte; zeros, and copies of what is in it, do not count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.formats.message import BLANK_SIZE
from rmqtool.salvage.carve import Sources
from rmqtool.salvage.extents import BLANK, Extents, ends, of_records, shifts
from rmqtool.salvage.inputs import Input
from rmqtool.salvage.layout import Layout, Ranges, meets, ranges_of, without

Reason = Literal["damaged", "unreadable", "stale", "contradicted", "no-room", "other-log", "not-a-record"]
REASONS: tuple[Reason, ...] = get_args(Reason)
MEANINGS: dict[Reason, str] = {
    "damaged": "bytes of the log with no verifiable message",
    "unreadable": "the disk does not give them",
    "stale": "whole records of another generation, or that differ from those saved at their offsets",
    "contradicted": "records with a damaged field, of which another source has the right copy",
    "no-room": "whole records beside a gap that is too small to be filled without them",
    "other-log": "whole records so far from the others that they are of another log",
    "not-a-record": "other bytes of a file that is not named as one of a log",
}
"""The sentence for each reason."""

MAX_LISTED = 1000
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


@dataclass
class LeftBehind:
    """All that is left behind: the first MAX_LISTED ranges, and how much there is of each reason."""

    listed: list[Left] = field(default_factory=list)
    totals: dict[Reason, Total] = field(default_factory=lambda: defaultdict(Total))

    def add(self, left: Left) -> None:
        """Count a range."""
        total = self.totals[left.reason]
        total.ranges, total.size, total.records = total.ranges + 1, total.size + left.size, total.records + left.records
        if len(self.listed) < MAX_LISTED:
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
        offset, end = int(extent["physical_offset"]), int(extent["physical_offset"] + extent["size"])
        while offset < end:
            size = self._sources.record_size(extent, offset)
            if not self._has_right_copy(file, extent, offset, size):
                return False
            offset += size
        return True

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
        offset, end = int(extent["physical_offset"]), int(extent["physical_offset"] + extent["size"])
        while offset < end:
            size = self._sources.record_size(extent, offset)
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
            offset += size
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
