"""Plan and stage in one pass over the log, for a rebuild that nobody has to confirm.

What differs is staged as soon as it shows. Where that cannot tell what a second pass would write, what was staged is
dropped, and the plan is carried out as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.index_keys import IndexKeys
from rmqtool.rebuild.apply import Staged, apply_plan, commit, path_in_store
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.existing import ExistingQueues
from rmqtool.rebuild.file_sizes import require_known_sizes
from rmqtool.rebuild.index_diff import IndexComparison
from rmqtool.rebuild.neutralise import patched_bytes
from rmqtool.rebuild.options import Progress, no_progress
from rmqtool.rebuild.plan import Comparing, RebuildPlan, make_plan, plan_of
from rmqtool.rebuild.queue_diff import Comparison
from rmqtool.rebuild.sinks import IndexSink, Timestamps, Units, UnitSink
from rmqtool.rebuild.source import RebuildSource, derive, open_source
from rmqtool.rebuild.staged import StagedIndex, StagedQueues
from rmqtool.store.consume_queues import Kind
from rmqtool.store.store import INDEX
from rmqtool.transaction import Committed, Transaction

_PART_OF_FREE = 2  # no more than free space by this is staged before it is known how much there will be
_PAGES = 3 * 4096  # a file takes at least this beside its data, and its directory too


@dataclass
class Prepared:
    """A plan, and what was staged for it already, if anything."""

    plan: RebuildPlan
    derivation: Derivation | None = None
    staged: Staged | None = None

    @property
    def is_staged(self) -> bool:
        """Whether all that the plan writes is there."""
        return self.staged is not None

    def commit(self, transaction: Transaction, progress: Progress = no_progress) -> Committed:
        """Carry the plan out; see `apply_plan`."""
        if self.staged is None or self.derivation is None:
            return apply_plan(self.plan, transaction, progress)
        transaction.require_space(patched_bytes(self.plan.patches))
        return commit(self.plan, self.derivation, self.staged, transaction)


def prepare(source: RebuildSource, transaction: Transaction, progress: Progress = no_progress) -> Prepared:
    """Go over the log, compare what comes of it with the store, and stage what differs.

    Raises UnwritableError, and UsageError where nothing shows the size of the files that would be staged.
    """
    sinks = _Once(source, transaction)
    try:
        derivation = derive(source, sinks, progress)
        plan = plan_of(source, derivation, sinks)
        if plan.undecided:
            transaction.drop_staged()
            return Prepared(make_plan(open_source(source.store, source.options), progress))
        return Prepared(plan, derivation, sinks.staged(plan, derivation))
    finally:
        source.close()
        if sinks.of_index:
            sinks.of_index.close()


class _Attempt:
    """Whether what is staged will be what a second pass would write."""

    def __init__(self, transaction: Transaction) -> None:
        self.fails = False
        self._transaction = transaction
        self._left = transaction.free_bytes() // _PART_OF_FREE

    def spend(self, size: int) -> bool:
        """Whether `size` more bytes may be staged."""
        self.count(size)
        if self._left < 0:
            self.give_up()
        return not self.fails

    def count(self, size: int) -> None:
        """Let `size` bytes that are staged in any case count."""
        self._left -= size

    def give_up(self) -> None:
        """Drop what was staged."""
        if not self.fails:
            self.fails = True
            self._transaction.drop_staged()


class _StagingQueues:
    """A sink that compares units of one kind, and stages the files in which something differs."""

    def __init__(
        self, comparison: Comparison, existing: ExistingQueues, names: list[QueueName],
        attempt: _Attempt, transaction: Transaction, require_size: Callable[[], None],
    ) -> None:  # fmt: skip
        """`require_size` raises before anything is staged in files whose size nothing shows."""
        self.stage = StagedQueues(
            transaction, existing.grid, path_in_store(names, existing.kind), comparison.written, self._before
        )
        self._comparison = comparison
        self._existing = existing
        self._names = names
        self._attempt = attempt
        self._require_size = require_size
        self._times: dict[int, int] = {}  # store timestamp of the last unit of each queue

    def put(self, queue: int, number: int, units: Units, timestamps: Timestamps) -> None:
        """Compare units, and stage them when they belong to a file that differs."""
        self._comparison.put(queue, number, units, timestamps)
        self._times[queue] = int(timestamps[-1])
        if self._comparison.passed_ext:
            self._attempt.give_up()  # a second pass would not write what was passed
        if not self._attempt.fails and self._comparison.written(queue) and self._attempt.spend(units.nbytes + _PAGES):
            self._require_size()
            self.stage.put(queue, number, units, timestamps)

    def cut(self, queue: int, number: int) -> None:
        """What was the same before the cut may not be what comes in its place."""
        self._comparison.cut(queue, number)
        self._attempt.give_up()

    def complete(self, plan: RebuildPlan, derivation: Derivation) -> None:
        """Stage the last files that hold more than they should; all that the plan names is staged then."""
        placed = derivation.simple if self._existing.kind == "simple" else derivation.batch
        numbers = {name: number for number, name in enumerate(self._names)}
        wanted = {
            (numbers[queue.name], start)
            for queue in plan.changed_queues
            if queue.kind == self._existing.kind
            for start in queue.difference.write
        }
        for queue, start in sorted(wanted - self.stage.places):
            grid, end = self._existing.grid, placed.end(queue) if placed else -1
            if not self._attempt.fails and start == grid.start_of(end - 1):
                self.stage.keep(queue, start, (end - grid.first_unit(start)) * grid.unit_size, self._times[queue])
        if self.stage.places != wanted:
            self._attempt.give_up()

    def _before(self, queue: int, start: int, position: int) -> bytes:
        file = self._existing.file(self._names[queue], start) if position else None
        self._attempt.count(position)
        return self._existing.read(file, 0, position) if file else b""


class _StagingIndex:
    """A sink that compares keys, and stages index files when it shows at once that those that are there differ."""

    def __init__(
        self, comparison: IndexComparison, source: RebuildSource, attempt: _Attempt, transaction: Transaction
    ) -> None:  # fmt: skip
        self.stage = StagedIndex(transaction, source.sizes.index, INDEX)
        self._source = source
        self.is_staged = False
        self._comparison = comparison
        self._attempt = attempt

    def keys(self, keys: IndexKeys) -> None:
        """Compare keys."""
        self._comparison.keys(keys)

    def begin(self, number: int, name: str) -> None:
        """A file is created; by the first one it must show that they are wanted."""
        self._comparison.begin(number, name)
        self.is_staged = self._comparison.differs if number == 0 else self.is_staged
        if self.is_staged and self._attempt.spend(_PAGES):
            require_known_sizes(self._source.store, self._source.sizes, {"index"})
            self.stage.begin(number, name)

    def wants_bytes(self) -> bool:
        """Whether they are staged."""
        return self.is_staged

    def put(self, number: int, position: int, data: bytes | memoryview) -> None:
        """Stage bytes."""
        if self.is_staged and self._attempt.spend(len(data)):
            self.stage.put(number, position, data)

    def finish(self, number: int, timestamp: int) -> None:
        """Complete a file."""
        if self.is_staged and not self._attempt.fails:
            self.stage.finish(number, timestamp)

    def complete(self) -> None:
        """Whether all is staged shows when all keys were compared."""
        if self.is_staged == self._comparison.is_same:
            self._attempt.give_up()


class _Once(Comparing):
    """Compares, and stages what differs."""

    def __init__(self, source: RebuildSource, transaction: Transaction) -> None:
        super().__init__(source)
        self._transaction = transaction
        self._begin()

    def _begin(self) -> None:
        self._transaction.drop_staged()
        self._attempt = _Attempt(self._transaction)
        self._queues: dict[Kind, _StagingQueues] = {}
        self._index: _StagingIndex | None = None

    def queues(self, kind: Kind, names: list[QueueName]) -> UnitSink | None:
        """A comparison that stages; a kind that comes again begins a new pass."""
        if kind in self._queues:
            self._begin()
        comparison = self.compare_queues(kind, names)
        if comparison is None:
            return None
        existing, transaction = self.source.existing[kind], self._transaction
        require_size = partial(require_known_sizes, self.source.store, self.source.sizes, {kind})
        self._queues[kind] = _StagingQueues(comparison, existing, names, self._attempt, transaction, require_size)
        return self._queues[kind]

    def index(self) -> IndexSink | None:
        """A comparison that stages."""
        comparison = self.compare_index()
        if comparison is None:
            return None
        self._index = _StagingIndex(comparison, self.source, self._attempt, self._transaction)
        return self._index

    def staged(self, plan: RebuildPlan, derivation: Derivation) -> Staged | None:
        """What was staged for the plan; None when it has to be carried out in a second pass."""
        for sink in self._queues.values():
            sink.complete(plan, derivation)
        if self._index:
            self._index.complete()
        if self._attempt.fails:
            return None
        index = self._index.stage if self._index and self._index.is_staged else None
        return Staged({kind: sink.stage for kind, sink in self._queues.items()}, index)
