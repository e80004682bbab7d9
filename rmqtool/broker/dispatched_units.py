"""Consume queue units as columns, as the broker stores them, and collected by queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats import consume_queue
from rmqtool.formats.rocksdb_rows import QUEUE_UNIT_DTYPE
from rmqtool.rules.system_topics import TIMER_TOPIC

_NO_COMPACTED_OFFSET = -1  # BatchConsumeQueue.INVALID_POS


class QueueName(NamedTuple):
    """A queue; `topic` is the name of its directory too."""

    topic: str
    queue_id: int


TIMER_QUEUE = QueueName(TIMER_TOPIC, 0)


@dataclass(frozen=True)
class QueueUnits:
    """Units in log order, one array for each field, all of the same length.

    `queues` are numbers of `Dispatcher.queues`. `queue_offsets` are those stored in the records; of batch queues they
    are the batch's first (`msgBaseOffset`), and `batch_sizes` count its messages, else 1. `message_counts` are the
    queue offsets that a record takes: also those of a batch without a first offset, as brokers with RocksDB write it,
    of which one with queue files makes a unit of one message. `tags_codes` are what a broker writes; `tags_hashes`
    differ for delayed messages, of which 4.9.2 to 4.9.8 write the hash in a recovery. `rows` are the records of the
    run.
    """

    queues: NDArray[np.int32]
    queue_offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    message_sizes: NDArray[np.int32]
    tags_codes: NDArray[np.int64]
    tags_hashes: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]
    batch_sizes: NDArray[np.int16]
    message_counts: NDArray[np.int16]
    rows: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.queues)

    def __getitem__(self, rows: slice | NDArray[Any]) -> QueueUnits:
        return QueueUnits(*[column[rows] for column in self.columns()])

    def columns(self) -> Collection[NDArray[Any]]:
        """The arrays, one for each field."""
        return vars(self).values()  # in the order of the fields; `dataclasses.fields` takes longer than small slices

    @classmethod
    def concatenate(cls, runs: Sequence[QueueUnits]) -> QueueUnits:
        """The units of several runs of records, in their order."""
        return cls.drain(list(runs))

    @classmethod
    def drain(cls, runs: list[QueueUnits]) -> QueueUnits:
        """The same; the list is empty then, and meanwhile one column at a time is held twice.

        Columns that are the same arrays, as codes and hashes of tags mostly are, stay so.
        """
        if len(runs) == 1:
            return runs.pop()
        columns = [list(column) for column in zip(*(run.columns() for run in runs), strict=True)]
        runs.clear()
        joined: dict[tuple[int, ...], NDArray[Any]] = {}
        keys = [tuple(map(id, column)) for column in columns]
        for key, column in zip(keys, columns, strict=True):
            if key not in joined:
                joined[key] = np.concatenate(column)
            column.clear()
        return cls(*map(joined.__getitem__, keys))

    def by_queue(self) -> Iterator[tuple[int, QueueUnits]]:
        """The units of each queue, in log order, by its number."""
        for number, columns in columns_by_queue(self.queues, self.columns()):
            yield number, QueueUnits(*columns)

    def as_consume_queue(self) -> NDArray[np.void]:
        """The units of 20 bytes as stored, `consume_queue.UNIT_DTYPE`."""
        units = np.empty(len(self), consume_queue.UNIT_DTYPE)
        units["physical_offset"] = self.physical_offsets
        units["message_size"] = self.message_sizes
        units["tags_code"] = self.tags_codes
        return units

    def as_rocksdb(self) -> NDArray[np.void]:
        """The units of consecutive queue offsets as in RocksDB, `QUEUE_UNIT_DTYPE`.

        Of the queue offsets of a batch only the first has a row; the others are zeros.
        """
        units = np.zeros(int(self.batch_sizes.sum(dtype=np.int64)), QUEUE_UNIT_DTYPE)
        places = self.queue_offsets - self.queue_offsets[:1]
        units["physical_offset"][places] = self.physical_offsets
        units["message_size"][places] = self.message_sizes
        units["tags_code"][places] = self.tags_codes
        units["store_timestamp"][places] = self.store_timestamps
        return units

    def as_batch_consume_queue(self) -> NDArray[np.void]:
        """The units of 46 bytes as stored, `batch_consume_queue.UNIT_DTYPE`."""
        units = np.zeros(len(self), consume_queue.BATCH_UNIT_DTYPE)
        units["physical_offset"] = self.physical_offsets
        units["message_size"] = self.message_sizes
        units["tags_code"] = self.tags_hashes
        units["store_timestamp"] = self.store_timestamps
        units["base_queue_offset"] = self.queue_offsets
        units["batch_size"] = self.batch_sizes
        units["compacted_offset"] = _NO_COMPACTED_OFFSET
        return units


def columns_by_queue(
    queues: NDArray[np.int32], columns: Collection[NDArray[Any]]
) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Columns of units, in log order, taken apart by queue; `queues` are the numbers of the units' queues."""
    if not len(queues):
        return
    order, bounds = group(queues)
    grouped = [column[order] for column in columns]
    numbers = queues[order[bounds[:-1]]].tolist()
    for number, low, high in zip(numbers, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield number, [column[low:high] for column in grouped]


def group(numbers: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The indices that sort small non-negative numbers stably, and where each number begins in that order.

    The second array has one more element, the end.

    NumPy sorts 16 bits by radix, three times as fast as 32 bits; of larger numbers both halves one after the other.
    """
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    if len(numbers) and int(numbers.max()) >> 16:
        order = order[np.argsort((numbers[order] >> 16).astype(np.uint16), kind="stable")]
    ordered = numbers[order]
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return order, np.concatenate([[0], starts, [len(numbers)]]).astype(np.intp)


_PACK = 1 << 14  # units that are packed together: a few MiB of the log, so that their offsets and times are close
_PIECE = 1 << 16  # units that are unpacked together, and all of one queue in any case
_WIDE = 1 << 32


class _Column(NamedTuple):
    """Whole numbers: the least of them, and how far each is above it, None where all are the same."""

    least: np.integer[Any]
    above: NDArray[np.unsignedinteger[Any]] | None

    @classmethod
    def of(cls, values: NDArray[Any]) -> _Column:
        """Pack a column that is not empty."""
        least, most = values.min(), values.max()
        spread = int(most) - int(least)
        if not spread:
            return cls(least, None)
        if spread >= _WIDE:
            return cls(values.dtype.type(0), values)
        return cls(least, (values - least).astype(np.min_scalar_type(spread)))  # wraps around, and back in `take`

    def take(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        """The numbers of some rows."""
        if self.above is None:
            return np.full(len(rows), self.least)
        values: NDArray[Any] = self.above.take(rows).astype(self.least.dtype, copy=False)
        values += self.least
        return values


@dataclass(frozen=True)
class _Packed:
    """Packed units: the numbers of their queues, columns, and for each other field the index of its column."""

    queues: NDArray[np.unsignedinteger[Any]]
    columns: tuple[_Column, ...]
    fields: tuple[int, ...]

    @classmethod
    def of(cls, units: QueueUnits) -> _Packed:
        """Pack units; fields that are the same array, as codes and hashes of tags mostly are, are packed once."""
        _, *fields = units.columns()
        distinct = {id(field): field for field in fields}
        indices = {key: index for index, key in enumerate(distinct)}
        queues = units.queues.astype(np.min_scalar_type(int(units.queues.max())))
        return cls(queues, tuple(map(_Column.of, distinct.values())), tuple(indices[id(field)] for field in fields))

    def of_queues(self, first: int, stop: int) -> QueueUnits:
        """The units of the queues with numbers from `first` to before `stop`, in log order."""
        rows = np.flatnonzero((self.queues >= first) & (self.queues < stop))
        columns = [column.take(rows) for column in self.columns]
        return QueueUnits(self.queues.take(rows).astype(np.int32), *(columns[index] for index in self.fields))


class WaitingUnits:
    """Collects units in log order, and gives them by queue."""

    def __init__(self) -> None:
        self._count = 0
        self._loose: list[QueueUnits] = []
        self._packed: list[_Packed] = []

    def __len__(self) -> int:
        return self._count

    def add(self, units: QueueUnits) -> None:
        """Add the units of a run of records."""
        if not len(units):
            return
        self._loose.append(units)
        self._count += len(units)
        if sum(map(len, self._loose)) >= _PACK:
            self._pack()

    def _pack(self) -> None:
        if self._loose:
            self._packed.append(_Packed.of(QueueUnits.drain(self._loose)))

    def drain(self) -> Iterator[tuple[QueueUnits, NDArray[np.intp]]]:
        """The units of some queues at a time, by the number of the queue and then in log order; nothing waits then.

        With them come the rows at which each queue begins, and their end.
        """
        self._pack()
        packed, self._packed, self._count = self._packed, [], 0
        most = max((int(each.queues.max()) for each in packed), default=-1)
        ends = np.zeros(most + 2, dtype=np.int64)  # how many units the queues before each number have
        for each in packed:
            ends[1:] += np.bincount(each.queues, minlength=most + 1)
        np.cumsum(ends, out=ends)
        first = 0
        while first <= most:
            stop = max(first + 1, int(np.searchsorted(ends, ends[first] + _PIECE, "right")) - 1)
            if ends[stop] > ends[first]:
                yield _by_queue([each.of_queues(first, stop) for each in packed])
            first = stop


def _by_queue(parts: list[QueueUnits]) -> tuple[QueueUnits, NDArray[np.intp]]:
    units = QueueUnits.drain(parts)
    order, bounds = group(units.queues)
    return (units[order] if len(bounds) > 2 else units), bounds
