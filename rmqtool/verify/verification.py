"""The whole verification of a store, log, queues and index, in one process or several; it may be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from rmqtool.base.errors import failed_reads
from rmqtool.base.files import RateLimit
from rmqtool.base.parallel import WorkerPool
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.field_damage import FieldDamage
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.findings.report import NEEDING_INDEX, NEEDING_QUEUES
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.store.commit_log import log_start
from rmqtool.store.consume_queues import QueueTable
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store
from rmqtool.verify.after_scan import AfterScan, Consequences
from rmqtool.verify.compaction_checks import CODES as COMPACTION_CODES
from rmqtool.verify.compaction_checks import check_compaction
from rmqtool.verify.config_checks import check_config_databases
from rmqtool.verify.disk_and_time_checks import check_environment
from rmqtool.verify.entry_checks import unread_units
from rmqtool.verify.field_checks import damaged_fields, note_fields
from rmqtool.verify.index_chains import check_headers
from rmqtool.verify.index_sequence import readable_files, tags_expected
from rmqtool.verify.log_pass import PartRun, parts_of
from rmqtool.verify.part_result import PartResult, StoreFindings
from rmqtool.verify.read_errors import UnreadFiles
from rmqtool.verify.rocksdb_side import SIDE_CODES, check_side_stores, require_copies
from rmqtool.verify.saved_progress import SavedProgress
from rmqtool.verify.store_checks import (
    check_index_names,
    check_records,
    check_store_files,
)
from rmqtool.verify.task import Companion, EarlyEnd, StoreReader, VerifyRequest, VerifyTask
from rmqtool.verify.tiered_checks import CODES as TIERED_CODES
from rmqtool.verify.tiered_checks import check_tier
from rmqtool.verify.upgrade_checks import check_upgrade

_OF_FIELDS = frozenset({"commitlog.field", "commitlog.sys-flag", "commitlog.body-compression", "commitlog.properties"})


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
        self.ended_by: EarlyEnd | None = None  # other than by an interruption
        self.log_start = log_start(self.snapshot.log.files)
        self.saved = saved
        self._companion = companion
        self.task = self._task()
        self.found = StoreFindings(self.task, self.read_errors)
        self.after = Consequences()

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
        findings = self.found.everything().findings()
        return frozenset(each.offset for each in findings if each.code in _OF_FIELDS and each.offset is not None)

    @property
    def total_bytes(self) -> int:
        """Bytes to read, for the progress."""
        return self.snapshot.log.size + sum(index_file.file.size for index_file in self.task.index_files)

    @property
    def log_end(self) -> int:
        """The end of the log as far as it was read, a physical offset."""
        end = self.found.total.log_end
        return self.log_start if end is None else end

    @property
    def topics_seen(self) -> set[str]:
        """The topics of all messages of the log that were read, and that have a place in a queue."""
        return {name.topic for name in self.found.total.states}

    def run(self, progress: Callable[[int], None], pool: WorkerPool[PartResult] | None = None) -> None:
        """Verify; `progress` is called with how many more bytes are done. Raises RmqtoolError.

        `pool` holds processes that were started for this; they end with it.
        """
        with (
            failed_reads() as self.found.failed,
            pool or WorkerPool[PartResult]() as workers,
            closing(self.snapshot.databases),
        ):
            self._run(progress, workers)

    def _run(self, progress: Callable[[int], None], pool: WorkerPool[PartResult]) -> None:
        _ = self.snapshot.committed  # read before the queues, which a running broker makes longer
        if self.task.queues and not self.task.live:
            self.task = replace(self.task, listed=self._listed_queues())
        self._check_before_scan()
        damages = self._pass(progress, pool, ())
        if damages:  # records with damaged fields count as what they were
            proven = ProvenRecords({damage.physical_offset: damage.proven for damage in damages})
            companion = self._companion.reader(proven) if self._companion else None
            self.task = replace(self.task, proven=proven, companion=companion)
            with WorkerPool[PartResult]() as another:  # the first one has handed out its parts, and takes no others
                self._pass(lambda _: None, another, damages)
        if self.ended_by is not None:
            return
        self.complete = True
        if self._companion:
            self._companion.is_whole = not self.found.total.unreadable and self.found.total.stale_from is None
        if self.saved:
            self.saved.remove()

    def _pass(
        self, progress: Callable[[int], None], pool: WorkerPool[PartResult], damages: Sequence[FieldDamage]
    ) -> Sequence[FieldDamage]:
        """Read log and index once, and check what they show as a whole; `damages` of fields are known from before.

        Where the first pass shows some they are returned, and nothing more is checked.
        """
        request, task, snapshot = self.request, self.task, self.snapshot
        saved = None if damages else self.saved
        database = None if task.live else snapshot.database  # a broker writes to it: it is opened again then
        with closing(StoreReader(task, snapshot.reading, database)) as reader:
            is_some = request.sample is not None or self.saved is not None
            parts = parts_of(reader, request, snapshot.queues.filled, self.read_errors, is_some=is_some)
            part_run = PartRun(task, parts, request, saved, self._companion)
            self.found.begin(part_run.merger)
            may_copy = snapshot.database is None  # whose library has threads by now, which a copy would lack
            try:
                part_run.run(progress, pool, request.jobs if may_copy else 1, database)
            finally:
                self.ended_by = part_run.ended_by
            total, after = self.found.total, AfterScan(snapshot, task, reader, self.found, self.after)
            if self.ended_by is not None:
                after.check_missing_keys()
                return ()
            if damages:
                note_fields(damages, total, self.found.report)
            elif not task.live and (shown := damaged_fields(snapshot, reader, total)):
                return shown
            after.check_all()
        return ()

    def _listed_queues(self) -> QueueTable | None:
        """The queues in files, None where some of them could not be listed."""
        snapshot, queues = self.snapshot, self.snapshot.queues
        if self.read_errors.errors:
            return None
        in_files = (queue for queue in queues if not queue.database)
        return QueueTable(snapshot.store, in_files) if snapshot.database else queues

    def _check_before_scan(self) -> None:
        """Run the checks that need no scan of the log."""
        check, snapshot, store, report = self.found.check, self.snapshot, self.snapshot.store, self.found.report
        check(check_store_files, snapshot, report)
        check(check_records, store, report)
        check(check_environment, snapshot, report)
        check(check_headers, store, self._index, report, live=self.task.live)
        check(check_upgrade, snapshot, report)
        if self.request.selection.wants_any("config."):
            check(check_config_databases, snapshot, report)
        if any(map(self.request.selection.wants_any, SIDE_CODES)):
            check(check_side_stores, snapshot, report)
        if any(map(self.request.selection.wants_any, COMPACTION_CODES)):
            check(check_compaction, snapshot, report)
        if any(map(self.request.selection.wants_any, TIERED_CODES)):
            check(check_tier, snapshot, report)
        check(check_index_names, store, [file for file, _ in self._index], report)
