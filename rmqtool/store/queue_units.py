"""Units of one consume queue by queue offset, as a broker that has loaded the queue sees them; and its minimum.

`ConsumeQueue#getIndexBuffer`, `BatchConsumeQueue#getBatchMsgIndexBuffer`; `correctMinOffset` of both.

A start and each deletion of log files move the minimum to the first unit that still points into the commit log. Before
5.0.0 the units of the first file are walked one by one, since then they are searched, and the last unit decides whether
the queue has expired. A batch queue has always been walked. A queue in RocksDB is searched row by row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError, note_failure
from rmqtool.base.files import UNLIMITED, InputFile, OpenFiles
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.formats.consume_queue import EXT_HEADER_DTYPE, MAX_EXT_ADDRESS, UNIT_SIZE, is_ext_address
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, Version
from rmqtool.store.consume_queues import UNIT_FORMATS, Queue, queue_in
from rmqtool.store.rocksdb_queues import NO_UNIT, LastUnit, QueueDatabase, QueueKey
from rmqtool.store.store import CONSUME_QUEUE_EXT, Store
from rmqtool.store.unit_files import Offsets, RocksDbUnits, UnitFiles, open_units

_EXT_UNITS = "enableConsumeQueueExt"
_EXT_WINDOW = 1 << 16  # bytes of an ext file that are read at once


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What a broker reports for a queue: offsets (the maximum exclusive), and the physical offset in its last unit.

    `expired` is set when all units point below the commit log: the minimum then depends on the release.
    """

    min_offset: int
    max_offset: int
    last_physical_offset: int | None = None
    expired: bool = False

    @property
    def held(self) -> range:
        """The queue offsets that the queue has, which may be none."""
        return range(self.min_offset, self.max_offset)


def queue_range(
    queue: Queue, log_min_offset: int, version: Version, min_offset: int = 0, opened: UnitFiles | None = None
) -> QueueRange:
    """The range of a queue as it stands; `log_min_offset` is the commit log's minimum, -1 without a file.

    `min_offset` is the queue's minimum so far, which stays when no unit is found; a broker that starts begins with 0.
    `opened` are its units, where they are read for something else, too.
    """
    if queue.database:
        return _rocksdb_range(queue.database, (queue.topic, queue.queue_id), log_min_offset)
    files = queue.files.files
    if not files:
        return QueueRange(0 if queue.kind == "simple" else -1, 0)
    with open_units(queue, opened=opened) as units:
        return _range_in_files(units, min_offset, log_min_offset, version)


def _range_in_files(units: UnitFiles, min_offset: int, log_min_offset: int, version: Version) -> QueueRange:
    """The same of the units of a queue that has files."""
    files = units.files
    file_index, count = units.recovered_end()
    in_first = count if file_index == 0 else units.room_of(files[0])  # files before the last one count as full
    if units.queue.kind == "batch":
        return _batch_range(units, in_first, file_index, count, log_min_offset)
    last = int(units.offsets_in(files[file_index], count)[count - 1]) if count else None
    max_offset = files[file_index].start_offset // units.size + count
    known = QueueRange(min_offset, max_offset, last)
    return _simple_range(units, in_first, known, log_min_offset, version)


