"""The store's queues, in files and in RocksDB: the units that a rebuild keeps, and the places of those it writes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.formats import consume_queue
from rmqtool.formats.consume_queue import PRE_BLANK_MESSAGE_SIZE, UNIT_DTYPE, UNIT_SIZE, is_pre_blank
from rmqtool.formats.rocksdb_rows import QUEUE_UNIT_DTYPE, queue_prefix
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind, UnitFormat
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.rocksdb_queues import LastUnit, QueueDatabase, Rows
from rmqtool.store.unit_files import UnitFiles, count_leading

Units = NDArray[Any]
"""Consecutive stored units of one queue, one element each."""

Timestamps = NDArray[Any]
"""The store timestamp of each unit's message, epoch ms."""


class Piece(NamedTuple):
    """Units ``low:high`` of those that are put, which belong at byte `position` of the file that starts at `start`."""

    start: int
    position: int
    low: int
    high: int


@dataclass(frozen=True)
class FileGrid:
    """Files of `file_size` bytes, filled with as many units of `unit_size` bytes as fit as a whole."""

    file_size: int
    unit_size: int

    @property
    def units_per_file(self) -> int:
        """How many units a file holds."""
        return self.file_size // self.unit_size

    def start_of(self, unit_number: int) -> int:
        """Where the file of unit `unit_number` starts in the queue, bytes."""
        return unit_number // self.units_per_file * self.file_size

    def first_unit(self, start: int) -> int:
        """Number of the first unit of the file that starts at `start`."""
        return start // self.file_size * self.units_per_file

    def pieces(self, unit_number: int, count: int) -> Iterator[Piece]:
        """The parts of `count` units from unit `unit_number` on that lie in one file each."""
        done = 0
        while done < count:
            in_file = (unit_number + done) % self.units_per_file
            high = min(count, done + self.units_per_file - in_file)
            yield Piece(self.start_of(unit_number + done), in_file * self.unit_size, done, high)
            done = high


class UnitSink(Protocol):
    """Takes the units of all queues of one kind."""

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Put units of one queue from unit `unit_number` on; they replace units that were put there before."""

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """End the queue before unit `unit_number`: units that were put from there on are dropped."""


class IndexWriter(Protocol):
    """Writes index files, one after the other."""

    def begin(self, name: str) -> None:
        """Create a file."""

    def put(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes of the file; bytes that are never put are zero."""

    def finish(self, timestamp: int) -> None:
        """Complete the file; `timestamp` is that of its last put, epoch ms."""


T = TypeVar("T")
RAW_UNIT = np.dtype(f"V{UNIT_SIZE}")
_GROWTH = 1 << 16  # units


class StoredUnits(NamedTuple):
    """Units in log order, one array for each field, all of the same length; `units` are `RAW_UNIT`."""

    queues: NDArray[Any]
    queue_offsets: NDArray[Any]
    units: Units
    timestamps: Timestamps

    @classmethod
    def of(cls, units: QueueUnits) -> StoredUnits:
        """The units that a dispatcher derives, encoded while they are in the processor's cache."""
        stored = units.as_consume_queue().view(RAW_UNIT)
        return cls(units.queues, units.queue_offsets, stored, units.store_timestamps)

    def rows(self, rows: slice | NDArray[Any]) -> StoredUnits:
        """Some of the units."""
        return StoredUnits(*(column[rows] for column in self))


class Prefix(NamedTuple):
    """The units of a queue before the first one of the log; `first` is the number of the first one."""

    first: int
    units: Units
    timestamps: Timestamps


class UnitBuffer:
    """Collects units in arrays that are used again: fresh memory costs page faults."""

    def __init__(self) -> None:
        self.count = 0
        self._columns = _columns(0)

    def add(self, units: StoredUnits) -> None:
        """Copy units after those that are held."""
        end = self.count + len(units.queues)
        if end > len(self._columns.queues):
            larger = _columns(max(end, 2 * self.count) + _GROWTH)
            for old, new in zip(self._columns, larger, strict=True):
                new[: self.count] = old[: self.count]
            self._columns = larger
        for held, column in zip(self._columns, units, strict=True):
            held[self.count : end] = column
        self.count = end

    def drain(self) -> StoredUnits:
        """All collected units, valid until the next `add`; the buffer is empty then."""
        units = self._columns.rows(slice(0, self.count))
        self.count = 0
        return units


