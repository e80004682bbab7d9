"""The queue offset for a moment, as each release answers it (`ConsumeQueue#getOffsetInQueueByTime`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from rmqtool.base.errors import UnreadableError, UnsupportedError, reason_of
from rmqtool.base.paths import is_remote
from rmqtool.rules.versions import ROWS_BY_BOUNDARY, ROWS_LOOK_AT_ENDS, TIME_BY_RECORDS, TIME_WITHIN_RANGE, Version
from rmqtool.store.commit_log import LogBytes
from rmqtool.store.queue_units import LoadedQueue, QueueFile, Unit


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


Boundary = Literal["lower", "upper"]
"""`BoundaryType`: the first unit stored at the moment or later, or the last one stored then or before."""

_NO_TIME = -1


@dataclass(frozen=True)
class QueueTimes:
    """A queue, and the log with the store times of its messages; timestamps are epoch ms."""

    queue: LoadedQueue
    log: LogBytes

    def boundary(self, timestamp: int, boundary: Boundary) -> int:
        """The offset that brokers since 5.1.1 answer, from the minimum to the maximum of a queue in files."""
        if self.queue.queue.database:
            return offset_in_rows(self.queue, timestamp, boundary, self.log.min_offset)
        if self.queue.queue.kind == "batch":
            queue_offset = self._in_batches(timestamp, boundary)
        else:
            queue_offset = self._by_records(timestamp, boundary)
        return self._within_range(queue_offset)

    def broker(self, timestamp: int, version: Version) -> int:
        """The offset that a broker of `version` answers when no boundary is asked for."""
        if self.queue.queue.database and version < ROWS_BY_BOUNDARY:
            return nearest_in_rows(self.queue, timestamp, self.log.min_offset)
        if self.queue.queue.database:
            at_ends = version >= ROWS_LOOK_AT_ENDS
            return offset_in_rows(self.queue, timestamp, "lower", self.log.min_offset, looks_at_ends=at_ends)
        if version >= TIME_BY_RECORDS:
            return self.boundary(timestamp, "lower")
        if self.queue.queue.kind == "batch":
            return self._within_range(self._in_batches(timestamp, "lower"))
        queue_offset = self._by_files(timestamp)
        return self._within_range(queue_offset) if version >= TIME_WITHIN_RANGE else queue_offset

    def _within_range(self, queue_offset: int) -> int:
        bounds = self.queue.range
        return min(max(queue_offset, bounds.min_offset), bounds.max_offset)

    def _time(self, unit: Unit) -> int:
        return self.log.store_timestamp(unit.physical_offset, unit.message_size)

    # Brokers before 5.1.1

    def _by_files(self, timestamp: int) -> int:
        """The unit with the nearest store time, in the first file that was modified then or later."""
        files = self.queue.files
        file = next((file for file in files if _modified(file) >= timestamp), files[-1] if files else None)
        if file is None or file.count == 0:
            return 0
        low, high = self._first_unit(file), file.count - 1
        left: tuple[int, int] | None = None  # index and store time of the nearest unit before the moment
        right: tuple[int, int] | None = None
        while low <= high:
            middle = (low + high) // 2
            unit = file.unit(middle)
            if unit.physical_offset < self.log.min_offset:
                left, low = (middle, left[1] if left else _NO_TIME), middle + 1
                continue
            store_time = self._time(unit)
            if store_time < 0:
                return 0
            if store_time == timestamp:
                return file.unit(middle).queue_offset
            if store_time > timestamp:
                right, high = (middle, store_time), middle - 1
            else:
                left, low = (middle, store_time), middle + 1
        return _nearest(file, timestamp, left, right)

    def _first_unit(self, file: QueueFile) -> int:
        """Index in a file of the first unit that is not below the queue's minimum."""
        size = self.queue.queue.unit_size
        return max(0, self.queue.range.min_offset - file.mapped.start_offset // size)

    # Brokers since 5.1.1

    def _by_records(self, timestamp: int, boundary: Boundary) -> int:
        file = self._file_at(timestamp, boundary)
        if file is None or file.count == 0:
            return 0
        floor, ceiling = self._first_unit(file), file.count - 1
        first = file.mapped.start_offset // self.queue.queue.unit_size
        if self._time(file.unit(ceiling)) < timestamp:
            return first + ceiling + (boundary == "lower")
        if floor <= ceiling and self._time(file.unit(floor)) > timestamp:
            return first if boundary == "lower" else 0
        return self._search(file, timestamp, boundary, (floor, ceiling))

    def _file_at(self, timestamp: int, boundary: Boundary) -> QueueFile | None:
        """The file, chosen by the store times of first and last records (`#getConsumeQueueMappedFileByTime`)."""
        files = self.queue.files
        if not files:
            return None
        if boundary == "lower":
            ends = (file for file, _ in pairwise(files) if file.last and self._known_time(file.last) >= timestamp)
            return next(ends, files[-1])
        starts = (file for file in reversed(files) if not file.first or self._known_time(file.first) <= timestamp)
        return next(starts, None)

    def _known_time(self, unit: Unit) -> int:
        store_time = self._time(unit)
        return store_time if store_time > 0 else _NO_TIME

    def _search(self, file: QueueFile, timestamp: int, boundary: Boundary, limits: tuple[int, int]) -> int:
        low, high = limits
        left = right = -1
        first = file.mapped.start_offset // self.queue.queue.unit_size
        while low <= high:
            middle = (low + high) // 2
            unit = file.unit(middle)
            if unit.physical_offset < self.log.min_offset:
                left, low = middle, middle + 1
                continue
            store_time = self._time(unit)
            if store_time < 0:
                return 0
            if store_time == timestamp:
                return first + self._end_of_equals(file, middle, timestamp, boundary, limits)
            if store_time > timestamp:
                right, high = middle, middle - 1
            else:
                left, low = middle, middle + 1
        unit_index = right if boundary == "lower" else left
        return _offset(file, self.queue.queue.unit_size, unit_index)

    def _end_of_equals(
        self, file: QueueFile, unit_index: int, timestamp: int, boundary: Boundary, limits: tuple[int, int]
    ) -> int:
        """The first or the last of the neighbours with the same store time."""
        step = -1 if boundary == "lower" else 1
        while limits[0] <= unit_index + step <= limits[1] and self._time(file.unit(unit_index + step)) == timestamp:
            unit_index += step
        return unit_index

    # Batch queues, whose units hold their store times

    def _in_batches(self, timestamp: int, boundary: Boundary) -> int:
        """`BatchConsumeQueue#getOffsetInQueueByTime`; -1 without a unit."""
        files = [file for file in self.queue.files if file.first]
        if not files:
            return -1
        file = next((file for file in reversed(files) if _stored(file.first) <= timestamp), files[0])
        if timestamp >= _stored(file.last):
            return file.last.queue_offset if file.last else -1
        unit_index = _search_right(file, timestamp, boundary)
        return -1 if unit_index < 0 else file.unit(unit_index).queue_offset


def _search_right(file: QueueFile, timestamp: int, boundary: Boundary) -> int:
    """`BatchConsumeQueue#binarySearchRight`, step by step: its answer depends on the steps."""
    left, right = 0, file.count - 1
    while left <= right:
        middle = (left + right) // 2
        store_time = _stored(file.unit(middle))
        if middle == right:
            return middle if store_time >= timestamp else -1
        if middle == left:
            if store_time >= timestamp:
                return middle
            left = middle + 1
        elif boundary == "lower":
            left, right = (middle + 1, right) if store_time < timestamp else (left, middle)
        else:
            left, right = (middle, right) if store_time <= timestamp else (left, middle - 1)
    return -1


def _stored(unit: Unit | None) -> int:
    return unit.store_timestamp if unit and unit.store_timestamp is not None else _NO_TIME


def _nearest(file: QueueFile, timestamp: int, left: tuple[int, int] | None, right: tuple[int, int] | None) -> int:
    """Queue offset of the nearer one of two units; without any the index is -1, as in the broker."""
    left_time, right_time = left[1] if left else _NO_TIME, right[1] if right else _NO_TIME
    if left_time == _NO_TIME:
        chosen = right
    elif right_time == _NO_TIME:
        chosen = left
    else:
        chosen = right if abs(timestamp - left_time) > abs(timestamp - right_time) else left
    return _offset(file, 20, chosen[0] if chosen else -1)


def _offset(file: QueueFile, unit_size: int, unit_index: int) -> int:
    """Queue offset of a unit by its index in a file; -1 means a position of -1 byte, divided as Java does."""
    position = file.mapped.start_offset + (unit_index * unit_size if unit_index >= 0 else -1)
    return position // unit_size if position >= 0 else 0


def _modified(file: QueueFile) -> int:
    """Modification time, epoch ms, as `File#lastModified` gives it."""
    if is_remote(file.mapped.path):
        message = "the broker takes the file by the time when it was written, which does not come along to here"
        raise UnsupportedError(message, file=file.mapped.path, hint="copy the queue with its times (cp -p, rsync -t)")
    try:
        return file.mapped.path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise UnreadableError(f"cannot read: {reason_of(error)}", file=file.mapped.path) from error
