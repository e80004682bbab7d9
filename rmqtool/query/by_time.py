"""Messages stored from a time on: the position in the log is found by bisection, not by reading all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.query.by_place import Message
from rmqtool.query.by_scan import ScanQuery, by_scan
from rmqtool.query.notes import Notes
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.scan.probe import find_next
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.snapshot import Snapshot

DEFAULT_LIMIT = 10
"""Messages that are shown unless a limit is given."""

_NEAR = 1 << 20  # from here on a scan is as fast as halving further, bytes


def by_time(snapshot: Snapshot, timestamp: int, query: ScanQuery, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The first messages stored at `timestamp`, epoch ms, or later; the clock is taken never to have gone back."""
    start = max(query.filters.from_offset, offset_before(snapshot, timestamp))
    filters = replace(query.filters, from_timestamp=timestamp, from_offset=start)
    limit = DEFAULT_LIMIT if query.limit is None else query.limit
    yield from by_scan(snapshot, replace(query, filters=filters, limit=limit), body, notes)


def offset_before(snapshot: Snapshot, timestamp: int) -> int:
    """A physical offset before which every message was stored before `timestamp`."""
    files = snapshot.log.files
    low, high = 0, len(files)  # files before `low` begin before the moment
    while low < high:
        middle = (low + high) // 2
        first = _time_from(snapshot, files[middle], 0)
        low, high = (middle + 1, high) if first is not None and first[1] < timestamp else (low, middle)
    return _offset_in(snapshot, files[low - 1], timestamp) if low else 0


def _offset_in(snapshot: Snapshot, mapped: MappedFile, timestamp: int) -> int:
    low, high = 0, mapped.size
    while high - low > _NEAR:
        middle = (low + high) // 2
        first = _time_from(snapshot, mapped, middle)
        if first is None or first[1] >= timestamp:
            high = middle
        else:
            low = max(first[0], middle)
    return mapped.start_offset + low


def _time_from(snapshot: Snapshot, mapped: MappedFile, position: int) -> tuple[int, int] | None:
    """Position and store time of the first record of a file at or after `position`."""
    with InputFile(mapped.path, snapshot.reading) as file:
        position = find_next(file, mapped.start_offset, position, mapped.header_size)
    offset = mapped.start_offset + position + mapped.header_size
    record = single_record_at([mapped], offset) if position < mapped.size else None
    return None if record is None else (position, record.number("store_timestamp"))
