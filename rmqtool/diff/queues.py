"""The consume queues of two stores, held against each other unit by unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.diff.records import Side
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_units import QueueRange, queue_range
from rmqtool.store.unit_files import UnitFiles, open_units

_UNITS_AT_ONCE = 1 << 15
_MOVED = 8  # bytes of the physical offset, with which a unit of each kind begins

_Key = tuple[str, str, int]


@dataclass(frozen=True)
class DifferingQueue:
    """A queue that differs: its range in each store, None where it is missing, and the first unit that differs.

    `is_explained` when the logs differ in the same messages: the queues hold what their logs hold.
    """

    kind: str
    topic: str
    queue_id: int
    a: QueueRange | None
    b: QueueRange | None
    first_unit: int | None
    is_explained: bool


def compare_queues(a: Side, b: Side, ends: tuple[int, int], *, is_moved: bool = False) -> Iterator[DifferingQueue]:
    """The queues that differ; `ends` are the physical offsets up to which the logs are the same, in each of them.

    Where the log of B `is_moved` its units are compared without their physical offsets.
    """
    try:
        first, second = _queues_of(a), _queues_of(b)
    except UnreadableError as error:  # of a database in which all queues are
        a.unread.append(error)
        return
    for key in sorted(first.keys() | second.keys()):
        comparison = _Comparison(a, b, first.get(key), second.get(key), ends, is_moved)
        try:
            difference = comparison.difference(key)
        except UnreadableError as error:
            a.unread.append(error)
            continue
        if difference:
            yield difference


def _queues_of(side: Side) -> dict[_Key, Queue]:
    return {(queue.kind, queue.topic, queue.queue_id): queue for queue in side.snapshot.queues}


@dataclass(frozen=True)
class _Comparison:
    """One queue of both stores."""

    side_a: Side
    side_b: Side
    a: Queue | None
    b: Queue | None
    ends: tuple[int, int]
    is_moved: bool

    def difference(self, key: _Key) -> DifferingQueue | None:
        """What differs, None where nothing does."""
        range_a, range_b = self._range(self.side_a, self.a), self._range(self.side_b, self.b)
        if self.a is None or self.b is None or range_a is None or range_b is None:
            present, its_range = (self.a, range_a) if self.a else (self.b, range_b)
            if present is None or its_range is None or its_range.max_offset <= its_range.min_offset:
                return None
            explained = self._is_behind(present, _units(present, its_range)[0], self._end_of(present))
            return DifferingQueue(*key, range_a, range_b, None, explained)
        units_a, units_b = _units(self.a, range_a), _units(self.b, range_b)
        start, stop = max(units_a[0], units_b[0]), min(units_a[1], units_b[1])
        unit = _first_different_unit(self.a, self.b, start, stop, _MOVED if self.is_moved else 0)
        same_minimum = range_a.min_offset == range_b.min_offset
        if unit is None and same_minimum and range_a.max_offset == range_b.max_offset:
            return None
        explained = same_minimum or self.is_moved or self.side_a.start != self.side_b.start
        if unit is not None:
            explained &= self._is_behind(self.a, unit, self.ends[0]) and self._is_behind(self.b, unit, self.ends[1])
        elif range_a.max_offset != range_b.max_offset:
            longer = self.a if range_a.max_offset > range_b.max_offset else self.b
            explained &= self._is_behind(longer, stop, self._end_of(longer))
        return DifferingQueue(*key, range_a, range_b, unit, explained)

    def _range(self, side: Side, queue: Queue | None) -> QueueRange | None:
        """The range by the rules of one release, so that equal files have equal ranges."""
        release = self.side_a.snapshot.release
        return queue_range(queue, side.snapshot.log_min_offset, release) if queue else None

    def _end_of(self, queue: Queue) -> int:
        return self.ends[0 if queue is self.a else 1]

    @staticmethod
    def _is_behind(queue: Queue, number: int, end: int) -> bool:
        """Whether a unit points after what both logs hold."""
        with open_units(queue) as units:
            return int(units.units(number, 1)["physical_offset"][0]) >= end


def _units(queue: Queue, offsets: QueueRange) -> tuple[int, int]:
    """Numbers of the first unit and after the last one; a unit of a batch queue is of several messages."""
    if queue.kind == "simple":
        return offsets.min_offset, offsets.max_offset
    with open_units(queue) as units:
        file_index, count = units.recovered_end()
        return units.start, units.files[file_index].start_offset // units.size + count


def _first_different_unit(a: Queue, b: Queue, start: int, stop: int, skipped: int) -> int | None:
    """Number of the first unit from `start` to before `stop` that differs in more than its first `skipped` bytes."""
    with open_units(a) as first, open_units(b) as second:
        for low, high, is_held in first.stretches(start, stop):
            for number in range(low, high, _UNITS_AT_ONCE) if is_held else ():
                different = _different_in(first, second, number, min(_UNITS_AT_ONCE, high - number), skipped)
                if different is not None:
                    return different
    return None


def _different_in(first: UnitFiles, second: UnitFiles, number: int, count: int, skipped: int) -> int | None:
    data, other = first.read(number, count), second.read(number, count)
    if data == other:
        return None
    common = min(first.size, second.size)  # a row in RocksDB is a unit as in a file and more
    units, others = (np.frombuffer(each, np.uint8).reshape(count, -1)[:, skipped:common] for each in (data, other))
    rows = np.flatnonzero((units != others).any(axis=1))
    return number + int(rows[0]) if len(rows) else None