def physical_offsets(units: Units) -> NDArray[np.int64]:
    """The physical offsets in stored units, bytes."""
    offsets: NDArray[np.int64] = units.view(UNIT_DTYPE)["physical_offset"].astype(np.int64)
    return offsets


def placeholder_units(following: Units, count: int, missing: int | None) -> Units:
    """Units in place of lost messages, harmless to consumers.

    A pull skips a unit that points to a missing file. Where no file is missing it must point to a message, or garbage
    is delivered: the `following` message then comes more than once, always with its own queue offset.
    """
    units = np.repeat(following, count)
    if missing is not None:
        units.view(UNIT_DTYPE)["physical_offset"] = missing
    return units


def pre_blank_units(count: int) -> Units:
    """`count` units of filler (`ConsumeQueue#fillPreBlank`)."""
    units = np.zeros(count, dtype=UNIT_DTYPE)
    units["message_size"] = PRE_BLANK_MESSAGE_SIZE
    return units.view(RAW_UNIT)


def _columns(count: int) -> StoredUnits:
    queues_and_offsets = np.empty(count, np.int32), np.empty(count, np.int64)
    return StoredUnits(*queues_and_offsets, np.empty(count, RAW_UNIT), np.empty(count, np.int64))


_MS = 1_000_000  # ns


