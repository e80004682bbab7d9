"""Where a log is to end: by an offset, by a time, or by a number of messages before its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rmqtool.base.errors import UsageError
from rmqtool.base.files import ReadPolicy
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.base.times import rfc3339
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.snapshot import Snapshot


@dataclass(frozen=True)
class At:
    """What was asked for: a physical offset, a store time (epoch ms), or how many of the last messages go."""

    kind: Literal["offset", "time", "last"]
    value: int


@dataclass(frozen=True)
class Place:
    """Where the log ends then: `offset`, or before it, behind its last record, where that is the last of its file.

    Offsets in bytes, the time that one was stored in epoch ms.
    """

    offset: int
    last_record: int
    last_store_timestamp: int
    record_end: int


@dataclass(frozen=True)
class _Borders:
    """Where records begin or end around an offset in a file, and the last record before it."""

    before: int
    after: int | None
    last: tuple[int, int, int] | None  # its offset, its store time, and its end


def place_of(snapshot: Snapshot, at: At) -> Place:
    """The place; raises UsageError where no record begins or ends there, or nothing would be left."""
    files, reading = snapshot.log.files, snapshot.reading
    log = snapshot.log_range
    if not files or log.last_record_offset is None:
        raise UsageError("the log has no message", file=snapshot.store.root)
    offset = at.value
    if at.kind == "time":
        offset = _offset_of_time(files, at.value, log.max_offset, reading)
    elif at.kind == "last":
        offset = _offset_of_last(files, at.value, log.min_offset, log.max_offset, reading)
    if offset > log.max_offset:
        raise UsageError(f"the log ends at {log.max_offset}, before {offset}", file=snapshot.store.root)
    if offset <= log.min_offset:
        raise UsageError(f"nothing of the log would be left: it begins at {log.min_offset}", file=snapshot.store.root)
    last = _require_border(snapshot, files, offset, reading)
    if last is None:
        raise UsageError(f"no message would be left before {offset}", file=snapshot.store.root)
    return Place(offset, *last)


def _require_border(
    snapshot: Snapshot, files: Sequence[MappedFile], offset: int, reading: ReadPolicy
) -> tuple[int, int, int] | None:
    """The last record before an offset at which one begins or ends; raises UsageError for another offset."""
    mapped = file_at(files, offset)
    last: tuple[int, int, int] | None = None
    if mapped is not None and offset > mapped.start_offset:
        found = _borders(mapped, offset, reading)
        if found.before != offset:
            after = f" and at {found.after}" if found.after is not None else ""
            raise UsageError(
                f"no record begins or ends at {offset}, but at {found.before}{after}", file=snapshot.store.root,
                hint="name one of these with --at",
            )  # fmt: skip
        last = found.last
    earlier = [file for file in files if file.end_offset <= (mapped.start_offset if mapped else offset)]
    while last is None and earlier:
        last = _borders(earlier.pop(), offset, reading).last
    return last


def _borders(mapped: MappedFile, offset: int, reading: ReadPolicy) -> _Borders:
    before, last = mapped.start_offset, None
    for event in scan_files([mapped], reading=reading):
        if isinstance(event, RecordRun):
            starts = event.physical_offsets
            ends = starts + event.message_sizes
            row = int(np.searchsorted(ends, offset, side="right")) - 1  # the last record that ends by then
            if row >= 0:
                before = int(ends[row])
                last = int(starts[row]), int(event.headers.field("store_timestamp")[row]), int(ends[row])
            if row + 1 < len(starts):
                if starts[row + 1] <= offset:  # after damage it begins where none ends
                    before = int(starts[row + 1])
                    return _Borders(before, int(ends[row + 1]), last)
                return _Borders(before, int(starts[row + 1]), last)
        elif event.physical_offset >= offset:
            break
    return _Borders(before, None, last)


def _offset_of_time(files: Sequence[MappedFile], time: int, end: int, reading: ReadPolicy) -> int:
    """Where the first record that was stored at a time or later begins; store times do not fall."""

    def is_later(number: int) -> bool:
        record = single_record_at(files, files[number].start_offset)
        return record is None or record.number("store_timestamp") >= time

    number = max(0, bisect_left(range(len(files)), True, key=is_later) - 1)
    for event in scan_files(files[number:], reading=reading):
        if isinstance(event, RecordRun):
            rows = np.flatnonzero(event.headers.field("store_timestamp") >= time)
            if len(rows):
                return int(event.physical_offsets[rows[0]])
    raise UsageError(f"no message was stored at {rfc3339(time) or time} or later: the log ends at {end}")


def _offset_of_last(files: Sequence[MappedFile], count: int, start: int, end: int, reading: ReadPolicy) -> int:
    """Where the last messages begin, so many of them."""
    left = count
    for mapped in reversed(files):
        starts = np.concatenate([np.empty(0, np.int64), *_starts(mapped, end, reading)])
        if 0 < left <= len(starts):
            return int(starts[-left])
        left -= len(starts)
    return end if count == 0 else start


def _starts(mapped: MappedFile, end: int, reading: ReadPolicy) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    for event in scan_files([mapped], reading=reading):
        if isinstance(event, RecordRun):
            yield event.physical_offsets[event.physical_offsets < end].astype(np.int64)
