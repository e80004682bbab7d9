"""The log against the queues: each record that the broker dispatches has its unit at its queue offset.

Runs of expected units are compared as bytes with those in the queue, and unit by unit only where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.limits import sized
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.dispatched_units import QueueName, QueueUnits, group
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind, Queue, queue_in
from rmqtool.store.unit_files import RocksDbUnits, UnitFiles
from rmqtool.verify.one_queue import OneQueue, UnitRun
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.queue_leftovers import report_bad_units
from rmqtool.verify.queue_progress import QueueProgress
from rmqtool.verify.task import StoreReader

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
    """Units of some runs: the numbers of their queues, and their other fields, each of which is one of the columns."""

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


BATCH = 256 << 10
"""Units that are collected before they are compared: few enough for the cache, and enough for each of many queues."""

_UNITS_PER_QUEUE = 256
_MAX_BATCH = 1024 << 10
_LEAST_SHARE = 8  # where memory is limited: a batch is at least an eighth of these
_NAME_MAX = 255
_RUNS = 1 << 12  # that are looked at together


class QueueCheck:
    """Compares the units of one part of the log, in log order."""

    def __init__(self, reader: StoreReader, result: PartResult, dispatcher: Dispatcher) -> None:
        """`dispatcher` has derived the units, and numbers the queues; findings go to `result`."""
        self._reader = reader
        self._result = result
        self._dispatcher = dispatcher
        self._live = reader.task.live
        self._waiting = WaitingUnits()
        self._batch, self._max_batch = (sized(size, size // _LEAST_SHARE) for size in (BATCH, _MAX_BATCH))
        self._queues: dict[int, OneQueue] = {}

    def add(self, units: QueueUnits, optional: QueueUnits | None = None) -> None:
        """Add the units of a run of records, and those `optional` ones that the queues hold."""
        if optional is not None:
            units = self._with_stored(units, optional)
        self._waiting.add(units)
        if len(self._waiting) >= min(
            max(self._batch, _UNITS_PER_QUEUE * len(self._dispatcher.queues)), self._max_batch
        ):
            self.flush()

    def damage(self, units: QueueUnits) -> None:
        """Note the units of records that are not whole."""
        for queue_number, of_queue in units.by_queue():
            name = self._dispatcher.queues[queue_number]
            state = self._result.states.setdefault(name, QueueProgress(name))
            state.damage(of_queue.queue_offsets.tolist())

    def _with_stored(self, units: QueueUnits, optional: QueueUnits) -> QueueUnits:
        """`units` with those `optional` ones that the queues hold: units of older releases may be missing."""
        stored = optional.as_consume_queue().view("V20")
        held = np.zeros(len(optional), dtype=np.bool_)
        for row, (queue_number, offset) in enumerate(
            zip(optional.queues.tolist(), optional.queue_offsets.tolist(), strict=True)
        ):
            name = self._dispatcher.queues[queue_number]
            with self._result.read_errors.queue(name) if not self._live else nullcontext():
                files = self._files_of(name)
                held[row] = files is not None and files.read(offset, 1) == stored[row].tobytes()
            if not held[row]:
                self._result.states.setdefault(name, QueueProgress(name)).add_optional(offset)
        both = QueueUnits.concatenate([units, optional[held]])
        return both[np.argsort(both.rows, kind="stable")]

    def flush(self) -> None:
        """Compare the collected units."""
        if not len(self._waiting):
            return
        self._result.report.check("consumequeue.missing-unit", len(self._waiting))
        errors = self._result.read_errors
        for queue_number, runs in groupby(_runs(self._waiting), key=itemgetter(0)):
            name = self._dispatcher.queues[queue_number]
            if self._live:
                self._compare(queue_number, runs)
            elif name not in errors.queues:
                with errors.queue(name):
                    self._compare(queue_number, runs)
                if name in errors.queues:
                    self._result.states.pop(name, None)
        if self._reader.database:
            report_bad_units(self._reader.database, self._result.report)

    def _compare(self, queue_number: int, runs: Iterable[tuple[int, UnitRun]]) -> None:
        """Compare the units of one queue."""
        queue = self._queue(queue_number)
        for _, run in runs:
            queue.compare(run)
        if queue.is_plain:  # of many queues nearly all are; what is kept of them is in their states
            del self._queues[queue_number]

    def _queue(self, queue_number: int) -> OneQueue:
        queue = self._queues.get(queue_number)
        if queue is None:
            name = self._dispatcher.queues[queue_number]
            files, state = self._files_of(name), self._result.states.get(name)
            if state is None:
                state = self._result.states[name] = QueueProgress(name)
            may_be_rows = self._reader.database is not None and not self._reader.store.writes_queues_twice
            in_rows = isinstance(files, RocksDbUnits) or (files is None and may_be_rows)
            state.may_jump = in_rows and self._dispatcher.is_batch_topic(name.topic)
            queue = self._queues[queue_number] = OneQueue(self._reader, self._result, state, files)
        return queue

    def _files_of(self, name: QueueName) -> UnitFiles | None:
        reader = self._reader
        kind: Kind = "batch" if self._dispatcher.is_batch_topic(name.topic) else "simple"
        if reader.store.reads_only_rocksdb:
            return self._in_rocksdb(name)
        known = reader.task.listed.find(kind, *name) if reader.task.listed is not None else None
        if known is not None:
            return UnitFiles(known, reader.open_files)
        if (kind, name) not in reader.queues:
            reader.queues[kind, name] = self._in_files(name, kind) or self._in_rocksdb(name)
        return reader.queues[kind, name]

    def _in_files(self, name: QueueName, kind: Kind) -> UnitFiles | None:
        reader = self._reader
        if not is_directory_name(name.topic) or name.queue_id < 0:
            return None
        directory = reader.store.root / UNIT_FORMATS[kind].directory / name.topic / str(name.queue_id)
        files = list_mapped_files(directory, scope=skip_wrong_type)  # where no directory stands, units are missing
        queue = Queue(name.topic, name.queue_id, kind, files)
        return UnitFiles(queue, reader.open_files, live=self._live) if files.files else None

    def _in_rocksdb(self, name: QueueName) -> UnitFiles | None:
        """The units in RocksDB; of a running broker, which has not flushed all of them, also where there is none."""
        database = self._reader.database
        if self._reader.store.writes_queues_twice and not name.topic.startswith(LMQ_PREFIX):
            return None  # its files count
        if database is None or not (self._live or database.holds(name)):
            return None
        queue = queue_in(database, *name)
        return RocksDbUnits(queue, database, self._reader.open_files, self._reader.log_start)


def _runs(waiting: WaitingUnits) -> Iterator[tuple[int, UnitRun]]:
    """The runs of consecutive queue offsets by queue, each with the number of its queue; nothing waits then."""
    for piece, bounds in waiting.drain():
        yield from _runs_of(piece, bounds[:-1])


def _runs_of(piece: QueueUnits, firsts: NDArray[np.intp]) -> Iterator[tuple[int, UnitRun]]:
    """The same of some queues: their units by queue, and where each queue's begin."""
    stored, offsets = piece.as_consume_queue().tobytes(), piece.queue_offsets
    nexts = offsets + piece.message_counts
    follows = np.zeros(len(piece), dtype=np.bool_)
    follows[1:] = offsets[1:] == nexts[:-1]
    follows[firsts] = False
    starts = np.flatnonzero(~follows)
    stops = np.append(starts[1:], len(piece))
    columns = (piece.queues[starts], starts, stops, offsets[starts], nexts[stops - 1],
               piece.physical_offsets[starts], piece.physical_offsets[stops - 1])  # fmt: skip
    for low in range(0, len(starts), _RUNS):
        of_runs = (column[low : low + _RUNS].tolist() for column in columns)
        for number, start, stop, *ends in zip(*of_runs, strict=True):
            yield number, UnitRun(piece, start, stop, stored[start * UNIT_SIZE : stop * UNIT_SIZE], *ends)


def is_directory_name(topic: str) -> bool:
    """Whether a topic from the log can be the name of a directory: it must not lead out of the store."""
    usable = topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic
    return usable and len(topic.encode("utf-8", "replace")) <= _NAME_MAX
