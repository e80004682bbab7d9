"""The whole verification of a store, log, queues and index, in one process or several; it may be interrupted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import ParamSpec

from rmqtool.base.errors import EndingError, RmqtoolError, UnreadableError, failed_reads, failed_so_far
from rmqtool.base.files import RateLimit
from rmqtool.base.parallel import WorkerPool
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.field_damage import FieldDamage
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.broker.queue_recovery import KnownQueues
from rmqtool.clients.losses import ClientLosses
from rmqtool.findings.report import NEEDING_INDEX, NEEDING_QUEUES, Report, verdict_of
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.properties import TAGS
from rmqtool.rules.broker_conf import index_switched_off
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.store.commit_log import log_start
from rmqtool.store.consume_queues import QueueTable
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import PART_SIZE, log_parts
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES, Store
from rmqtool.verify.client_losses import ClientView
from rmqtool.verify.config_checks import check_config_databases
from rmqtool.verify.disk_and_time_checks import (
    check_environment,
    check_hosts,
    check_times,
    first_records,
    latest_modification,
)
from rmqtool.verify.entry_checks import unread_units
from rmqtool.verify.field_checks import damaged_fields, judged_fields, report_fields
from rmqtool.verify.index_chains import check_headers, check_timestamps
from rmqtool.verify.index_check import check_index_end, check_missing_keys
from rmqtool.verify.index_sequence import readable_files, tags_expected
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
from rmqtool.verify.part_result import PartResult, report_unreadable
from rmqtool.verify.part_run import PartRun
from rmqtool.verify.queue_leftovers import LogBounds, QueueVisit, check_copies_alone, check_database, check_light_rows
from rmqtool.verify.queue_progress import WHETHER_DELETED, lost_by_topic, report_missing_units
from rmqtool.verify.read_errors import UnreadFiles
from rmqtool.verify.record_checks import finish_compression, finish_end, finish_times
from rmqtool.verify.rocksdb_side import SIDE_CODES, check_side_stores, require_copies
from rmqtool.verify.saved_progress import SavedProgress
from rmqtool.verify.start import Prediction, Predictor, report_starts
from rmqtool.verify.store_checks import (
    check_abort_missing,
    check_checkpoint,
    check_compacted_logs,
    check_index_names,
    check_preallocated,
    check_recorded_losses,
    check_selection,
    check_store_files,
)
from rmqtool.verify.task import (
    AnyPart,
    Companion,
    EarlyEnd,
    StoreReader,
    VerifyRequest,
    VerifyTask,
    index_parts,
    live_parts,
    with_index,
)
from rmqtool.verify.timer_checks import check_timer
from rmqtool.verify.upgrade_checks import check_upgrade
from rmqtool.verify.witnesses import Witnesses

_CLOCK_TOLERANCE = 60_000  # ms
_MANY = 16  # queue entries that lead elsewhere, for each that does not: fewer may be damaged one by one
_SMALL_PART = 4 << 20  # bytes: where only some parts are checked, many small ones stand for more of the log
_LOG_PER_QUEUE = 8 << 10  # bytes of a part at least: each part opens and compares each of its queues
_OF_FIELDS = frozenset({"commitlog.field", "commitlog.sys-flag", "commitlog.body-compression", "commitlog.properties"})
P = ParamSpec("P")


class Verification:
    """One verification of a store; the attributes hold the results after `run`, or so far when it is interrupted."""

    def __init__(
        self,
        store: Store,
        request: VerifyRequest,
        saved: SavedProgress | None = None,
        companion: Companion | None = None,
    ) -> None:
        """`saved` is the progress of earlier runs, and of this one; a `companion` reads the log with it."""
        require_copies(store)
        self.request = request
        self.read_errors = UnreadFiles()
        limit = RateLimit(request.rate) if request.rate else None
        self.snapshot = Snapshot(store, request.version, limit, scope=self.read_errors.scope)
        self.complete = False
        self.lost: Counter[str] = Counter()
        self.log_start = log_start(self.snapshot.log.files)
        self.log_end = self.log_start
        self.stale_from: int | None = None
        self.starts: list[Prediction] = []
        self.view: ClientView | None = None
        self.clients: ClientLosses | None = None
        self.not_predicted: str | None = None
        self.saved = saved
        self._companion = companion
        self.task = self._task()
        self._report = self.task.report()
        self._part_run: PartRun | None = None
        self._total: PartResult | None = None
        self._failed: dict[str, UnreadableError] = {}

    def _task(self) -> VerifyTask:
        """The task for the parts of log and index."""
        snapshot, request = self.snapshot, self.request
        store, live, selection = snapshot.store, snapshot.holder is not None, request.selection
        has_topics = snapshot.topics.with_batch_queues is not None
        wants_index = any(map(selection.wants_any, NEEDING_INDEX))
        self._index = self._readable_index() if wants_index else []
        index_files = readable_files(self._index)
        if live and any(geometry is None and file.keys for file, geometry in self._index):
            index_files = []  # the others hold only some of the units
        changes_too_fast = live and self._index and not index_files
        return VerifyTask(
            store=store,
            version=request.version,
            rules=replace(DispatchRules.of_snapshot(snapshot), index_tags=True),
            batch_topics=snapshot.topics.with_batch_queues,
            plain_topics=frozenset() if has_topics else snapshot.topics_with_plain_queues,
            selection=selection,
            max_examples=request.max_examples,
            bodies=request.bodies,
            live=live,
            queues=(store.layout != "rocksdb" or is_readable()) and any(map(selection.wants_any, NEEDING_QUEUES)),
            index=wants_index and not (self.read_errors.index_in(store) or changes_too_fast),
            index_files=tuple(index_files),
            tags_expected=wants_index and tags_expected(snapshot),
            files=snapshot.log.files,
            recovery=self._recovery_rules(),
            unread_units=unread_units(snapshot),
            rate=request.rate and max(1, request.rate // request.jobs),
            companion=self._companion.reader(ProvenRecords()) if self._companion else None,
        )

    def _readable_index(self) -> list[tuple[IndexFile, Geometry | None]]:
        unread = self.read_errors.errors
        return [each for each in self.snapshot.index_geometries if str(each[0].path) not in unread]

    def _recovery_rules(self) -> RecoveryRules | None:
        """The rules of the predicted start; None when none is predicted, as for a store in use."""
        snapshot = self.snapshot
        if not self.request.selection.wants_any("start.") or snapshot.holder is not None:
            return None
        if snapshot.leaves_queues_out or snapshot.store.dledger_directory:
            return None  # a node of a DLedger group is left to `gaps_of_store`
        return RecoveryRules.of(snapshot.release, snapshot.store.conf)

    @property
    def doubtful_records(self) -> frozenset[int]:
        """Physical offsets of whole records of which a field is, or must be, wrong."""
        findings = self.report_with(self.merged().report).findings()
        return frozenset(each.offset for each in findings if each.code in _OF_FIELDS and each.offset is not None)

    @property
    def total_bytes(self) -> int:
        """Bytes to read, for the progress."""
        return self.snapshot.log.size + sum(index_file.file.size for index_file in self.task.index_files)

    @property
    def ended_by(self) -> EarlyEnd | None:
        """What has ended it early, other than an interruption."""
        return self._part_run.ended_by if self._part_run else None

    def run(self, progress: Callable[[int], None], pool: WorkerPool[PartResult] | None = None) -> None:
        """Verify; `progress` is called with how many more bytes are done. Raises RmqtoolError.

        `pool` holds processes that were started for this; they end with it.
        """
        with (
            failed_reads() as self._failed,
            pool or WorkerPool[PartResult]() as workers,
            closing(self.snapshot.databases),
        ):
            self._run(progress, workers)

    def _run(self, progress: Callable[[int], None], pool: WorkerPool[PartResult]) -> None:
        request = self.request
        _ = self.snapshot.committed  # read before the queues, which a running broker makes longer
        if self.task.queues and not self.task.live:
            self.task = replace(self.task, listed=self._listed_queues())
        self._check_before_scan()
        database = None if self.task.live else self.snapshot.database  # a broker writes to it: it is opened again then
        with closing(StoreReader(self.task, self.snapshot.reading, database)) as reader:
            self._part_run = PartRun(self.task, self._parts_to_check(reader), request, self.saved, self._companion)
            may_copy = self.snapshot.database is None  # whose library has threads by now, which a copy would lack
            self._part_run.run(progress, pool, request.jobs if may_copy else 1, database)
            if self.ended_by is not None:
                self._check_missing_keys(reader, self.merged())
                return
            damages = [] if self.task.live else damaged_fields(self.snapshot, reader, self.merged())
            if not damages:
                self._check_after_scan(reader, self.merged())
        if damages:
            self._run_again(damages, database)
        self.complete = True
        if self._companion:
            self._companion.is_whole = not self.merged().unreadable and self.stale_from is None
        if self.saved:
            self.saved.remove()

    def _run_again(self, damages: Sequence[FieldDamage], database: QueueDatabase | None) -> None:
        """Read the log once more: records with damaged fields count as what they were."""
        request = self.request
        proven = ProvenRecords({damage.physical_offset: damage.proven for damage in damages})
        self.task = replace(
            self.task, proven=proven, companion=self._companion.reader(proven) if self._companion else None
        )
        self._total = None
        with closing(StoreReader(self.task, self.snapshot.reading, database)) as reader:
            self._part_run = PartRun(self.task, self._parts_to_check(reader), request, None, self._companion)
            jobs = request.jobs if self.snapshot.database is None else 1
            with WorkerPool[PartResult]() as pool:  # the first one has handed out its parts, and takes no others
                self._part_run.run(lambda _: None, pool, jobs, database)
            if self.ended_by is None:
                self.merged().damages = damages
                self.merged().keys.fields = [
                    (each.physical_offset, key) for each in damages if each.field != TAGS for key in each.key_hashes
                ]
                report_fields(damages, self._report)
                self._check_after_scan(reader, self.merged())

    def _listed_queues(self) -> QueueTable | None:
        """The queues in files, None where some of them could not be listed."""
        snapshot, queues = self.snapshot, self.snapshot.queues
        if self.read_errors.errors:
            return None
        in_files = (queue for queue in queues if not queue.database)
        return QueueTable(snapshot.store, in_files) if snapshot.database else queues

    def _check(self, check: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Run one check, which ends when a file cannot be read; the others go on."""
        with self.read_errors.scope():
            check(*arguments, **options)

    def _check_before_scan(self) -> None:
        """Run the checks that need no scan of the log."""
        check, snapshot, store, report = self._check, self.snapshot, self.snapshot.store, self._report
        check(check_store_files, snapshot, report)
        check(check_recorded_losses, store, report)
        check(check_selection, store, report)
        check(check_environment, snapshot, report)
        check(check_headers, store, self._index, report, live=self.task.live)
        check(check_upgrade, snapshot, report)
        if self.request.selection.wants_any("config."):
            check(check_config_databases, snapshot, report)
        if any(map(self.request.selection.wants_any, SIDE_CODES)):
            check(check_side_stores, snapshot, report)
        check(check_compacted_logs, snapshot, report)
        check(check_index_names, store, [file for file, _ in self._index], report)

    def _parts_to_check(self, reader: StoreReader) -> list[AnyPart]:
        """Parts of the log, then of the index; the same for any number of processes unless a broker writes."""
        files, request = self.task.files, self.request
        is_some = request.sample is not None or self.saved is not None
        size = min(request.part_size, _SMALL_PART) if is_some else request.part_size
        if self.task.live:
            of_log = live_parts(files, reader.index, is_whole=request.jobs == 1 and not is_some)
        else:
            is_default = not is_some and request.part_size == PART_SIZE
            least = _LOG_PER_QUEUE * self.snapshot.queues.filled if is_default and self.task.listed is not None else 0
            parts = log_parts(files, reader.reading, max(size, least), even=is_some)
            of_log = with_index(parts, reader.index, self.read_errors)
        return [*of_log, *index_parts(self.task.index_files, size)]

    def _check_after_scan(self, reader: StoreReader, total: PartResult) -> None:
        """Run the checks that need the whole log; each may depend on the findings of those before it."""
        check, snapshot, task, report = self._check, self.snapshot, self.task, self._report
        store, live, files = snapshot.store, task.live, task.files
        totals, log_end = total.totals, self.log_end
        is_end_read = not total.extents.end_unread(log_end)
        now = max(int(time.time() * 1000), latest_modification(files))
        if is_end_read:
            check(finish_end, totals, report)
        check(finish_times, totals, report, now + _CLOCK_TOLERANCE)
        check(finish_compression, totals, report)
        if not live and task.index and not self.read_errors.index_in(store):
            check(check_index_end, snapshot, reader, total)
        visit = self._visit_queues(reader, total) if task.queues else None
        self._predict(total, visit)
        if visit:
            self._check_queues(reader, total, visit)
        self._check_missing_keys(reader, total)
        if self.view and self.clients is not None and self.start:
            check(self.view.report_keys_lost, self.start, self.clients, report)
        if not live:
            of_another = bool(visit and visit.unmatched.are_of_another_log)
            log = ScannedLog(snapshot, reader, log_end, totals, total.queue_ends, of_another)
            check(check_timestamps, reader, report)
            check(check_checkpoint, log, report, is_end_read=is_end_read)
            if is_end_read:
                check(check_log_end, log, report)
        with self.read_errors.scope():
            firsts = list(first_records(files, reader.lookups))
            check(check_times, store, firsts, report)
            check(check_hosts, store, firsts, self.report_with(total.report), report)
        check(check_preallocated, store, files, max(log_end, total.extents_end()), report)
        if self.starts:
            findings = self.report_with(total.report).findings()
            check(report_starts, self.starts, report, is_clean=verdict_of(findings, is_proven=True) == "clean")
        if not live:
            check(check_abort_missing, self.report_with(total.report).all_totals(), report)

    def _check_missing_keys(self, reader: StoreReader, total: PartResult) -> None:
        start = self.start if self.start and not self.start.refuses else None
        after = self.view.index_after(start) if self.view and start else None
        off = index_switched_off(self.snapshot.store.conf)
        self._check(check_missing_keys, reader, total.keys, after, off, self._report)

    def _check_queues(self, reader: StoreReader, total: PartResult, visit: QueueVisit) -> None:
        """Run the checks that need all queues, once they are visited."""
        check, snapshot, report, live = self._check, self.snapshot, self._report, self.task.live
        store, topics, ranges = snapshot.store, snapshot.topics, visit.ranges
        visit.unmatched.report_zero_files(self.start)
        if snapshot.database:
            check(check_database, snapshot.database, total.states, report, live=live)
            check(check_copies_alone, snapshot, total.states, report)
            check(check_light_rows, snapshot, report)
        for state in total.states.values():
            check(report_missing_units, state, topics, report, self.start, snapshot.releases, live=live)
        if not ranges and report.all_totals().get("commitlog.deleted-topic"):
            report.doubt(*WHETHER_DELETED)
        ends = total.queue_ends
        check(check_topics, topics, ranges, snapshot.committed.offsets, report)
        counts = self.report_with(total.report).all_totals()
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
        check(check_timer, reader, self.log_end, ends, total.totals.latest, messages, snapshot.releases, report)
        if self.view and self.clients is not None and self.start:
            check(self.view.add_waiting, self.clients, self.start, lambda: delays_known_until(witnesses))
            check(self.view.report_delay_times, self.clients, self.start, report)

    def _visit_queues(self, reader: StoreReader, total: PartResult) -> QueueVisit:
        """Read each queue on disk, one after the other."""
        snapshot, files = self.snapshot, self.task.files
        files_end = files[-1].end_offset if files else 0
        bounds = LogBounds(snapshot.log_began_by, self.log_end, files_end, total.extents, self.task.live)
        visit = QueueVisit(snapshot, reader, self._report, bounds, recovers=self.task.recovery is not None)
        for index, queue in enumerate(snapshot.queues):
            name = QueueName(queue.topic, queue.queue_id)
            with self.read_errors.queue(name):
                visit.visit(index, queue, None if name in self.read_errors.queues else total.states.get(name))
        visit.unmatched.settle_light(judged_fields(snapshot, reader, visit.unmatched.of_light))
        wrong = self.report_with(total.report).all_totals().get("consumequeue.wrong-record", 0)
        if wrong >= _MANY and wrong >= _MANY * sum(each.right_between(0, MAX_OFFSET) for each in total.states.values()):
            visit.unmatched.forget_witnesses()
        self.lost = lost_by_topic(visit.unmatched.lost, total.states, snapshot.topics, snapshot.releases)
        beyond = visit.unmatched.beyond_files.total()
        if beyond:
            self._report.add("commitlog.last-file-missing", offset=files_end, details={"messages": beyond})
        return visit

    def _predict(self, total: PartResult, visit: QueueVisit | None) -> None:
        if self.task.recovery is None:
            return
        if self.read_errors.any_in(self.snapshot.store, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES):
            self.not_predicted = "not all of the queues could be read"
            return
        try:
            recovered = visit.recovered if visit else KnownQueues(self.snapshot.queues)
            self.starts = Predictor(self.snapshot, total.walks, total.states, recovered).predict()
            if visit:
                unmatched, has_index = visit.unmatched, self.task.index
                self.view = ClientView(
                    self.snapshot, total, visit.ranges, unmatched.witnesses, unmatched.beyond_files, has_index
                )
                self.clients = self.view.losses(self.starts[0].start)
        except EndingError:
            raise
        except RmqtoolError as error:
            self.not_predicted = str(error)

    @property
    def start(self) -> StartPrediction | None:
        """The predicted start of the newest release that fits."""
        return self.starts[0].start if self.starts else None

    @property
    def topics_seen(self) -> set[str]:
        """The topics of all messages of the log that were read, and that have a place in a queue."""
        return {name.topic for name in self.merged().states}

    def merged(self) -> PartResult:
        """The result of all parts, also of interrupted ones; nothing can be added afterwards."""
        if self._total is None:
            total = self._part_run.merger.total() if self._part_run else PartResult(self.task.report())
            self.stale_from = total.stale_from
            self.log_end = total.log_end if total.log_end is not None else self.log_end
            report_unreadable(self.snapshot.store, self.task.files, total)
            self.read_errors.extend(total.read_errors)
            self._total = total
        return self._total

    def report_with(self, part_report: Report) -> Report:
        """The findings of the whole store together with those of its parts, `part_report`."""
        self.note_unreported()
        both = self.task.report()
        both.merge(self._report)
        both.merge(part_report)
        of_log = self._total.unreadable if self._total else ()  # has findings in `part_report`
        for error in self.read_errors.findings(self.snapshot.store, of_log):
            both.add_always(error)
        return both

    def note_unreported(self) -> bool:
        """Note read errors that no check reports; whether there are any new ones."""
        if self._part_run and not self._total:  # the parts may report them yet
            return False
        reported = {*self._total.unreadable, *self._total.deleted} if self._total else set()
        return self.read_errors.note_unreported([*self._failed.values(), *failed_so_far()], reported)
