"""The minimum offset of a queue (`correctMinOffset` of `ConsumeQueue` and `BatchConsumeQueue`).

A start and each deletion of log files move it to the first unit that still points into the commit log. Before 5.0.0
the units of the first file are walked one by one, since then they are searched, and the last unit decides whether the
queue has expired. A batch queue has always been walked. A queue in RocksDB is searched row by row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, Version
from rmqtool.store.rocksdb_queues import LastUnit


class Offsets(Protocol):
    """The physical offsets of the units written in a queue's first file: an array, or read as they are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, unit_index: int, /) -> Any: ...


class SimpleQueue(NamedTuple):
    """The state of a simple queue with files that decides its minimum; positions are bytes from the queue's beginning.

    The first file begins at `base`, the last unit ends at `end` and points to `last`, None where no unit is in the last
    file. `min_position` is the minimum so far, 0 when the broker starts; it stays where no unit is found.
    """

    base: int
    offsets: Offsets
    end: int
    last: int | None
    min_position: int = 0

    def is_expired(self, log_min_offset: int) -> bool:
        """Whether every unit points below the commit log."""
        return self.last is not None and self.last < log_min_offset

    def min_offset(self, log_min_offset: int, version: Version) -> int:
        """The minimum offset; `log_min_offset` is the commit log's, -1 without a file."""
        if version < EXPIRED_QUEUE_MIN_IS_MAX:
            unit_index = _first_at(self.offsets, log_min_offset)
        elif self.min_position < self.end and self.is_expired(log_min_offset):
            return self.end // UNIT_SIZE
        else:
            unit_index = self._search(log_min_offset)
        return (self.min_position if unit_index is None else self.base + unit_index * UNIT_SIZE) // UNIT_SIZE

    def _search(self, log_min_offset: int) -> int | None:
        """Index in the first file of the unit that brokers since 5.0.0 find; None when the minimum stays."""
        start = self.min_position - self.base
        low, high = max(0, start) // UNIT_SIZE, len(self.offsets) - 1
        if self.min_position >= self.end or low > high or (start >= 0 and self.offsets[low] >= log_min_offset):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            physical_offset = self.offsets[middle]
            low, high = (
                middle if physical_offset <= log_min_offset else low,
                middle if physical_offset >= log_min_offset else high,
            )
        return next(
            (unit_index for unit_index in range(low, high + 1) if self.offsets[unit_index] >= log_min_offset), None
        )


def batch_min_offset(offsets: Offsets, unit: Callable[[int], np.void], log_min_offset: int) -> int:
    """The minimum offset of a batch queue, of whose first file `unit` gives each unit; -1 without one."""
    if not len(offsets):
        return -1
    unit_index = _first_at(offsets, log_min_offset)
    below = len(offsets) if unit_index is None else unit_index
    return end_of_batch(unit(below - 1)) if below else int(unit(0)["base_queue_offset"])


def end_of_batch(unit: np.void) -> int:
    """Queue offset after a batch unit's messages."""
    return int(unit["base_queue_offset"]) + int(unit["batch_size"])


def rows_min_offset(
    first: LastUnit | None,
    last: LastUnit | None,
    log_min_offset: int,
    physical_offset_at: Callable[[int], int | None],
) -> int:
    """The minimum offset of a queue in RocksDB by its `min` and `max` rows, None without one.

    A broker searches for the first unit at or after `log_min_offset` by halves, and goes on after an offset without a
    row (`RocksDBConsumeQueueOffsetTable#correctMinCqOffset`): the minimum may be behind units that are there.
    `physical_offset_at` gives the physical offset in the unit at a queue offset, None without a row.
    """
    if first is not None and first.physical_offset >= log_min_offset:
        return first.queue_offset
    if last is None:
        return 0
    if last.physical_offset < log_min_offset:
        return last.queue_offset + 1
    low, high, found = first.queue_offset if first else 0, last.queue_offset, last.queue_offset
    while low <= high:
        middle = (low + high) // 2
        physical_offset = physical_offset_at(middle)
        if physical_offset == log_min_offset:
            return middle
        if physical_offset is None or physical_offset < log_min_offset:
            low = middle + 1
        else:
            found, high = middle, middle - 1
    return found


def _first_at(offsets: Offsets, physical_offset: int) -> int | None:
    """Index of the first unit that points at `physical_offset` or after it; offsets not in memory must ascend."""
    if isinstance(offsets, np.ndarray):
        unit_indexes = np.flatnonzero(offsets >= physical_offset)
        return int(unit_indexes[0]) if len(unit_indexes) else None
    unit_index = bisect_left(offsets, physical_offset)
    return unit_index if unit_index < len(offsets) else None
