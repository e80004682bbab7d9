"""The units of one consume queue, in files or in RocksDB: read, searched, and where they end.

A queue in files has two ends. A start ends it at the first unit that is not written (`recovered_end`); bytes after
that are damage, up to the last byte that is not zero (`data_end`).
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import PAGE, UNLIMITED, OpenFiles, ReadPolicy, is_zero
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.consume_queue import is_pre_blank, leading_offsets
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.layout import decode_units
from rmqtool.formats.rocksdb_rows import QUEUE_UNIT_DTYPE
from rmqtool.store.consume_queues import Queue
from rmqtool.store.rocksdb_queues import NO_UNIT, LastUnit, QueueDatabase, Rows

RECOVERED_FILES = 3
"""`ConsumeQueue#recover` reads the last three."""

HEAD_UNITS = 200
"""So many units take no longer to read than one: they are a page."""

_PIECE = 1 << 14  # units that are read at once
_STRETCH = 1 << 16  # units
_READ_WHOLE = 1 << 16  # a file up to this size is read as the broker reads it, a larger one searched, bytes


class Offsets(Protocol):
    """The physical offsets of the units written in a queue's first file: an array, or read as they are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, unit_index: int, /) -> Any: ...


class _Head(NamedTuple):
    """The first units of a file: how many are written before one that is not, their physical offsets, and the last one.

    With `is_whole` the first unit that is not written is among them, with `is_all` nothing but zeros follows, to the
    end of the file.
    """

    mapped: MappedFile
    written: int
    offsets: Sequence[int]
    last: bytes | None
    is_whole: bool
    is_all: bool