def moved_range(queue: Queue, known: QueueRange, log_min_offset: int, version: Version) -> QueueRange:
    """The range of a queue that was `known` before its first files were deleted, or before the log began later."""
    files = queue.files.files
    written = 0
    if queue.kind == "simple" and files and known.last_physical_offset is not None:
        units_left = known.max_offset - files[0].start_offset // queue.unit_size
        written = min(files[0].size // queue.unit_size, units_left)
    if written <= 0:
        return queue_range(queue, log_min_offset, version, known.min_offset)
    with open_units(queue) as units:
        return _simple_range(units, written, known, log_min_offset, version)


def _rocksdb_range(database: QueueDatabase, key: QueueKey, log_min_offset: int) -> QueueRange:
    """The range of a queue in RocksDB, which ends where its `max` row says."""
    known = database.last_of(key)
    last = known or NO_UNIT
    physical_offset_at = partial(database.physical_offset, key)
    first = rows_min_offset(database.first_of(key), known, log_min_offset, physical_offset_at)
    is_expired = 0 <= last.queue_offset < first
    return QueueRange(
        first, last.queue_offset + 1, last.physical_offset if last.queue_offset >= 0 else None, is_expired
    )


def _simple_range(
    units: UnitFiles, in_first: int, known: QueueRange, log_min_offset: int, version: Version
) -> QueueRange:
    """`known` with its minimum moved; the queue's first file holds `in_first` units."""
    last, size, first = known.last_physical_offset, units.size, units.files[0]
    offsets = units.offsets_in(first, in_first)
    queue = SimpleQueue(first.start_offset, offsets, known.max_offset * size, last, known.min_offset * size)
    min_offset, is_expired = queue.min_offset(log_min_offset, version), queue.is_expired(log_min_offset)
    if (min_offset, is_expired) == (known.min_offset, known.expired):
        return known
    return QueueRange(min_offset, known.max_offset, last, is_expired)


def _batch_range(units: UnitFiles, in_first: int, file_index: int, count: int, log_min_offset: int) -> QueueRange:
    """The range of a batch queue whose last file, at `file_index`, holds `count` units."""
    files = units.files
    offsets = units.offsets_in(files[0], in_first)
    min_offset = batch_min_offset(offsets, partial(units.unit_in, files[0]), log_min_offset)
    if count == 0 and file_index > 0:  # BatchConsumeQueue#reviseMaxOffsetInQueue
        file_index, count = file_index - 1, units.room_of(files[file_index - 1])
    if count == 0:
        return QueueRange(min_offset, 0)
    last = units.unit_in(files[file_index], count - 1)
    return QueueRange(min_offset, end_of_batch(last), int(last["physical_offset"]))


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


_READ_UNITS = 800  # as many as a pull reads by default


@dataclass(frozen=True)
class Unit:
    """One unit; `queue_offset` is that of its first message, `position` the unit's in `file`, bytes.

    `store_timestamp` is stored in units of batch queues only, epoch ms.
    """

    queue_offset: int
    physical_offset: int
    message_size: int
    tags_code: int
    file: Path
    position: int
    batch_size: int = 1
    store_timestamp: int | None = None


def find_queue(store: Store, topic: str, queue_id: int, database: QueueDatabase | None = None) -> Queue | None:
    """The queue of a topic: its directory, else its rows in a `database`; None without them.

    A topic is one name, never a path.
    """
    is_name = topic and not ("/" in topic or "\0" in topic or topic in (".", ".."))
    for kind, units in UNIT_FORMATS.items() if is_name else ():
        path = store.root.joinpath(units.directory, topic, str(queue_id))  # asked of many queues that are not there
        if _is_directory(path):
            return Queue(topic, queue_id, kind, list_mapped_files(path))
    is_in_rows = database is not None and database.last_of((topic, queue_id)) is not None
    return queue_in(database, topic, queue_id) if database and is_in_rows else None


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # also a name longer than the file system allows
        note_failure(path, error)
    except UnicodeError:
        pass  # a name that cannot be encoded
    return False


@dataclass(eq=False)
class QueueFile:
    """One file of a queue as loaded: `count` units are written."""

    queue: Queue
    mapped: MappedFile
    count: int

    @cached_property
    def first(self) -> Unit | None:
        """The first unit."""
        return next(self.units(0, 1), None)

    @cached_property
    def last(self) -> Unit | None:
        """The last unit."""
        return next(self.units(self.count - 1, 1), None) if self.count else None

    def unit(self, index: int) -> Unit:
        """One written unit, by its index in the file."""
        return next(self.units(index, 1))

    def units(self, index: int, count: int | None = None) -> Iterator[Unit]:
        """At most `count` units from `index` on."""
        left = self.count - index if count is None else min(count, self.count - index)
        with open_units(self.queue) as files:
            while left > 0:
                rows = files.units_in(self.mapped, index, min(left, _READ_UNITS)).tolist()
                if not rows:
                    return
                yield from (self._unit(row, row_index) for row_index, row in enumerate(rows, index))
                index, left = index + len(rows), left - len(rows)

    def _unit(self, row: tuple[int, ...], index: int) -> Unit:
        position = index * self.queue.unit_size
        if self.queue.kind == "simple":
            queue_offset = self.mapped.start_offset // self.queue.unit_size + index
            return Unit(queue_offset, row[0], row[1], row[2], self.mapped.path, position)
        return Unit(row[4], row[0], row[1], row[2], self.mapped.path, position, row[5], row[3])


class LoadedQueue:
    """A queue with its range, and the files that a broker has after loading it."""

    def __init__(self, queue: Queue, queue_range: QueueRange) -> None:
        self.queue = queue
        self.range = queue_range
        self.file_units = queue.files.file_size // queue.unit_size

    @cached_property
    def files(self) -> list[QueueFile]:
        """The files that a start keeps, in order."""
        with open_units(self.queue) as units:
            last, written = units.recovered_end()
        files = self.queue.files.files[: last + 1]
        size = self.queue.unit_size
        return [
            QueueFile(self.queue, mapped, written if index == last else mapped.size // size)
            for index, mapped in enumerate(files)
        ]

    def units_from(self, queue_offset: int, count: int | None = None) -> Iterator[Unit] | None:
        """The units from the one that holds `queue_offset` to the end of its file; None when the broker has no file.

        Of a queue that is no batch queue at most `count`.
        """
        if self.queue.kind == "batch":
            return self._batch_units_from(queue_offset)
        byte = queue_offset * self.queue.unit_size
        for file in self.files:
            if file.mapped.holds(byte):
                index = (byte - file.mapped.start_offset) // self.queue.unit_size
                return file.units(index, count) if index < file.count else None
        return None

    def unit_at(self, queue_offset: int) -> Unit | None:
        """The unit that holds a queue offset, whatever the minimum; None without one."""
        unit = next(self.units_from(queue_offset, count=1) or iter(()), None)
        if unit is None or not unit.queue_offset <= queue_offset < unit.queue_offset + unit.batch_size:
            return None
        return unit

    def find(self, physical_offset: int) -> Unit | None:
        """The unit that points at a physical offset; units are taken to ascend, as the broker writes them."""
        found = self._last_at(attrgetter("physical_offset"), physical_offset)
        unit = found[0].unit(found[1]) if found else None
        return unit if unit and unit.physical_offset == physical_offset else None

    def _last_at(self, key: Callable[[Unit], int], most: int) -> tuple[QueueFile, int] | None:
        """The file and the index of the last unit whose `key`, which ascends, is at most `most`; None without one."""
        for file in reversed(self.files):
            if file.first is not None and key(file.first) <= most:
                return file, _last(file, lambda unit: key(unit) <= most)
        return None

    def units_behind(self, physical_offset: int) -> Iterator[Unit]:
        """The units that point after a physical offset, to the end of the queue; they are taken to ascend."""
        for file in self.files:
            if file.last is None or file.last.physical_offset <= physical_offset or file.first is None:
                continue
            before = file.first.physical_offset <= physical_offset
            index = _last(file, lambda unit: unit.physical_offset <= physical_offset) + 1 if before else 0
            yield from file.units(index)

    def next_file(self, queue_offset: int) -> int:
        """The next offset of a pull when no file holds `queue_offset` (`rollNextFile`; 0 in a batch queue)."""
        if self.queue.kind == "batch" or not self.file_units:
            return 0
        return queue_offset + self.file_units - queue_offset % self.file_units

    def _batch_units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        is_there = queue_offset < self.range.max_offset
        found = self._last_at(attrgetter("queue_offset"), queue_offset) if is_there else None
        return found[0].units(found[1]) if found else None


def _last(file: QueueFile, holds: Callable[[Unit], bool]) -> int:
    """Index of the last unit for which `holds` is true; it is true for the first, and false after a false one."""
    return bisect_left(range(file.count), True, key=lambda index: not holds(file.unit(index))) - 1


class LoadedRows(LoadedQueue):
    """A queue in RocksDB with its range; a unit is only at the queue offset of its row, also that of a batch."""

    @property
    def files(self) -> list[QueueFile]:
        """None: it has rows."""
        return []

    @cached_property
    def _units(self) -> RocksDbUnits:
        if self.queue.database is None:
            raise ValueError("a queue in files")
        return RocksDbUnits(self.queue, self.queue.database, OpenFiles(UNLIMITED))

    def units_from(self, queue_offset: int, count: int | None = None) -> Iterator[Unit] | None:
        """At most `count` units from `queue_offset` to before the first without a row; None where that is the first."""
        end = self.range.max_offset if count is None else min(queue_offset + count, self.range.max_offset)
        units = self._rows_from(max(0, queue_offset), end, gaps=False)
        first = next(units, None)
        return None if first is None or first.queue_offset != queue_offset else chain([first], units)

    def find(self, physical_offset: int) -> Unit | None:
        """The unit that points at a physical offset; units are taken to ascend."""
        unit = next(self.units_behind(physical_offset - 1), None)
        return unit if unit is not None and unit.physical_offset == physical_offset else None

    def units_behind(self, physical_offset: int) -> Iterator[Unit]:
        """The units that point after a physical offset, to the end of the queue; they are taken to ascend."""
        yield from self._rows_from(self._units.bisect(physical_offset + 1), self.range.max_offset, gaps=True)

    def next_file(self, queue_offset: int) -> int:  # noqa: ARG002
        """The next offset of a pull that finds no unit (`RocksDBConsumeQueue#rollNextFile`)."""
        return 0

    def _rows_from(self, first: int, stop: int, *, gaps: bool) -> Iterator[Unit]:
        """The units from `first` to before `stop`, with `gaps` also those after the first that has no row."""
        path = self._units.location_of(first)[0]
        while first < stop and path:
            rows = self._units.rows(first, stop, most=_READ_UNITS)
            for offset, (physical_offset, size, tags_code, timestamp) in zip(
                rows.offsets.tolist(), rows.values.tolist(), strict=True
            ):
                if offset != first and not gaps:
                    return
                yield Unit(offset, physical_offset, size, tags_code, path, 0, store_timestamp=timestamp)
                first = offset + 1
            if len(rows.offsets) < _READ_UNITS:
                return


class ExtTags:
    """The ext units of one queue, by their addresses."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self._directory = store.root / CONSUME_QUEUE_EXT / queue.topic / str(queue.queue_id)
        self._files = list_mapped_files(self._directory).files if self._directory.is_dir() else ()

    def tags_code(self, stored: int) -> int | None:
        """The tags code that a unit stores, or that of the ext unit at its address; None without that ext unit."""
        code = int(self.tags_codes(np.array([stored], np.int64))[0]) if is_ext_address(stored) else stored
        return None if is_ext_address(code) else code

    def tags_codes(self, stored: NDArray[np.int64]) -> NDArray[np.int64]:
        """Stored tags codes, those of ext units in the place of their addresses; one without an ext unit stays."""
        codes = stored.astype(np.int64)
        offsets = np.where(codes <= MAX_EXT_ADDRESS, codes & np.iinfo(np.int64).max, -1)  # `ext_offset` of each
        for mapped in self._files if (offsets >= 0).any() else ():
            rows = np.flatnonzero((offsets >= mapped.start_offset) & (offsets < mapped.start_offset + mapped.size))
            windows = (offsets[rows] - mapped.start_offset) // _EXT_WINDOW
            for window in np.unique(windows).tolist():
                here, begin = rows[windows == window], window * _EXT_WINDOW
                places = offsets[here] - mapped.start_offset
                units = _ext_units(mapped.path, begin, places - begin)
                is_there = (units["size"] > 0) & (places + units["size"] <= mapped.size)  # `CqExtUnit#read`
                found = units["tags_code"][is_there].astype(np.int64)
                low = found.astype(np.int32)  # all that filters compare of what no tag has
                codes[here[is_there]] = np.where(found <= MAX_EXT_ADDRESS, low, found)
        return codes


def with_ext_codes(store: Store, queue: Queue, stored: NDArray[np.void]) -> NDArray[np.void]:
    """Units of a queue with the tags codes of their ext units, as far as these are there and can be read."""
    addresses = stored["tags_code"].astype(np.int64)
    if not (addresses <= MAX_EXT_ADDRESS).any() or not store.has_ext_units:
        return stored
    with suppress(UnreadableError):
        codes = ExtTags(store, queue).tags_codes(addresses)
        stored = stored.copy()
        stored["tags_code"] = codes
    return stored


def reads_ext_units(store: Store) -> bool:
    """Whether a broker reads ext units: by default it does not, and sends what has one for any tag."""
    return store.conf.is_on(_EXT_UNITS, default=not store.conf.decides(_EXT_UNITS))


def _ext_units(path: Path, begin: int, places: NDArray[np.int64]) -> NDArray[np.void]:
    """The heads of the ext units at some places after position `begin` of a file."""
    size = EXT_HEADER_DTYPE.itemsize
    with InputFile(path) as file:
        data = file.read(begin, _EXT_WINDOW + size).ljust(_EXT_WINDOW + size, b"\0")
    heads = np.frombuffer(data, np.uint8)[places[:, np.newaxis] + np.arange(size)]
    units: NDArray[np.void] = heads.view(EXT_HEADER_DTYPE).reshape(-1)
    return units
