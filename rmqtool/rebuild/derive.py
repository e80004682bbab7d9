"""One pass over the log: units and keys of all its records for queues and index (`DefaultMessageStore#doDispatch`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import Progress
from rmqtool.base.limits import sized
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.rebuild.existing import ExistingQueues, IndexWriter, OptionalUnits, StoredUnits, UnitBuffer, UnitSink
from rmqtool.rebuild.index_builder import IndexBuilder, IndexComparison
from rmqtool.rebuild.log_pass import Item, PassNumbers, Recording, RunResult, RunTask, items_of
from rmqtool.rebuild.options import refusal
from rmqtool.rebuild.queue_placement import BatchQueues, KeptTimes, LostExtents, SimpleQueues
from rmqtool.rules.versions import INDEX_COUNTS_SLOTS
from rmqtool.scan.block import Blank, Damage
from rmqtool.store.consume_queues import Kind
from rmqtool.store.index_files import Geometry

_FEW_UNITS = 3 << 17  # a batch this small stays in the processor's cache ...
_MOST_UNITS = 1 << 20  # ... and this large in memory
_LEAST_SHARE = 8  # where memory is limited: at least an eighth of these
_UNITS_PER_QUEUE = 512  # fewer at a time, and opening files takes longer than filling them


@dataclass
class Outputs:
    """Where a pass puts units and keys: comparisons with existing files, writers of new ones, or both.

    Kinds of queues without an output are not derived, and neither is an index without one.
    """

    queues: dict[Kind, list[UnitSink]] = field(default_factory=dict)
    index: IndexComparison | None = None
    index_writer: IndexWriter | None = None


class BatchTopicFoundError(Exception):
    """Topics turned out to have batch queues after some of their records were taken for others."""

    def __init__(self, topics: frozenset[str]) -> None:
        super().__init__()
        self.topics = topics


def _share_of(units: int) -> int:
    return sized(units, units // _LEAST_SHARE)


class Derivation:
    """A pass over the log, and its results once `run` is done."""

    def __init__(
        self,
        task: RunTask,
        outputs: Outputs,
        existing: Mapping[Kind, ExistingQueues],
        geometry: Geometry,
        kept_times: KeptTimes,
    ) -> None:
        """`existing` are the store's queues, `geometry` is that of the index files to write."""
        self.lost = LostExtents()
        self.wrong_bodies: list[int] = []  # physical offsets of records whose body is not what was stored
        self.refused: Counter[QueueName] = Counter()  # units of queues that no directory can have
        self.optional: OptionalUnits | None = None
        self.has_optional_keys = False  # whether older releases leave out some of the keys
        self.last_physical_offset = -1
        self.last_store_timestamp = -1
        self.end = 0  # physical offset after the last record
        self.simple: SimpleQueues | None = None
        self.batch: BatchQueues | None = None
        self.index: IndexBuilder | None = None
        self._queue_numbers = PassNumbers()
        self._index_comparison = outputs.index
        self._kinds = np.empty(0, dtype=np.int8)  # of each queue: see _kind_of
        self._all_taken = True
        self._held = UnitBuffer()
        self._held_batches: list[QueueUnits] = []
        if outputs.queues.get("simple"):
            kept = _kept(existing["simple"], task)
            sinks = outputs.queues["simple"]
            self.simple = SimpleQueues(self.queues, sinks, kept, task.order, self.lost, task.left_out, kept_times)
            self.optional = OptionalUnits(existing["simple"], self.queues)
        if outputs.queues.get("batch"):
            self.batch = BatchQueues(self.queues, outputs.queues["batch"], _kept(existing["batch"], task))
        if outputs.index or outputs.index_writer:
            self.index = IndexBuilder(
                outputs.index_writer, geometry, count_every_put=task.rules.version < INDEX_COUNTS_SLOTS
            )
        self._task = replace(task, queues=bool(self.simple or self.batch), index=bool(self.index))

    @property
    def queues(self) -> list[QueueName]:
        """The queues by their number."""
        return self._queue_numbers.names

    def run(
        self, progress: Progress, parts: Sequence[tuple[int, int]], jobs: int, recording: Recording | None = None
    ) -> None:
        """Derive from the whole log; several `jobs` (processes) read its `parts`, unless a `recording` has all of it.

        Raises BatchTopicFoundError, PartsDoNotMeetError, UnreadableError.
        """
        with closing(items_of(self._task, self._queue_numbers, parts, jobs, recording)) as items:
            self._add_all(items, progress)
        self._flush_batches()
        if self.simple:
            self.simple.add(self._held.drain())
            self.simple.finish()
        if self.index:
            self.index.finish()

    def _add_all(self, items: Iterable[Item], progress: Progress) -> None:
        for item in items:
            if isinstance(item, Damage):
                self.lost.add(item, self.last_store_timestamp)
            elif isinstance(item, RunResult):
                self._add(item)
            if not isinstance(item, Blank):
                progress(item.physical_offset + item.size - self._task.files[0].start_offset)

    def _add(self, result: RunResult) -> None:
        if result.batch_topics and self._task.queues:
            raise BatchTopicFoundError(result.batch_topics)
        self.last_physical_offset = result.last_physical_offset
        self.last_store_timestamp = result.last_store_timestamp
        self.end = result.physical_offset + result.size
        self.wrong_bodies.extend(result.wrong_bodies)
        for extent in result.lost:  # before the units, which are placed by what is lost around them
            self.lost.add_extent(extent)
        units = result.units
        if units is not None and result.optional_units is not None and self.optional:
            units = self.optional.merged(units, result.optional_units)
        self._hold(units, result.batch_units)
        self.has_optional_keys |= result.has_optional_keys and self._task.index
        if self.index and result.keys is not None:
            keys = result.keys.index_keys()
            if self._index_comparison:
                self._index_comparison.compare(keys)
            self.index.add(keys, result.keys.physical_offsets, result.keys.store_timestamps)

    def _hold(self, units: StoredUnits | None, batch_units: QueueUnits | None) -> None:
        """Buffer units until there are enough of them: placing a few at a time costs more."""
        self._learn_kinds()
        if units is not None and self.simple:
            rows = self._taken(units.queues)
            self._held.add(units if rows is None else units.rows(rows))
            limit = min(_UNITS_PER_QUEUE * len(self.queues), _share_of(_MOST_UNITS))
            if self._held.count >= max(_share_of(_FEW_UNITS), limit):
                self.simple.add(self._held.drain())
        if batch_units is not None and self.batch:
            rows = self._taken(batch_units.queues)
            self._held_batches.append(batch_units if rows is None else batch_units[rows])
            if sum(map(len, self._held_batches)) >= _share_of(_FEW_UNITS):
                self._flush_batches()

    def _flush_batches(self) -> None:
        if self.batch and self._held_batches:
            self.batch.add(QueueUnits.concatenate(self._held_batches))
        self._held_batches = []

    def _taken(self, queues: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """The units of queues that are rebuilt, None for all; units of refused queue names are counted."""
        if self._all_taken:
            return None
        kinds = self._kinds[queues]
        refused = queues[kinds == _REFUSED]
        for number, count in zip(*(column.tolist() for column in np.unique(refused, return_counts=True)), strict=True):
            self.refused[self.queues[number]] += count
        taken: NDArray[np.bool_] = kinds == _TAKEN
        return taken

    def _learn_kinds(self) -> None:
        new = self.queues[len(self._kinds) :]
        if new:
            kinds = [self._kind_of(name) for name in new]
            self._all_taken &= all(kind == _TAKEN for kind in kinds)
            self._kinds = np.concatenate([self._kinds, np.array(kinds, dtype=np.int8)])

    def _kind_of(self, name: QueueName) -> int:
        if not self._task.selection.takes(name.topic, name.queue_id):
            return _LEFT_OUT
        return _REFUSED if refusal(name) else _TAKEN


def _kept(existing: ExistingQueues, task: RunTask) -> ExistingQueues:
    """The queues that keep units below the log; none where they begin empty, as in the order of a broker."""
    return existing if task.order == "stored" and not task.anew else replace(existing, queues={})


_LEFT_OUT, _TAKEN, _REFUSED = range(3)
