"""What log, queues and index show as a whole, once all parts are merged: each check may depend on those before it.

With the next start of a broker, and what clients lose by it.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from rmqtool.base.errors import EndingError, RmqtoolError
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.queue_recovery import KnownQueues
from rmqtool.clients.losses import ClientLosses
from rmqtool.findings.report import verdict_of
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.broker_conf import index_switched_off
from rmqtool.store.commit_log import log_start
from rmqtool.store.lock import has_abort
from rmqtool.store.single_messages import SingleMessages, deleted_topics
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES
from rmqtool.verify.client_losses import ClientView
from rmqtool.verify.disk_and_time_checks import check_hosts, check_times, first_records, latest_modification
from rmqtool.verify.field_checks import judged_fields
from rmqtool.verify.index_chains import check_timestamps
from rmqtool.verify.index_check import check_index_end, check_missing_keys
from rmqtool.verify.log_witnesses import ScannedLog, check_log_end
from rmqtool.verify.offset_checks import (
    check_beginnings,
    check_delay_levels,
    check_delay_offsets,
    check_halves,
    check_offsets,
    check_topics,
    check_witnesses,
    delays_known_until,
)
from rmqtool.verify.part_result import StoreFindings
from rmqtool.verify.queue_leftovers import LogBounds, QueueVisit, check_copies_alone, check_database, check_light_rows
from rmqtool.verify.queue_progress import WHETHER_DELETED, last_messages, lost_by_topic, report_missing_units
from rmqtool.verify.record_checks import finish_compression, finish_end, finish_times
from rmqtool.verify.start import Prediction, predict, report_starts
from rmqtool.verify.store_checks import check_abort_missing, check_checkpoint, check_preallocated
from rmqtool.verify.task import StoreReader, VerifyTask
from rmqtool.verify.timer_checks import check_timer
from rmqtool.verify.witnesses import Witnesses

_CLOCK_TOLERANCE = 60_000  # ms
_MANY = 16  # queue entries that lead elsewhere, for each that does not: fewer may be damaged one by one


@dataclass
class Consequences:
    """What follows from the findings: what a start does, and what clients lose by that and before it."""

    lost: Counter[str] = field(default_factory=Counter)  # messages by topic
    deleted: frozenset[str] = frozenset()  # topics
    starts: list[Prediction] = field(default_factory=list)  # by release, the newest first
    not_predicted: str | None = None  # why
    view: ClientView | None = None
    clients: ClientLosses | None = None

    @property
    def start(self) -> StartPrediction | None:
        """The predicted start of the newest release that fits."""
        return self.starts[0].start if self.starts else None


class AfterScan:
    """The checks that need the whole log, with the results of a pass over it."""

    def __init__(
        self, snapshot: Snapshot, task: VerifyTask, reader: StoreReader, found: StoreFindings, follows: Consequences
    ) -> None:
        """Findings are added to `found`, and what follows from them to `follows`."""
        self._snapshot = snapshot
        self._task = task
        self._reader = reader
        self._found = found
        self._follows = follows
        self._total = found.total
        self._log_end = log_start(task.files) if self._total.log_end is None else self._total.log_end

    def check_all(self) -> None:
        """Run the checks that need the whole log; each may depend on the findings of those before it."""
        found, snapshot, task, reader, total = self._found, self._snapshot, self._task, self._reader, self._total
        check, report, follows = found.check, found.report, self._follows
        store, live, files = snapshot.store, task.live, task.files
        totals, log_end = total.totals, self._log_end
        is_end_read = not total.extents.end_unread(log_end)
        now = max(int(time.time() * 1000), latest_modification(files))
        if is_end_read:
            check(finish_end, totals, report)
        check(finish_times, totals, report, now + _CLOCK_TOLERANCE)
        check(finish_compression, totals, report)
        if not live and task.index and not found.read_errors.index_in(store):
            check(check_index_end, snapshot, reader, total)
        visit = self._visit_queues() if task.queues else None
        self._predict(visit)
        if visit:
            self._check_queues(visit)
        self.check_missing_keys()
        if follows.view and follows.clients is not None and follows.start:
            check(follows.view.report_keys_lost, follows.start, follows.clients, report)
        if not live:
            log = self._scanned(visit)
            check(check_timestamps, reader, report)
            check(check_checkpoint, log, report, is_end_read=is_end_read)
            if is_end_read:
                check(check_log_end, log, report)
        with found.read_errors.scope():
            firsts = list(first_records(files, reader.lookups))
            check(check_times, store, firsts, report)
            check(check_hosts, store, firsts, found.everything(), report)
        check(check_preallocated, store, files, max(log_end, total.extents_end()), report)
        if follows.starts:
            findings = found.everything().findings()
            check(report_starts, follows.starts, report, is_clean=verdict_of(findings, is_proven=True) == "clean")
        if not live:
            check(check_abort_missing, found.everything().all_totals(), report)

    def _scanned(self, visit: QueueVisit | None) -> ScannedLog:
        """What the scan shows of the log."""
        is_of_another = bool(visit and visit.unmatched.are_of_another_log)
        total = self._total
        return ScannedLog(self._snapshot, self._reader, self._log_end, total.totals, total.queue_ends, is_of_another)

    def check_missing_keys(self) -> None:
        """Check the keys of messages that the index lacks, as far as a start leaves them so."""
        start = self._follows.start if self._follows.start and not self._follows.start.refuses else None
        after = self._follows.view.index_after(start) if self._follows.view and start else None
        off = index_switched_off(self._snapshot.store.conf)
        is_unknown = self._follows.not_predicted is not None and has_abort(self._snapshot.store.root)
        self._found.check(
            check_missing_keys, self._reader, self._total.keys, after, off, self._found.report, is_unknown=is_unknown
        )

    def _check_queues(self, visit: QueueVisit) -> None:
        """Run the checks that need all queues, once they are visited."""
        check, snapshot, report, live = self._found.check, self._snapshot, self._found.report, self._task.live
        reader, total, follows = self._reader, self._total, self._follows
        store, topics, ranges = snapshot.store, snapshot.topics, visit.ranges
        visit.unmatched.report_zero_files(follows.start)
        if snapshot.database:
            check(check_database, snapshot.database, total.states, report, live=live)
            check(check_copies_alone, snapshot, total.states, report)
            check(check_light_rows, snapshot, report)
        for state in total.states.values():
            check(report_missing_units, state, follows.deleted, report, follows.start, live=live)
        if not ranges and report.all_totals().get("commitlog.deleted-topic"):
            report.doubt(*WHETHER_DELETED)
        ends = total.queue_ends
        check(check_topics, topics, ranges, snapshot.committed.offsets, report)
        counts = self._found.everything().all_totals()
        check(check_offsets, store, snapshot.committed.offsets, ranges, ends, counts, report)
        check(check_beginnings, snapshot.committed.offsets, ranges, report)
        check(check_delay_offsets, store, ranges, ends, report)
        check(check_delay_levels, snapshot, ranges, report)
        check(check_halves, snapshot, report)
        if live:
            return
        check(visit.head.check, reader, report)
        messages = SingleMessages(snapshot)
        witnesses = Witnesses(snapshot, ranges, total.states, total.totals, messages, total.extents.lacks_until)
        check(check_witnesses, witnesses, report)
        check(check_timer, self._scanned(visit), messages, report)
        if follows.view and follows.clients is not None and follows.start:
            has_timer_findings = any(code.startswith("timer.") for code in report.all_totals())
            check(
                follows.view.add_waiting, follows.clients, follows.start, lambda: delays_known_until(witnesses),
                has_timer_findings=has_timer_findings,
            )  # fmt: skip
            check(follows.view.report_delay_times, follows.clients, follows.start, report)

    def _visit_queues(self) -> QueueVisit:
        """Read each queue on disk, one after the other."""
        snapshot, files, states, report = self._snapshot, self._task.files, self._total.states, self._found.report
        files_end, unread = files[-1].end_offset if files else 0, self._found.read_errors
        bounds = LogBounds(snapshot.log_began_by, self._log_end, files_end, self._total.extents, self._task.live)
        visit = QueueVisit(snapshot, self._reader, report, bounds, recovers=self._task.recovery is not None)
        for index, queue in enumerate(snapshot.queues):
            name = QueueName(queue.topic, queue.queue_id)
            with unread.queue(name):
                visit.visit(index, queue, None if name in unread.queues else states.get(name))
        visit.unmatched.settle_light(judged_fields(snapshot, self._reader, visit.unmatched.of_light, self._total))
        wrong = self._found.everything().all_totals().get("consumequeue.wrong-record", 0)
        if wrong >= _MANY and wrong >= _MANY * sum(each.right_between(0, MAX_OFFSET) for each in states.values()):
            visit.unmatched.forget_witnesses()
        self._follows.deleted = self._deleted_topics()
        self._follows.lost = lost_by_topic(visit.unmatched.lost, states, self._follows.deleted)
        beyond = visit.unmatched.beyond_files.total()
        if beyond:
            report.add("commitlog.last-file-missing", offset=files_end, details={"messages": beyond})
        return visit

    def _deleted_topics(self) -> frozenset[str]:
        """Topics without a queue, or with messages in damage or committed offsets alone, that nobody misses."""
        states, committed = self._total.states, self._snapshot.committed.offsets
        looked_at = {name.topic for name, state in states.items() if state.missing or state.lost}
        known = {name.topic for name in states}
        looked_at |= {each.topic for each in committed if each.topic not in known}
        return deleted_topics(last_messages(looked_at, states), SingleMessages(self._snapshot))

    def _predict(self, visit: QueueVisit | None) -> None:
        """Predict the next start, and what clients lose by it."""
        snapshot, total, follows, unread = self._snapshot, self._total, self._follows, self._found.read_errors
        if self._task.recovery is None:
            return
        if unread.any_in(snapshot.store, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES):
            follows.not_predicted = "not all of the queues could be read"
            return
        try:
            recovered = visit.recovered if visit else KnownQueues(snapshot.queues)
            follows.starts = predict(snapshot, total.walks, total.states, recovered)
            if visit:
                witnesses, beyond = visit.unmatched.witnesses, visit.unmatched.beyond_files
                total.keys.without_tags(visit.unmatched.without_tags)
                start, decoded = follows.starts[0].start, visit.unmatched.decoded
                view = ClientView(snapshot, total, visit.ranges, witnesses, beyond, self._task.index, decoded,
                                  follows.deleted)  # fmt: skip
                follows.view = view.of_start(start)
                follows.clients = follows.view.losses(start)
        except EndingError:
            raise
        except RmqtoolError as error:
            follows.not_predicted = str(error)
