"""The queue offset for a moment, as each release answers it (`ConsumeQueue#getOffsetInQueueByTime`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from rmqtool.base.errors import UnreadableError, UnsupportedError, reason_of
from rmqtool.base.paths import is_remote
from rmqtool.rules.versions import ROWS_BY_BOUNDARY, ROWS_LOOK_AT_ENDS, TIME_BY_RECORDS, TIME_WITHIN_RANGE, Version
from rmqtool.store.commit_log import LogBytes
from rmqtool.store.queue_units import LoadedQueue, QueueFile, Unit

Boundary = Literal["lower", "upper"]
"""`BoundaryType`: the first unit stored at the moment or later, or the last one stored then or before."""

_NO_TIME = -1


class _Found(NamedTuple):
    """What a search by halves has found: a unit of the moment (`equal`), else the nearest before and after it.

    Units are numbers, -1 without one; times are epoch ms.
    """

    left: int = -1
    left_time: int = _NO_TIME
    right: int = -1
    right_time: int = _NO_TIME
    equal: int | None = None

    def nearest(self, timestamp: int) -> int:
        """The nearer one of the two units."""
        if _NO_TIME in (self.left_time, self.right_time):
            return self.right if self.left_time == _NO_TIME else self.left
        return self.right if timestamp - self.left_time > self.right_time - timestamp else self.left


@dataclass(frozen=True)
class _Search:
    """A search by halves among the units `first` to `last`; `time_of` gives the store time of one, epoch ms."""

    unit_at: Callable[[int], Unit | None]
    time_of: Callable[[Unit], int]
    first: int
    last: int

    def find(self, timestamp: int, log_min_offset: int, *, checks_times: bool = True) -> _Found | None:
        """Search as a broker does; None where it meets a unit without a time, if it `checks_times`."""
        low, high, found = self.first, self.last, _Found()
        while low <= high:
            middle = (low + high) // 2
            unit = self.unit_at(middle)
            if unit is None:
                low = middle + 1
                continue
            if unit.physical_offset < log_min_offset:
                found, low = found._replace(left=middle), middle + 1
                continue
            time = self.time_of(unit)
            if time < 0 and checks_times:
                return None
            if time == timestamp:
                return found._replace(equal=middle)
            if time > timestamp:
                found, high = found._replace(right=middle, right_time=time), middle - 1
            else:
                found, low = found._replace(left=middle, left_time=time), middle + 1
        return found

    def boundary(self, timestamp: int, boundary: Boundary, log_min_offset: int) -> int | None:
        """The unit at a boundary: of several of one moment the first or the last; None where 0 is the answer."""
        found, step = self.find(timestamp, log_min_offset), -1 if boundary == "lower" else 1
        if found is None:
            return None
        if found.equal is None:
            return found.right if boundary == "lower" else found.left
        number = found.equal
        while self.first <= number + step <= self.last:
            unit = self.unit_at(number + step)
            if unit is None or self.time_of(unit) != timestamp:
                break
            number += step
        return number


def offset_in_rows(
    queue: LoadedQueue, timestamp: int, boundary: Boundary, log_min_offset: int, *, looks_at_ends: bool = True
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
    return _Search(queue.unit_at, _time, floor, ceiling).boundary(timestamp, boundary, log_min_offset) or 0


def nearest_in_rows(queue: LoadedQueue, timestamp: int, log_min_offset: int) -> int:
    """The offset that 5.2.0 answers, without a boundary: of the unit whose store time is nearest."""
    search = _Search(queue.unit_at, _time, queue.range.min_offset, queue.range.max_offset - 1)
    found = search.find(timestamp, log_min_offset, checks_times=False) or _Found()
    return found.nearest(timestamp) if found.equal is None else found.equal


def _time(unit: Unit) -> int:
    return unit.store_timestamp or 0


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
        search = _Search(file.unit, self._time, self._first_unit(file), file.count - 1)
        found = search.find(timestamp, self.log.min_offset)
        if found is None:
            return 0
        if found.equal is not None:
            return file.unit(found.equal).queue_offset
        return _offset(file, 20, found.nearest(timestamp))

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
        search = _Search(file.unit, self._time, floor, ceiling)
        unit_index = search.boundary(timestamp, boundary, self.log.min_offset)
        return 0 if unit_index is None else _offset(file, self.queue.queue.unit_size, unit_index)

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


def _offset(file: QueueFile, unit_size: int, unit_index: int) -> int:
    """Queue offset of a unit by its index in a file; -1 means a position of -1 byte, divided as Java does."""
    position = file.mapped.start_offset + (unit_index * unit_size if unit_index >= 0 else -1)
    return position // unit_size if position >= 0 else 0


def _modified(file: QueueFile) -> int:
    """Modification time, epoch ms, as `File#lastModified` gives it."""
    if is_remote(file.mapped.path):
        message = "the broker chooses the file by its modification time, which is not known here"
        raise UnsupportedError(message, file=file.mapped.path, hint="copy the queue with its times (cp -p, rsync -t)")
    try:
        return file.mapped.path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise UnreadableError(f"cannot read: {reason_of(error)}", file=file.mapped.path) from error
