"""One pass over the log: units and keys of all its records, put in their places (`DefaultMessageStore#doDispatch`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.append.batch_queues import BatchHeads, BatchQueues
from rmqtool.append.index_files import IndexBuilder
from rmqtool.append.simple_queues import Heads, SimpleQueues
from rmqtool.append.sinks import FileGrid, IndexSink, UnitSink
from rmqtool.dispatch.units import QueueName, QueueUnits
from rmqtool.index import Geometry
from rmqtool.rebuild.digest import Digest, Digester, Item, PassNumbers, Renumbering, Task
from rmqtool.rebuild.lost import LostExtents
from rmqtool.rebuild.names import refusal
from rmqtool.rebuild.options import Progress, no_progress
from rmqtool.rebuild.workers import items_of_processes
from rmqtool.scan.events import Blank, Damage
from rmqtool.versions import INDEX_COUNTS_SLOTS

_FEW_UNITS = 3 << 17  # a batch this small stays in the processor's cache ...
_MOST_UNITS = 1 << 20  # ... and this large in memory
_UNITS_PER_QUEUE = 512  # fewer at a time, and opening files takes longer than filling them


@dataclass
class QueueTarget:
    """Where units of one kind of queue go, and what stands before them."""

    sink: UnitSink
    grid: FileGrid
    heads: Heads | None = None
    batch_heads: BatchHeads = lambda queue: None


class BatchTopicFoundError(Exception):
    """Topics turned out to have batch queues after some of their records were taken for others."""

    def __init__(self, topics: frozenset[str]) -> None:
        super().__init__()
        self.topics = topics


class Derivation:
    """A pass over the log; what it finds out stands here when it is done."""

    def __init__(self, task: Task) -> None:
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
        self._numbers = PassNumbers()
        self._kinds = np.empty(0, dtype=np.int8)  # of each queue: see _kind_of
        self._held: list[QueueUnits] = []
        self._held_count = 0

    @property
    def queues(self) -> list[QueueName]:
        """The queues by their number."""
        return self._numbers.names

    def run(
        self,
        simple: QueueTarget | None,
        batch: QueueTarget | None,
        index: tuple[IndexSink, Geometry] | None,
        progress: Progress = no_progress,
        pieces: Sequence[tuple[int, int]] = (),
        jobs: int = 1,
    ) -> None:
        """Go over the log, with several `jobs` over its `pieces`; parts without a target are not derived.

        Raises BatchTopicFoundError, PiecesDoNotMeetError, UnreadableError.
        """
        if simple:
            order, lost = self._task.order, self.lost.between
            self.simple = SimpleQueues(simple.sink, simple.grid.units_per_file, order, simple.heads, lost)
        if batch:
            self.batch = BatchQueues(batch.sink, batch.batch_heads)
        if index:
            every_put = self._task.rules.version < INDEX_COUNTS_SLOTS
            self.index = IndexBuilder(index[0], index[1], every_put)
        task = replace(self._task, queues=bool(simple or batch), index=bool(index))
        with closing(self._items(task, pieces, jobs)) as items:
            self._take_all(items, progress)
        self._flush()
        if self.simple:
            self.simple.finish()
        if self.index:
            self.index.finish()

    def _items(self, task: Task, pieces: Sequence[tuple[int, int]], jobs: int) -> Generator[Item, None, None]:
        if jobs > 1 and len(pieces) > 1:
            yield from items_of_processes(task, self._numbers, pieces, jobs)
            return
        digester, renumbering = Digester(task), Renumbering(self._numbers)
        for item in digester.items():
            yield renumbering.apply(item, digester.new_queues())

    def _take_all(self, items: Iterable[Item], progress: Progress) -> None:
        for item in items:
            if isinstance(item, Damage):
                self.lost.add(item, self.last_store_timestamp)
            elif isinstance(item, Digest):
                self._add(item)
            if not isinstance(item, Blank):
                progress(item.physical_offset + item.size - self._task.files[0].start_offset)

    def _add(self, digest: Digest) -> None:
        if digest.batch_topics:
            raise BatchTopicFoundError(digest.batch_topics)
        offsets, timestamps = digest.physical_offsets, digest.store_timestamps
        self.records += len(offsets)
        self.last_physical_offset, self.last_store_timestamp = int(offsets[-1]), int(timestamps[-1])
        self.end = digest.physical_offset + digest.size
        self.wrong_bodies.extend(digest.wrong_bodies)
        if digest.units is not None:
            self._hold(digest.units)
        if self.index and digest.keys is not None:
            self.index.add(digest.keys, offsets, timestamps)
        for extent in digest.lost:
            self.lost.add_extent(extent)

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
        return _BATCH if name.topic in self._task.batch_topics else _SIMPLE


_LEFT_OUT, _SIMPLE, _BATCH, _REFUSED_KIND = range(4)


def _only(units: QueueUnits, rows: NDArray[Any]) -> QueueUnits:
    return units if rows.all() else units[rows]
