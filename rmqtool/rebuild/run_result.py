"""The results of a pass for each run of records: all that can be derived without the runs before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import Dispatched, Dispatcher, IndexKeys
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.sys_flag import INNER_BATCH
from rmqtool.rebuild.existing import StoredUnits
from rmqtool.rebuild.options import QueueSelection
from rmqtool.rebuild.queue_placement import NEUTRALISED, Extent, Order
from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.frames import RecordRun, wrong_bodies
from rmqtool.scan.inert_records import inert_rows
from rmqtool.scan.reader import scan_block, scan_files

_REFUSED = "properties"  # the reason for which a broker takes a sound record for damage
_WRONG_BODY = "body-crc"
_LOOK_BACK = 64 << 10  # bytes before a part: to look further costs more than to read again parts that do not meet


@dataclass(frozen=True)
class RunTask:
    """The log to read, and what to derive from it by which rules; can be sent to another process."""

    files: Sequence[MappedFile]
    rules: DispatchRules
    selection: QueueSelection = field(default_factory=QueueSelection)
    order: Order = "stored"
    reading: ReadPolicy = UNLIMITED
    checks_bodies: bool = True
    drops_bodies_from: int | None = None  # wrong ones from there on, since they are about to be neutralised
    batch_topics: frozenset[str] = frozenset()
    learns_batch_topics: bool = False
    queues: bool = True
    index: bool = True
    anew: bool = False  # whether nothing of the queues that are there stays
    left_out: int = 0  # messages that the log does not hold on purpose
    plain_topics: frozenset[str] = frozenset()  # those whose queues are there, and are no batch queues
    proven: ProvenRecords = field(default_factory=ProvenRecords)  # what records with damaged fields were


@dataclass(frozen=True)
class RunKeys:
    """Keys, and once for all keys of a record its offset and time: small, to be sent between processes.

    Offsets and timestamps are those of all records of the run, with keys or without.
    """

    key_hashes: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    rows: NDArray[np.int32]
    physical_offsets: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]

    def index_keys(self) -> IndexKeys:
        """The keys, each with the offset and time of its record."""
        offsets, timestamps = self.physical_offsets.take(self.rows), self.store_timestamps.take(self.rows)
        return IndexKeys(self.key_hashes, offsets, timestamps, self.kinds, self.rows)


@dataclass(frozen=True)
class RunResult:
    """Units, keys and damage of one run of records; units hold numbers of queues.

    It is in the log from `physical_offset` on, `size` bytes with the headers of DLedger entries.
    """

    physical_offset: int
    size: int
    last_physical_offset: int  # of its last record
    last_store_timestamp: int
    units: StoredUnits | None
    optional_units: StoredUnits | None  # what only older releases derive
    has_optional_keys: bool  # whether older releases leave out some of the keys
    batch_units: QueueUnits | None  # those of topics that have batch queues
    keys: RunKeys | None
    wrong_bodies: list[int]  # physical offsets of records with another body than was stored, which keep their place
    batch_topics: frozenset[str]  # topics that turn out to have batch queues
    lost: list[Extent]


Item = RunResult | Blank | Damage


class RunReader:
    """Turns runs of records into results."""

    def __init__(self, task: RunTask) -> None:
        self._task = task
        self._dispatcher = Dispatcher(task.rules, task.batch_topics, task.proven)
        self._block = scan_block()
        self._sent_queues = 0
        self._is_batch = np.empty(0, dtype=np.bool_)  # of each queue

    def new_queues(self) -> list[QueueName]:
        """The queues that were met since the last call, in the order of their numbers."""
        queues = self._dispatcher.queues[self._sent_queues :]
        self._sent_queues += len(queues)
        return queues

    def items(self, start: int = 0, stop: int = MAX_OFFSET) -> Iterator[Item]:
        """The items that begin at physical offsets from `start` to before `stop`; raises UnreadableError."""
        files, reading = self._task.files, self._task.reading
        for event in scan_files(files, start, stop, reading, block=self._block, look_back=_LOOK_BACK):
            yield self._result_of(event) if isinstance(event, RecordRun) else event

    def _result_of(self, frames: RecordRun) -> RunResult:
        task = self._task
        dispatched = self._dispatcher.dispatch(frames)
        wrong = wrong_bodies(frames) if task.checks_bodies else np.zeros(len(frames.physical_offsets), dtype=np.bool_)
        dropped = None
        if task.drops_bodies_from is not None:
            dropped = wrong & (frames.physical_offsets >= task.drops_bodies_from)
            wrong &= ~dropped
            dropped[dispatched.refused_rows] = True
            dropped = dropped if dropped.any() else None
        units = dispatched.units if task.queues else None
        optional = dispatched.optional_units if task.queues else None
        if units is not None and dropped is not None:
            units = units[~dropped[units.rows]]
            optional = optional and optional[~dropped[optional.rows]]
        batch = self._of_batch_topics(units) if units is not None and task.batch_topics else None
        if units is not None and batch is not None:
            units, batch_units = units[~batch], units[batch]
        else:
            batch_units = None
        return RunResult(
            physical_offset=frames.begin,
            size=frames.header_size + frames.size,
            last_physical_offset=int(frames.physical_offsets[-1]),
            last_store_timestamp=int(frames.headers.field("store_timestamp")[-1]),
            units=None if units is None else StoredUnits.of(units),
            optional_units=None if optional is None else StoredUnits.of(optional),
            has_optional_keys=task.index and task.rules.may_be_older and dispatched.has_optional_keys,
            batch_units=batch_units,
            keys=self._selected_keys(dispatched, frames, dropped) if task.index else None,
            wrong_bodies=frames.physical_offsets[wrong].tolist(),
            batch_topics=self._batch_topics(frames) if task.queues and task.learns_batch_topics else frozenset(),
            lost=list(_lost(frames, dispatched, dropped)),
        )

    def _of_batch_topics(self, units: QueueUnits) -> NDArray[np.bool_] | None:
        """The rows of units that go to batch queues; None without any."""
        topics = self._task.batch_topics
        new = [queue.topic in topics for queue in self._dispatcher.queues[len(self._is_batch) :]]
        if new:
            self._is_batch = np.append(self._is_batch, np.array(new))
        is_batch: NDArray[np.bool_] = self._is_batch[units.queues]
        return is_batch if is_batch.any() else None

    def _selected_keys(self, dispatched: Dispatched, frames: RecordRun, dropped: NDArray[np.bool_] | None) -> RunKeys:
        selection, keys = self._task.selection, dispatched.keys
        if dropped is not None:
            keys = keys[~dropped[keys.rows]]
        records = frames.physical_offsets, frames.headers.field("store_timestamp")
        if selection.is_all:
            return RunKeys(keys.key_hashes, keys.kinds, keys.rows, *records)
        queue_numbers = self._dispatcher.queue_numbers(
            self._dispatcher.topic_numbers(frames), frames.headers.field("queue_id")
        )
        taken = np.array([selection.takes(*name) for name in self._dispatcher.queues])[queue_numbers]
        rows = taken[keys.rows]
        return RunKeys(keys.key_hashes[rows], keys.kinds[rows], keys.rows[rows], *records)

    def _batch_topics(self, frames: RecordRun) -> frozenset[str]:
        flagged = (frames.headers.field("sys_flag") & INNER_BATCH) != 0
        if not flagged.any():
            return frozenset()
        topic_numbers = np.unique(self._dispatcher.topic_numbers(frames)[flagged])
        return (
            frozenset(self._dispatcher.topics[topic_number] for topic_number in topic_numbers.tolist())
            - self._task.batch_topics
            - self._task.plain_topics
        )


def _lost(frames: RecordRun, dispatched: Dispatched, dropped: NDArray[np.bool_] | None) -> Iterator[Extent]:
    """Records without a message: refused by the broker, dropped for a wrong body, or dummy ones of ours."""
    rows = dict.fromkeys(inert_rows(frames), NEUTRALISED)
    if dropped is not None:
        rows.update(dict.fromkeys(np.flatnonzero(dropped).tolist(), _WRONG_BODY))
    refused = dispatched.refused_rows.tolist()
    if dropped is None:  # what is proven keeps its unit, unless the record is replaced
        refused = [row for row in refused if row not in dispatched.proven_rows]
    rows.update(dict.fromkeys(refused, _REFUSED))
    timestamps: NDArray[Any] = frames.headers.field("store_timestamp") if rows else np.empty(0)
    for row in sorted(rows):
        location = int(frames.physical_offsets[row]), int(frames.message_sizes[row])
        yield Extent(*location, rows[row], int(timestamps[row]))