@dataclass(frozen=True)
class ExistingQueues:
    """The queues of one kind in the store, by name; files whose size does not fit the grid are ignored."""

    kind: Kind
    grid: FileGrid
    log_min_offset: int  # the commit log's minimum, bytes; -1 without a file
    queues: Mapping[QueueName, UnitFiles]

    @property
    def format(self) -> UnitFormat:
        """How units of this kind are stored."""
        return UNIT_FORMATS[self.kind]

    def file(self, name: QueueName, start: int) -> MappedFile | None:
        """The file of a queue with a start offset, None without one."""
        units = self.queues.get(name)
        files = units.files if units else ()
        index = bisect_left(files, start, key=lambda file: file.start_offset)
        file = files[index] if index < len(files) else None
        return file if file and file.start_offset == start and file.size == self.grid.file_size else None

    def unit_at(self, name: QueueName, unit_number: int) -> np.void | None:
        """The unit with a number, None where none is written."""
        start = self.grid.start_of(unit_number)
        file = self.file(name, start)
        if file is None:
            return None
        units = self.queues[name].units_in(file, unit_number - self.grid.first_unit(start), 1)
        unit: np.void | None = units[0] if self.format.is_written(units).any() else None
        return unit

    def units_before_log(
        self, name: QueueName, unit_number: int, timestamp: int, *, all_files: bool
    ) -> Iterator[Prefix]:
        """The units before the first one of the log in a simple queue: those that point below the log, behind filler.

        Filler stands at the beginning of a queue alone: of the units before a gap none is kept, nor are their files.
        Without `all_files` they are those of its own file.
        """
        start = self.grid.start_of(unit_number)
        while all_files and start > 0 and self.file(name, start - self.grid.file_size):
            start -= self.grid.file_size
        first = self.grid.first_unit(start)
        pieces = [*self.grid.pieces(first, unit_number - first)]
        has_gap = (len(self._kept(name, piece)) < piece.high - piece.low for piece in reversed(pieces))
        behind = next((count for count, found in enumerate(has_gap, 1) if found), len(pieces))
        for piece in pieces[len(pieces) - behind :]:
            file, kept, count = self.file(name, piece.start), self._kept(name, piece), piece.high - piece.low
            units = pre_blank_units(count)
            units[count - len(kept) :] = kept.view(units.dtype)
            is_older = piece.high < unit_number - first
            time = file.path.stat().st_mtime_ns // _MS if file and is_older else timestamp
            yield Prefix(first + piece.low, units, np.full(count, time))

    def _kept(self, name: QueueName, piece: Piece) -> NDArray[np.void]:
        """The last units of a piece that point below the log, one after the other."""
        file = self.file(name, piece.start)
        if file is None:
            return np.empty(0, consume_queue.UNIT_DTYPE)
        stored = self.queues[name].units_in(file, piece.position // self.grid.unit_size, piece.high - piece.low)
        others = ~consume_queue.is_written(stored) | (stored["physical_offset"] >= self.log_min_offset)
        others |= consume_queue.is_pre_blank(stored)
        return stored[np.flatnonzero(others)[-1] + 1 :] if others.any() else stored

    def batch_units_before_log(self, name: QueueName) -> Prefix | None:
        """The units before the first one of the log in a batch queue: those that point below the log."""
        queue = self.queues.get(name)
        files = [file for file in queue.files if file.size == self.grid.file_size] if queue else []
        if not queue or not files or self.log_min_offset <= 0:
            return None  # with a log from offset 0 the whole queue is derived
        first = self.grid.first_unit(files[0].start_offset)
        kept: list[NDArray[np.void]] = []
        for file in files:
            units = queue.units_in(file, 0, queue.room_of(file))
            below = self.format.is_written(units) & (units["physical_offset"] < self.log_min_offset)
            count = count_leading(below)
            kept.append(units[:count])
            if count < len(units):
                break
        # Raw bytes, since `concatenate` converts numbers to the machine's byte order.
        joined = np.concatenate([units.view(f"V{self.grid.unit_size}") for units in kept])
        stored = joined.view(self.format.dtype)
        return Prefix(first, joined, stored["store_timestamp"].astype(np.int64))


class OptionalUnits:
    """Decides about the optional units of one pass; `undecided` counts by queue those not in the store."""

    def __init__(self, existing: ExistingQueues, names: Sequence[QueueName]) -> None:
        """`names` are the queues by number, and grow with the pass."""
        self.undecided: Counter[QueueName] = Counter()
        self._existing = existing
        self._names = names

    def merged(self, units: StoredUnits, optional: StoredUnits) -> StoredUnits:
        """`units` of a run of records with the `optional` ones that are stored, in log order."""
        offsets = physical_offsets(optional.units).tolist()
        locations = zip(optional.queues.tolist(), optional.queue_offsets.tolist(), offsets, strict=True)
        kept = np.array([self._is_stored(*unit) for unit in locations], dtype=np.bool_)
        if not kept.any():
            return units
        both = StoredUnits(*(np.concatenate(pair) for pair in zip(units, optional.rows(kept), strict=True)))
        return both.rows(np.argsort(physical_offsets(both.units), kind="stable"))

    def _is_stored(self, queue: int, unit_number: int, physical_offset: int) -> bool:
        name = self._names[queue]
        unit = self._existing.unit_at(name, unit_number) if unit_number >= 0 else None
        if unit is None:
            self.undecided[name] += 1
            return False
        return int(unit["physical_offset"]) == physical_offset


UNITS, ENDS = "default", "offset"  # the column families
MAX_OFFSET = (1 << 63) - 1
_NO_ROWS = Rows(np.empty(0, np.int64), np.empty(0, QUEUE_UNIT_DTYPE))


def rows_of(kind: Kind, unit_number: int, units: Units, timestamps: Timestamps, log_min_offset: int) -> Rows:
    """The rows of consecutive stored units, of which unit `unit_number` is the first."""
    stored = units.view(UNIT_FORMATS[kind].dtype)
    values = np.empty(len(stored), QUEUE_UNIT_DTYPE)
    for field in ("physical_offset", "message_size", "tags_code"):
        values[field] = stored[field]
    values["store_timestamp"] = timestamps
    kept = stored["physical_offset"] >= log_min_offset
    if kind == "batch":
        offsets = stored["base_queue_offset"].astype(np.int64)
    else:
        offsets = np.arange(unit_number, unit_number + len(stored), dtype=np.int64)
        kept &= ~is_pre_blank(stored)
    return Rows(offsets, values) if kept.all() else Rows(offsets[kept], values[kept])


def name_prefix(name: QueueName) -> bytes:
    """What the keys of a queue's units begin with."""
    return queue_prefix(encoded(name), name.queue_id)


def encoded(name: QueueName) -> bytes:
    """A queue's topic as Java writes it."""
    return name.topic.encode("utf-8", "replace")


class StoredRows:
    """The rows of the database that is at `path`, or may be; `problem` says why not all of them can be read.

    What cannot be read counts as missing.
    """

    def __init__(self, path: Path, database: QueueDatabase | None) -> None:
        """`database` is None where there is none that can be opened."""
        self.path = path
        self.problem: str | None = None
        self._database = database

    @cached_property
    def lasts(self) -> Mapping[QueueName, LastUnit]:
        """The last unit of each queue."""
        return self._read(lambda database: {QueueName(*queue): last for queue, last in database.lasts.items()}, {})

    def begins_behind(self, name: QueueName, queue_offset: int, log_min_offset: int) -> bool:
        """Whether the min row, as long as a broker trusts it, has a queue begin after a queue offset."""
        first = self._read(lambda database: database.first_of(name), None)
        return first is not None and first.begins_behind(queue_offset, log_min_offset)

    @property
    def dispatched_end(self) -> int:
        """The physical offset after the last record that was dispatched; 0 where it is not known."""
        return self._read(lambda database: database.dispatched_end, None) or 0

    def rows(self, name: QueueName, first: int, end: int = MAX_OFFSET) -> Rows:
        """The rows of a queue from queue offset `first` to before `end`."""
        return self._read(lambda database: database.units(name, first, end), _NO_ROWS)

    def unit_at(self, name: QueueName, queue_offset: int) -> np.void | None:
        """The value of the row at a queue offset; None without one."""
        found = self.rows(name, queue_offset, queue_offset + 1).values
        return found[0] if len(found) else None

    def foreign(self, derived: Collection[QueueName]) -> int:
        """How many rows are neither a unit nor an end of a queue; each queue counts as one that only has rows.

        It has no end, and is none of those that are `derived` from the log. Bad rows between units are known once
        these were read.
        """
        return self._read(lambda database: self._foreign_in(database, derived), 0)

    def _foreign_in(self, database: QueueDatabase, derived: Collection[QueueName]) -> int:
        bad = {row.key for row in database.bad_rows()} | database.bad_units
        endless = {QueueName(*queue) for queue in database.with_rows()} - self.lasts.keys()
        return len(bad) + len(endless.difference(derived))

    def require_whole(self) -> None:
        """Raise UnreadableError unless every row can be read."""
        if self._database:
            for family in (UNITS, ENDS):
                deque(self._database.rows.rows(family), 0)

    def files(self) -> list[tuple[str, int]]:
        """Its files, each with its size, bytes; directories of file queues beside them are none."""
        entries = list_directory(self.path)
        return [(entry.name, entry.stat().st_size) for entry in entries if entry.is_file(follow_symlinks=False)]

    def close(self) -> None:
        """Close it; it is opened again when it is asked."""
        if self._database:
            self._database.close()

    def _read(self, read: Callable[[QueueDatabase], T], otherwise: T) -> T:
        """What is read of the database, `otherwise` where there is none, or it is damaged: that is the problem then."""
        try:
            return read(self._database) if self._database else otherwise
        except DamagedDatabaseError as error:
            self.problem = self.problem or error.message
            return otherwise


@dataclass(frozen=True)
class ExistingRows(ExistingQueues):
    """The queues of a store that has them in RocksDB and no files of them: none has a unit below the log."""

    rows: StoredRows

    def unit_at(self, name: QueueName, unit_number: int) -> np.void | None:
        """The value of the row at a queue offset, None without one."""
        return self.rows.unit_at(name, unit_number)


def grid_of(kind: Kind) -> FileGrid:
    """A grid on which no filler stands before the first unit, for each has a place of its own."""
    size = UNIT_FORMATS[kind].dtype.itemsize
    return FileGrid(size, size)
