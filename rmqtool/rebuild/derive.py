"""One pass over the log: units and keys of all its records, put in their places (`DefaultMessageStore#doDispatch`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.append.batch_queues import BatchHeads, BatchQueues
from rmqtool.append.index_files import IndexBuilder
from rmqtool.append.simple_queues import Heads, Order, SimpleQueues
from rmqtool.append.sinks import FileGrid, IndexSink, UnitSink
from rmqtool.dispatch.dispatcher import Dispatched, Dispatcher
from rmqtool.dispatch.keys import IndexKeys
from rmqtool.dispatch.rules import DispatchRules
from rmqtool.dispatch.units import QueueName, QueueUnits
from rmqtool.files import UNLIMITED, Reading
from rmqtool.formats.sys_flag import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqtool.index import Geometry
from rmqtool.mapped_files import MappedFile
from rmqtool.rebuild.lost import LOST_TOPIC, NEUTRALISED, Extent, LostExtents
from rmqtool.rebuild.names import Selection, refusal
from rmqtool.rebuild.options import Progress, no_progress
from rmqtool.scan.checksums import body_crcs
from rmqtool.scan.events import Blank, Damage
from rmqtool.scan.frames import Frames
from rmqtool.scan.reader import Event, scan_files
from rmqtool.versions import INDEX_COUNTS_SLOTS

_FEW_UNITS = 3 << 17  # a batch this small stays in the processor's cache ...
_MOST_UNITS = 1 << 21  # ... and this large in memory
_UNITS_PER_QUEUE = 512  # fewer at a time, and opening files takes longer than filling them
_REFUSED = "properties"  # the reason for which a broker takes a sound record for damage
_WRONG_BODY = "body-crc"


@dataclass
class QueueTarget:
    """Where units of one kind of queue go, and what stands before them."""

    sink: UnitSink
    grid: FileGrid
    heads: Heads | None = None
    batch_heads: BatchHeads = lambda queue: None


@dataclass(frozen=True)
class Task:
    """What is derived from which log, by whose rules."""

    files: Sequence[MappedFile]
    rules: DispatchRules
    selection: Selection = field(default_factory=Selection)
    order: Order = "stored"
    reading: Reading = UNLIMITED
    drops_wrong_bodies: bool = False  # for they are about to be neutralised


class BatchTopicFoundError(Exception):
    """A topic turned out to have batch queues after some of its records were taken for others."""


class Derivation:
    """A pass over the log; what it finds out stands here when it is done.

    `batch_topics` are the topics with batch queues; with `learn` those are added whose records say that they have.
    """

    def __init__(self, task: Task, batch_topics: set[str], learn: bool = False) -> None:
        self.dispatcher = Dispatcher(task.rules, batch_topics)
        self.lost = LostExtents()
        self.wrong_bodies: list[int] = []  # physical offsets of records whose body is not what was stored
        self.refused: Counter[QueueName] = Counter()  # units of queues that no directory can have
        self.records = 0
        self.last_physical_offset = -1
        self.last_store_timestamp = -1
        self.end = 0  # physical offset behind the last record
        self.simple: SimpleQueues | None = None
        self.batch: BatchQueues | None = None
        self.index: IndexBuilder | None = None
        self._task = task
        self._batch_topics = batch_topics
        self._learn = learn
        self._kinds = np.empty(0, dtype=np.int8)  # of each queue: see _kind_of
        self._held: list[QueueUnits] = []
        self._held_count = 0

    @property
    def queues(self) -> list[QueueName]:
        """The queues by their number."""
        return self.dispatcher.queues

    def is_batch(self, queue: int) -> bool:
        """Whether a queue is a batch consume queue."""
        return self.queues[queue].topic in self._batch_topics

    def run(
        self,
        simple: QueueTarget | None,
        batch: QueueTarget | None,
        index: tuple[IndexSink, Geometry] | None,
        progress: Progress = no_progress,
    ) -> None:
        """Go over the log; parts without a target are not derived. Raises BatchTopicFoundError, UnreadableError."""
        if simple:
            order, lost = self._task.order, self.lost.between
            self.simple = SimpleQueues(simple.sink, simple.grid.units_per_file, order, simple.heads, lost)
        if batch:
            self.batch = BatchQueues(batch.sink, batch.batch_heads)
        if index:
            every_put = self._task.rules.version < INDEX_COUNTS_SLOTS
            self.index = IndexBuilder(index[0], index[1], every_put)
        for event in self._events(progress):
            if isinstance(event, Damage):
                self.lost.add(event, self.last_store_timestamp)
            elif isinstance(event, Frames):
                self._add(event)
        self._flush()
        if self.simple:
            self.simple.finish()
        if self.index:
            self.index.finish()

    def _events(self, progress: Progress) -> Iterator[Event]:
        files = self._task.files
        for event in scan_files(files, reading=self._task.reading):
            yield event
            if not isinstance(event, Blank):
                progress(event.physical_offset + event.size - files[0].start_offset)

    def _add(self, frames: Frames) -> None:
        dispatched = self.dispatcher.dispatch(frames)
        offsets, timestamps = frames.physical_offsets, frames.headers.field("store_timestamp")
        self.records += len(frames)
        self.last_physical_offset, self.last_store_timestamp = int(offsets[-1]), int(timestamps[-1])
        self.end = frames.physical_offset + frames.size
        wrong = self._check_bodies(frames)
        dropped = wrong if self._task.drops_wrong_bodies and wrong.any() else None
        if self.simple or self.batch:
            self._learn_batch_topics(frames)
            self._hold(dispatched.units if dropped is None else dispatched.units[~dropped[dispatched.units.rows]])
        if self.index:
            self.index.add(self._selected_keys(dispatched, frames, dropped), offsets, timestamps)
        self._add_lost(frames, dispatched, dropped)

    def _selected_keys(self, dispatched: Dispatched, frames: Frames, dropped: NDArray[np.bool_] | None) -> IndexKeys:
        selection, keys = self._task.selection, dispatched.keys
        if dropped is not None:
            keys = keys[~dropped[keys.rows]]
        if selection.is_all:
            return keys
        numbers = self.dispatcher.queue_numbers(self.dispatcher.topic_numbers(frames), frames.headers.field("queue_id"))
        taken = np.array([selection.takes(*name) for name in self.queues])[numbers]
        return keys[taken[keys.rows]]

    def _check_bodies(self, frames: Frames) -> NDArray[np.bool_]:
        computed = body_crcs(frames.block, frames.body_positions, frames.body_sizes)
        wrong: NDArray[np.bool_] = computed != frames.headers.field("body_crc").view(np.uint32)
        wrong &= frames.body_sizes != 0
        if wrong.any():
            self.wrong_bodies.extend(frames.physical_offsets[wrong].tolist())
        return wrong

    def _add_lost(self, frames: Frames, dispatched: Dispatched, dropped: NDArray[np.bool_] | None) -> None:
        """Records that are none: to the broker, by our own decision, or because we have put them there."""
        rows = dict.fromkeys(_inert_rows(frames), NEUTRALISED)
        rows.update(dict.fromkeys(dispatched.refused.tolist(), _REFUSED))
        if dropped is not None:
            rows.update(dict.fromkeys(np.flatnonzero(dropped).tolist(), _WRONG_BODY))
        for row in sorted(rows):
            place = int(frames.physical_offsets[row]), int(frames.message_sizes[row])
            self.lost.add_extent(Extent(*place, rows[row], int(frames.headers.field("store_timestamp")[row])))

    def _learn_batch_topics(self, frames: Frames) -> None:
        if not self._learn:
            return
        flagged = (frames.headers.field("sys_flag") & INNER_BATCH) != 0
        if not flagged.any():
            return
        numbers = np.unique(self.dispatcher.topic_numbers(frames)[flagged])
        found = {self.dispatcher.topics[number] for number in numbers.tolist()} - self._batch_topics
        if found:
            self._batch_topics |= found
            raise BatchTopicFoundError

    def _hold(self, units: QueueUnits) -> None:
        """Keep units until there are enough of them: placing a few at a time costs more."""
        if not len(units):
            return
        self._held.append(units)
        self._held_count += len(units)
        most = min(_UNITS_PER_QUEUE * len(self.queues), _MOST_UNITS)
        if self._held_count >= max(_FEW_UNITS, most):
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        units = QueueUnits.concatenate(self._held)
        self._held, self._held_count = [], 0
        self._learn_kinds()
        kinds = self._kinds[units.queues]
        if (kinds == _REFUSED_KIND).any():
            rows = np.flatnonzero(kinds == _REFUSED_KIND)
            numbers, counts = np.unique(units.queues[rows], return_counts=True)
            self.refused.update(
                {self.queues[number]: count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}
            )
        for kind, target in ((_SIMPLE, self.simple), (_BATCH, self.batch)):
            if target is not None:
                target.add(_only(units, kinds == kind))

    def _learn_kinds(self) -> None:
        new = self.queues[len(self._kinds) :]
        if new:
            kinds = [self._kind_of(name) for name in new]
            self._kinds = np.concatenate([self._kinds, np.array(kinds, dtype=np.int8)])

    def _kind_of(self, name: QueueName) -> int:
        if not self._task.selection.takes(name.topic, name.queue_id):
            return _LEFT_OUT
        if refusal(name):
            return _REFUSED_KIND
        return _BATCH if name.topic in self._batch_topics else _SIMPLE


_LEFT_OUT, _SIMPLE, _BATCH, _REFUSED_KIND = range(4)


def _only(units: QueueUnits, rows: NDArray[Any]) -> QueueUnits:
    return units if rows.all() else units[rows]


def _inert_rows(frames: Frames) -> list[int]:
    """Rows of inert records of ours: rolled back messages of a topic of that name, or of its beginning."""
    rolled_back = np.flatnonzero((frames.headers.field("sys_flag") & TRANSACTION_MASK) == TRANSACTION_ROLLBACK)
    if not len(rolled_back):
        return []
    starts, sizes = frames.topic_positions[rolled_back], frames.topic_sizes[rolled_back]
    data = frames.block.data
    topics = zip(rolled_back.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    return [row for row, start, size in topics if size and LOST_TOPIC.startswith(data[start : start + size])]
