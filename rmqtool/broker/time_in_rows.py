"""The queue offset for a moment in a queue in RocksDB (`RocksDBConsumeQueueTable#binarySearchInCQByTime`)."""

from __future__ import annotations

from typing import Literal

from rmqtool.store.queue_units import LoadedQueue, Unit


def offset_in_rows(
    queue: LoadedQueue,
    timestamp: int,
    boundary: Literal["lower", "upper"],
    log_min_offset: int,
    *,
    looks_at_ends: bool = True,
) -> int:
    """The offset that a broker answers, by the store times in the rows, epoch ms; -1 where it finds none.

    Since 5.3.2 it looks at the ends of the queue first, and so answers moments before and after them.
    """
    floor, ceiling = queue.range.min_offset, queue.range.max_offset - 1
    if ceiling < 0:
        return 0
    first, last = (queue.unit_at(floor), queue.unit_at(ceiling)) if looks_at_ends else (None, None)
    if last is not None and _time(last) < timestamp:
        return ceiling + 1 if boundary == "lower" else ceiling
    if first is not None and _time(first) > timestamp:
        return floor if boundary == "lower" else 0
    low, high, left, right = floor, ceiling, -1, -1
    while low <= high:
        middle = (low + high) // 2
        unit = queue.unit_at(middle)
        if unit is None:
            low = middle + 1
        elif unit.physical_offset < log_min_offset:
            left, low = middle, middle + 1
        elif _time(unit) < 0:
            return 0
        elif _time(unit) == timestamp:
            return _end_of_equals(queue, middle, timestamp, boundary)
        elif _time(unit) > timestamp:
            right, high = middle, middle - 1
        else:
            left, low = middle, middle + 1
    return right if boundary == "lower" else left


def nearest_in_rows(queue: LoadedQueue, timestamp: int, log_min_offset: int) -> int:
    """The offset that 5.2.0 answers, without a boundary: of the unit whose store time is nearest."""
    low, high, left, right = queue.range.min_offset, queue.range.max_offset - 1, -1, -1
    before = after = -1  # store times of the nearest units
    while low <= high:
        middle = (low + high) // 2
        unit = queue.unit_at(middle)
        if unit is None:
            low = middle + 1
        elif unit.physical_offset < log_min_offset:
            left, low = middle, middle + 1
        elif _time(unit) == timestamp:
            return middle
        elif _time(unit) > timestamp:
            right, after, high = middle, _time(unit), middle - 1
        else:
            left, before, low = middle, _time(unit), middle + 1
    if before == -1 or (after != -1 and timestamp - before > after - timestamp):
        return right
    return left


def _end_of_equals(queue: LoadedQueue, offset: int, timestamp: int, boundary: Literal["lower", "upper"]) -> int:
    """The first or the last of the units around `offset` that were stored at the same moment."""
    step = -1 if boundary == "lower" else 1
    while queue.range.min_offset <= offset + step < queue.range.max_offset:
        unit = queue.unit_at(offset + step)
        if unit is None or _time(unit) != timestamp:
            break
        offset += step
    return offset


def _time(unit: Unit) -> int:
    return unit.store_timestamp or 0