class UnitFiles:
    """Reads units by their number in the queue, from queue offset 0 on, or by their index in one of its files."""

    def __init__(self, queue: Queue, open_files: OpenFiles, *, live: bool = False) -> None:
        """`open_files` keeps the queue's files open; with `live` a broker writes to the queue."""
        self.queue = queue
        self.dtype, self.is_written = queue.format.dtype, queue.format.is_written
        self.size = self.dtype.itemsize
        self.files = queue.files.files
        self._open = open_files
        self._live = live
        self._last_head: _Head | None = None

    @cached_property
    def start(self) -> int:
        """Number of the first unit in a file."""
        return self.files[0].start_offset // self.size if self.files else 0

    def read(self, first: int, count: int) -> bytes:
        """Units `first` to before ``first + count`` as stored; zeros where no file holds them."""
        position, end = first * self.size, (first + count) * self.size
        for file in self.files:
            if file.start_offset <= position and end <= file.end_offset:
                data = self._open.get(file.place).read(position - file.start_offset, end - position)
                return data if len(data) == end - position else data.ljust(end - position, b"\0")
        return self._read_pieces(position, end)

    def units(self, first: int, count: int) -> NDArray[np.void]:
        """Units `first` to before ``first + count`` by their fields, shape ``(count,)``."""
        return np.frombuffer(self.read(first, count), self.dtype)

    def _read_pieces(self, position: int, end: int) -> bytes:
        data = bytearray(end - position)
        for file in self.files:
            low, high = max(position, file.start_offset), min(end, file.end_offset)
            if low < high:
                piece = self._open.get(file.place).read(low - file.start_offset, high - low)
                data[low - position : low - position + len(piece)] = piece
        return bytes(data)

    def read_in(self, mapped: MappedFile, first: int, count: int) -> bytes:
        """Units of one file from its unit `first` on as stored, fewer only at its end."""
        return self._open.get(mapped.place).read(first * self.size, count * self.size)

    def units_in(self, mapped: MappedFile, first: int, count: int) -> NDArray[np.void]:
        """Units of one file from its unit `first` on by their fields, shape ``(count,)`` or shorter at its end."""
        return decode_units(self.dtype, self.read_in(mapped, first, count))

    def unit_in(self, mapped: MappedFile, index: int) -> np.void:
        """One unit of one file, which must hold it."""
        unit: np.void = self.units_in(mapped, index, 1)[0]
        return unit

    def room_of(self, mapped: MappedFile) -> int:
        """How many units one file has room for."""
        return mapped.size // self.size

    def head_of(self, mapped: MappedFile) -> _Head:
        """The first units of one file, of most of many queues all; kept until another file is asked for."""
        head = self._last_head
        if head is None or head.mapped is not mapped or self._live:
            head = self._last_head = self._read_head(mapped)
        return head

    def _read_head(self, mapped: MappedFile) -> _Head:
        file, size = self._open.get(mapped.place), HEAD_UNITS * self.size
        data = file.read(0, max(size, PAGE))
        offsets = self._leading_offsets(data[:size])
        end = len(offsets) * self.size
        is_all = is_zero(data[end:]) and file.is_hole_from(len(data))
        last = data[end - self.size : end] if end else None
        return _Head(mapped, len(offsets), offsets, last, end + self.size <= min(size, len(data)), is_all)

    def _leading_offsets(self, data: bytes) -> Sequence[int]:
        """The physical offsets of the first units of `data` before one that is not written."""
        plain = leading_offsets(data) if self.queue.kind == "simple" else None
        if plain is not None:
            return plain
        units = decode_units(self.dtype, data)
        offsets: list[int] = units["physical_offset"][: count_leading(self.is_written(units))].tolist()
        return offsets

    def offsets_in(self, mapped: MappedFile, count: int) -> Offsets:
        """The physical offsets in the first units of one file; in a large file they are read on access."""
        if mapped.size > _READ_WHOLE:
            head = self.head_of(mapped)
            return head.offsets[:count] if count <= head.written else _StoredOffsets(self, mapped, count)
        offsets: NDArray[np.int64] = self.units_in(mapped, 0, count)["physical_offset"]
        return offsets

    def is_zero_from(self, mapped: MappedFile, first: int) -> bool:
        """Whether nothing but zeros follows in one file from its unit `first` on; holes are not read."""
        return self._open.get(mapped.place).next_data(first * self.size, mapped.size) == mapped.size

    def recovered_end(self) -> tuple[int, int]:
        """Index of the last file that a start keeps, and count of the units in it; (-1, 0) without a file."""
        last = len(self.files) - 1
        for file_index in range(max(0, last + 1 - RECOVERED_FILES), last):
            count = self._written_in(self.files[file_index])
            if count < self.room_of(self.files[file_index]):
                return file_index, count
        return last, self._written_in(self.files[last]) if self.files else 0

    def ends_early(self, file_index: int, count: int) -> bool:
        """Whether bytes follow the end of the queue that `recovered_end` has found."""
        return file_index >= 0 and self.data_end > self.files[file_index].start_offset // self.size + count

    def _written_in(self, mapped: MappedFile) -> int:
        """Count of the units before the first that is not written.

        A large file is taken to hold no gap before its last unit, or after its first ones.
        """
        low, high = 0, self.room_of(mapped)
        if mapped.size > _READ_WHOLE:
            is_short = mapped.modified_ns is None and self.head_of(mapped).is_all  # not where each read is a request
            if not is_short and self._is_written_in(mapped, high - 1):
                return high
            low = self.head_of(mapped).written
            if is_short or low < HEAD_UNITS:
                return low  # as in most of many queues: one read instead of a search
            while high - low > HEAD_UNITS:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if self._is_written_in(mapped, middle) else (low, middle)
        return low + count_leading(self.is_written(self.units_in(mapped, low, high - low)))

    def _is_written_in(self, mapped: MappedFile, index: int) -> bool:
        unit = self.read_in(mapped, index, 1)
        return bool(unit.strip(b"\0")) and bool(self.is_written(decode_units(self.dtype, unit)).any())

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int, bool]]:
        """Units from `first` to before `stop` as ranges (begin, end, whether a file holds them).

        Gaps are one range each: file names may leave gaps too large to be iterated over.
        """
        for file in self.files:
            low, high = file.start_offset // self.size, min(stop, -(-file.end_offset // self.size))
            if first < min(low, stop):
                yield first, min(low, stop), False
            if max(first, low) < high:
                yield max(first, low), high, True
            first = max(first, high)

    def written(self, first: int, stop: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
        """Units from `first` to before `stop` that are written, and their numbers, piece by piece."""
        for low, high, is_held in self.stretches(first, stop):
            for begin in range(low, high, _PIECE) if is_held else ():
                units = self.units(begin, min(high - begin, _PIECE))
                rows = np.flatnonzero(self.is_written(units))
                if len(rows):
                    yield begin + rows, units[rows]

    def backwards(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
        """Numbers of units and the units, whether they are written or not, piece by piece, the newest first."""
        for mapped in reversed(self.files):
            units = self.units_in(mapped, 0, self.room_of(mapped))
            yield mapped.start_offset // self.size + np.arange(len(units)), units

    def newest(self, most: int) -> NDArray[np.void]:
        """At most `most` of the last units that a start keeps."""
        file_index, count = self.recovered_end()
        first = max(0, count - most)
        return self.units_in(self.files[file_index], first, count - first) if self.files else np.empty(0, self.dtype)

    @cached_property
    def data_end(self) -> int:
        """Number after the last unit that is not all zeros, except one that a running broker may be writing."""
        for mapped in reversed(self.files):
            head = None if self._live else self.head_of(mapped)
            end = head.written * self.size if head else 0
            if not (head and head.is_all):
                end = self._open.get(mapped.place).data_end(end)
            if end:
                stop = (mapped.start_offset + end + self.size - 1) // self.size
                return stop - 1 if self._live else stop
        return self.start

    def bisect(self, physical_offset: int) -> int:
        """Number of the first unit that points to `physical_offset` or after it, for units that ascend."""
        return bisect_left(range(self.data_end), physical_offset, self.start, key=self._target)

    def find(self, physical_offset: int) -> int | None:
        """Number of the unit that points to `physical_offset`, for units that ascend; None when it is not found."""
        number = self.bisect(physical_offset)
        points_there = number < self.data_end and self._target(number) == physical_offset
        return number if points_there and self.is_written(self.units(number, 1))[0] else None

    def have_expired(self, number: int, stop: int, log_start: int, damaged: bytes) -> bool:
        """Whether units from `number`, or the first one, to before `stop` lead below the log, in their order.

        A single one may be that which is given, with a `damaged` byte.
        """
        first = max(number, self.start)
        data = self.read(first, min(2, max(0, stop - first)))
        units = decode_units(self.dtype, data)
        targets = [*units["physical_offset"].tolist(), log_start]
        is_other = len(units) > 1 or (len(units) == 1 and sum(map(operator.ne, data, damaged)) > 1)
        in_order = all(low < high for low, high in pairwise(targets))
        return is_other and in_order and bool(self.is_written(units).all())

    def _target(self, number: int) -> int:
        """The physical offset that a unit points to; -1 for filler, which precedes all messages."""
        unit = self.units(number, 1)
        is_filler = self.queue.kind == "simple" and is_pre_blank(unit)[0]
        return -1 if is_filler else int(unit["physical_offset"][0])

    def location_of(self, number: int) -> tuple[Path | None, int]:
        """Path of the file that holds a unit, None without one, and the unit's position in it, bytes."""
        position = number * self.size
        file = file_at(self.files, position)
        return (file.path, position - file.start_offset) if file else (None, position)


class RocksDbUnits(UnitFiles):
    """Reads units in RocksDB by their number in the queue, which is their queue offset; each has the store timestamp.

    Where a queue has no row its unit is zeros, as in a file. Each read takes one seek, however many units it is of.

    `start` is the number of the first unit of a message at or after `log_min_offset`: a compaction takes away the
    rows before it. `data_end` is where the `max` row ends the queue; rows after it are not part of it.
    """

    def __init__(self, queue: Queue, database: QueueDatabase, open_files: OpenFiles, log_min_offset: int = 0) -> None:
        """`database` holds the rows of the queue."""
        super().__init__(queue, open_files)
        self.dtype = QUEUE_UNIT_DTYPE
        self.size = QUEUE_UNIT_DTYPE.itemsize
        self.name = queue.topic, queue.queue_id
        self._database = database
        self._log_min_offset = log_min_offset

    @cached_property
    def last(self) -> LastUnit:
        """The last unit by the `max` row."""
        return self._database.last_of(self.name) or NO_UNIT

    @property
    def first(self) -> LastUnit | None:
        """The first unit by the `min` row, None without one."""
        return self._database.first_of(self.name)

    @cached_property
    def start(self) -> int:
        """Number of the first unit that leads into the log."""
        return self._database.first_live(self.name, self._log_min_offset)

    def rows(self, first: int, stop: int, most: int = MAX_OFFSET) -> Rows:
        """At most `most` rows of the units from `first` to before `stop`."""
        return self._database.units(self.name, first, stop, most)

    def read(self, first: int, count: int) -> bytes:
        """Units `first` to before ``first + count``; zeros where there is no row."""
        rows = self.rows(first, first + count)
        if len(rows.offsets) == count:
            return rows.values.tobytes()
        units = np.zeros(count, self.dtype)
        units[rows.offsets - first] = rows.values
        return units.tobytes()

    def written(self, first: int, stop: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
        """Units from `first` to before `stop` that have a row, and their numbers, piece by piece."""
        for begin in range(first, stop, _PIECE):
            rows = self.rows(begin, min(stop, begin + _PIECE))
            if len(rows.offsets):
                yield rows

    def backwards(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
        """Numbers of units and the units that have a row, piece by piece, the newest first."""
        for stop in range(self.data_end, 0, -_STRETCH):
            yield self.rows(max(0, stop - _STRETCH), stop)

    def newest(self, most: int) -> NDArray[np.void]:
        """At most `most` of the last units."""
        return self.rows(max(0, self.data_end - most), self.data_end).values

    def bisect(self, physical_offset: int) -> int:
        """Number of the first unit that points to `physical_offset` or after it."""
        return self._database.first_live(self.name, physical_offset)

    def find(self, physical_offset: int) -> int | None:  # noqa: ARG002
        """None: a row stands at the queue offset that its record says, whatever is before it."""
        return None

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int, bool]]:
        """Units from `first` to before `stop` as ranges (begin, end, whether the first of them has a row)."""
        while first < stop:
            offsets = self.rows(first, stop, most=1).offsets
            begin = int(offsets[0]) if len(offsets) else stop
            if first < begin:
                yield first, begin, False
            first = min(begin + _STRETCH, stop)
            if begin < first:
                yield begin, first, True

    @cached_property
    def data_end(self) -> int:
        """Number after the last unit."""
        return self.last.queue_offset + 1

    def location_of(self, number: int) -> tuple[Path | None, int]:  # noqa: ARG002
        """The database, and no position: a unit has a key instead."""
        return self._database.path, 0


@dataclass(frozen=True)
class _StoredOffsets:
    """The physical offsets in the first `count` units of one file, each read on access."""

    units: UnitFiles
    mapped: MappedFile
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.int64:
        offset: np.int64 = self.units.unit_in(self.mapped, index)["physical_offset"]
        return offset


@contextmanager
def open_units(queue: Queue, reading: ReadPolicy = UNLIMITED, opened: UnitFiles | None = None) -> Iterator[UnitFiles]:
    """The units of a queue, whose files are closed in the end; those that are `opened`, if they are given."""
    if opened is not None:
        yield opened
        return
    with closing(OpenFiles(reading)) as open_files:
        yield units_of(queue, open_files)


def units_of(queue: Queue, open_files: OpenFiles, log_min_offset: int = 0, *, live: bool = False) -> UnitFiles:
    """The units of a queue, wherever they are; with `live` a broker writes to the queue."""
    if queue.database:
        return RocksDbUnits(queue, queue.database, open_files, log_min_offset)
    return UnitFiles(queue, open_files, live=live)


def written_units(
    queue: Queue, start: int, stop: int, reading: ReadPolicy = UNLIMITED
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    """The units of a queue from number `start` to before `stop` that are written, and their numbers, piece by piece."""
    with open_units(queue, reading) as units:
        yield from units.written(start, stop)


def count_leading(rows: NDArray[np.bool_]) -> int:
    """How many of the first rows are true."""
    first = rows.tobytes().find(b"\0")  # of few rows four times as fast as calls of NumPy
    return len(rows) if first < 0 else first
