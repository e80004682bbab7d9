"""Each queue on disk is read once for all that needs its files: while they are open, and their first pages at hand."""

from __future__ import annotations

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.queue_recovery import recover_queue
from rmqtool.broker.recovered_queues import KnownQueues
from rmqtool.findings.report import Report
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_range import QueueRange, queue_range
from rmqtool.store.rocksdb_units import RocksDbUnits, units_of
from rmqtool.store.snapshot import Snapshot
from rmqtool.verify.log_head import LogHead
from rmqtool.verify.offset_checks import check_kind
from rmqtool.verify.queue_leftovers import LogBounds, UnmatchedUnits
from rmqtool.verify.queue_progress import QueueProgress
from rmqtool.verify.rocksdb_checks import check_batches, check_copy, check_minimum
from rmqtool.verify.task import StoreReader


class QueueVisit:
    """Visits the queues; `ranges` are what a broker reports for them, `recovered` how a start recovers them."""

    def __init__(
        self, snapshot: Snapshot, reader: StoreReader, report: Report, bounds: LogBounds, *, recovers: bool
    ) -> None:
        """Findings go to `report`; with `recovers` a start is predicted after the visits."""
        self.ranges: dict[QueueName, QueueRange] = {}
        self.recovered = KnownQueues(snapshot.queues)
        self.head = LogHead(bounds.start)
        self.unmatched = UnmatchedUnits(snapshot.store, report, bounds, reader.lookups,
                                        releases=snapshot.releases,
                                        batch_topics=snapshot.topics.with_batch_queues or ())  # fmt: skip
        self._snapshot = snapshot
        self._reader = reader
        self._report = report
        self._recovers = recovers

    def visit(self, index: int, queue: Queue, state: QueueProgress | None) -> None:
        """Visit one queue of the snapshot, by its index, of which the log has `state`. Raises UnreadableError."""
        snapshot, start = self._snapshot, self.unmatched.bounds.start
        units = units_of(queue, self._reader.open_files, start, live=self.unmatched.bounds.live)
        self.unmatched.check(units, state)
        check_kind(snapshot.topics, queue, self._report)
        if snapshot.database and not queue.database:
            check_copy(queue, snapshot.database, self._reader, self._report)
        self.head.add_queue(units)
        if self._recovers and not queue.database:
            self.recovered.add(index, recover_queue(queue, units))
        name = state.name if state else QueueName(queue.topic, queue.queue_id)
        self.ranges[name] = queue_range(queue, start, snapshot.release, opened=units)
        if isinstance(units, RocksDbUnits) and queue.database and not self.unmatched.bounds.live:
            if queue.topic in self.unmatched.batch_topics:
                check_batches(snapshot, units, self.ranges[name].min_offset, self._report)
            else:
                check_minimum(units, queue.database.first_of(name), start, self._report)
