"""The whole proof: surroundings, log, queues and index, in one process or several; told when interrupted, too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import OpenFiles
from rmqtool.base.mapped_files import MappedFiles
from rmqtool.base.parallel import WorkerPool
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.prediction import StartPrediction
from rmqtool.findings.finding import counted
from rmqtool.findings.report import NEEDING_INDEX, NEEDING_QUEUES, Report, Selection, verdict_of
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from rmqtool.store.consume_queues import QueueRange, has_light_queues, list_queues, queue_range
from rmqtool.store.consumer_offsets import CommittedOffset, load_offsets
from rmqtool.store.lock import Holder, lock_holder
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, Store
from rmqtool.store.topics import Topics, load_topics
from rmqtool.store.version_signs import releases_of
from rmqtool.verify.config_witnesses import Witnesses, check_witnesses
from rmqtool.verify.disk_and_time_checks import check_environment, check_times, first_records, latest_modification
from rmqtool.verify.index_chains import check_headers, check_timestamps
from rmqtool.verify.index_check import IndexCheck
from rmqtool.verify.index_sequence import IndexUnits, known_geometries, parts_of, tags_expected
from rmqtool.verify.log_head import LogHead
from rmqtool.verify.log_witnesses import LogSeen, check_log_end
from rmqtool.verify.merge_parts import PartMerger
from rmqtool.verify.missing_units import WHETHER_DELETED, report_missing_units
from rmqtool.verify.mixed_brokers import check_hosts
from rmqtool.verify.offset_checks import check_delay_offsets, check_kind, check_offsets, check_topics
from rmqtool.verify.part_check import PartCheck, VerifyTask
from rmqtool.verify.part_result import PartResult, report_unreadable
from rmqtool.verify.parts import (
    PART_SIZE,
    AnyPart,
    IndexPart,
    LogPart,
    index_parts,
    live_parts,
    log_parts,
    log_start_of,
    order_of,
)
from rmqtool.verify.queue_leftovers import LogBounds, UnmatchedUnits
from rmqtool.verify.read_errors import UnreadFiles
from rmqtool.verify.record_checks import finish_end, finish_times
from rmqtool.verify.start import Prediction, Predictor, report_starts
from rmqtool.verify.store_checks import check_checkpoint, check_index_names, check_surroundings
from rmqtool.verify.timer_checks import check_timer

_CLOCK_TOLERANCE = 60_000  # ms
_CRASH_SIGNS = ("commitlog.torn", "consumequeue.behind", "consumequeue.ahead")


@dataclass(frozen=True)
class VerifyRequest:
    """What the user asks for."""

    version: Version | None = None
    selection: Selection = field(default_factory=Selection)
    max_examples: int = 10
    jobs: int = 1
    bodies: bool = True
    rate: int | None = None
    part_size: int = PART_SIZE


class Verification:
    """One run over a store. After `run`, or when it was interrupted, the rest tells what is known."""

    def __init__(self, store: Store, request: VerifyRequest) -> None:
        self.store = store
        self.request = request
        self.holder: Holder | None = lock_holder(store.root)
        self.log: MappedFiles = store.commit_log()
        self.topics: Topics = load_topics(store)
        self.releases = releases_of(store, request.version)
        self.read_errors = UnreadFiles()
        self.complete = False
        self.lost: Counter[str] = Counter()
        self.log_start = log_start_of(self.log.files)
        self.log_end = self.log_start
        self.stale_from: int | None = None
        self.starts: list[Prediction] = []
        self.not_predicted: str | None = None
        self.settings = self._settings()
        self._index = known_geometries(store, self.read_errors.part) if self.settings.index else []
        self._parts = parts_of(self._index)
        if self.settings.live and any(geometry is None and file.keys for file, geometry in self._index):
            self._parts = []  # what is in the others would not be all
        if self.read_errors.index_in(store) or (not self._parts and self.settings.live and self._index):
            self.settings = replace(self.settings, index=False)
        self._report = self.settings.report()
        self._committed: Sequence[CommittedOffset] = ()
        self._joining: PartMerger | None = None
        self._of_index: dict[int, PartResult] = {}
        self._total: PartResult | None = None

    def _settings(self) -> VerifyTask:
        store, request = self.store, self.request
        light = has_light_queues(store, self.read_errors.part)
        rules = DispatchRules.of(self.releases.newest, store, light, may_be_older=not self.releases.is_named)
        selection = request.selection
        return VerifyTask(
            root=store.root,
            conf=store.conf,
            version=request.version,
            rules=replace(rules, index_tags=True),
            selection=selection,
            max_examples=request.max_examples,
            bodies=request.bodies,
            live=self.holder is not None,
            queues=store.layout != "rocksdb" and any(map(selection.wants_any, NEEDING_QUEUES)),
            index=any(map(selection.wants_any, NEEDING_INDEX)),
            recovery=self._recovery_rules(),
            rate=request.rate,
            releases=self.releases,
        )

    def _recovery_rules(self) -> RecoveryRules | None:
        """The rules of the start that is predicted; of a store that is in use nobody asks for one."""
        if self.holder is not None or self.store.layout == "rocksdb" or not self.request.selection.wants_any("start."):
            return None
        return RecoveryRules.of(self.releases.newest, self.store.conf)

    @property
    def total_bytes(self) -> int:
        """How much there is to read, for the progress."""
        return self.log.size + sum(part.file.size for part in self._parts)

    def run(self, progress: Callable[[int], None], pool: WorkerPool[PartResult] | None = None) -> None:
        """Verify; `progress` is told how many more bytes are done. Raises RmqtoolError.

        `pool` has processes that were started for it; they end with it.
        """
        with pool or WorkerPool[PartResult]() as workers:
            self._run(progress, workers)

    def _run(self, progress: Callable[[int], None], pool: WorkerPool[PartResult]) -> None:
        self._committed = load_offsets(self.store).offsets  # before the queues, which a running broker makes longer
        with self.read_errors.part():
            check_surroundings(self.store, self.log, self.holder, self._report, self.settings.releases)
        with self.read_errors.part():
            check_environment(self.store, self.log, self.request.version, self.settings.live, self._report)
        with self.read_errors.part():
            check_headers(self.store, self._index, self._report, self.settings.live)
            check_index_names(self.store, [file for file, _ in self._index], self._report)
        settings = replace(
            self.settings,
            tags_expected=tags_expected(self._index, self.log.files, self.request.version),
            files=self.log.files,
            index_parts=tuple(self._parts),
            rate=self.request.rate and max(1, self.request.rate // self.request.jobs),
        )
        of_log, of_index = self._parts_to_check()
        parts: list[AnyPart] = [*of_log, *of_index]
        pool.grow(min(self.request.jobs, len(parts)) - 1)
        check = PartCheck(settings, parts)
        pool.begin(partial(PartCheck, settings, parts), order_of(parts), check)
        self._joining = PartMerger(of_log, PartResult(settings.report()), check.again)
        try:
            for step in pool.steps():
                progress(step.size)
                if step.result is None:
                    continue
                if step.part < len(of_log):
                    self._joining.add(step.part, step.result)
                else:
                    self._of_index[step.part] = step.result
        except KeyboardInterrupt:
            for step in pool.stop():
                if step.result is None:
                    continue
                if step.part < len(of_log):
                    self._joining.keep(step.part, step.result)
                else:
                    self._of_index[step.part] = step.result
            raise
        finally:
            check.close()
        self._finish()
        self.complete = True

    def _parts_to_check(self) -> tuple[list[LogPart], list[IndexPart]]:
        """Of the log and of the index, the same for any number of processes unless a broker writes."""
        reading, files = self.settings.reading(), self.log.files
        open_files = OpenFiles(reading)
        units = IndexUnits(self._parts, open_files)
        if self.settings.live:
            of_log = live_parts(files, units, self.request.jobs)
        else:
            of_log = log_parts(files, units, reading, self.read_errors, self.request.part_size)
        open_files.close()
        return of_log, index_parts(self._parts, self.request.part_size)

    def _finish(self) -> None:
        """What only the whole tells."""
        total = self.merged()
        now = max(int(time.time() * 1000), latest_modification(self.log.files))
        if not total.extents.end_unread(self.log_end):
            finish_end(total.totals, self._report)
        finish_times(total.totals, self._report, now + _CLOCK_TOLERANCE)
        lookups = Lookups(self.log.files, Dispatcher(self.settings.rules, self.topics.with_batch_queues))
        self._predict(total)
        if self.settings.queues:
            self._finish_queues(total, lookups)
        with self.read_errors.part():
            self._finish_index(total, lookups)
        with self.read_errors.part():
            if not self.settings.live:
                self._finish_log_end(total, lookups)
        with self.read_errors.part():
            firsts = list(first_records(self.log.files, lookups))
            check_times(self.store, firsts, self._report)
            check_hosts(self.store, firsts, self.report_with(total.report), self._report)
        for file in self.log.files[1:]:
            if file.size and file.start_offset >= max(self.log_end, total.extents_end()):
                self._report.add("commitlog.preallocated", "holds only zeros", file=self.store.relative(file.path))
        if self.starts:
            findings = self.report_with(total.report).findings()
            report_starts(self.starts, self._report, is_clean=verdict_of(findings, is_proven=True) == "clean")
        counts = self.report_with(total.report).seen()
        if (
            self.holder is None
            and "store.unclean-stop" not in counts
            and any(counts.get(code) for code in _CRASH_SIGNS)
        ):
            self._report.add("store.abort-missing", "torn or behind as after a crash, but there is no file abort")

    def _predict(self, total: PartResult) -> None:
        if self.settings.recovery is None:
            return
        if self.read_errors.any_in(self.store, CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
            self.not_predicted = "not all of the queues could be read"
            return
        try:
            reading = self.settings.reading()
            self.starts = Predictor(self.store, total.walks, reading, total.states).predict(self.releases)
        except RmqtoolError as error:
            self.not_predicted = str(error)

    @property
    def start(self) -> StartPrediction | None:
        """The predicted start of the newest release that fits."""
        return self.starts[0].start if self.starts else None

    def _finish_queues(self, total: PartResult, lookups: Lookups) -> None:
        files_end = self.log.files[-1].end_offset if self.log.files else 0
        bounds = LogBounds(self.log_start, self.log_end, files_end, total.extents, self.settings.live)
        open_files = OpenFiles(self.settings.reading())
        rest = UnmatchedUnits(self.store, self._report, bounds, open_files, lookups, self.lost,
                         releases=self.settings.releases, start=self.start)  # fmt: skip
        ranges: dict[QueueName, QueueRange] = {}
        head = LogHead(self.log_start)
        for queue in list_queues(self.store, self.read_errors.part):
            name = QueueName(queue.topic, queue.queue_id)
            with self.read_errors.queue(name):
                rest.check(queue, None if name in self.read_errors.queues else total.states.get(name))
                check_kind(self.topics, queue, self._report)
                head.look(queue, open_files)
                ranges[name] = queue_range(queue, self.log_start, self.releases.newest)
        open_files.close()
        if rest.beyond_files.total():
            message = f"{counted(rest.beyond_files.total(), 'consume queue unit')} of messages behind the last file"
            self._report.add("commitlog.last-file-missing", message, offset=files_end)
        for state in total.states.values():
            report_missing_units(state, self.topics, self.settings.live, self._report, self.start, self.releases)
        if not ranges and self._report.seen().get("commitlog.deleted-topic"):
            self._report.doubt(*WHETHER_DELETED)
        check_topics(self.topics, ranges, self._report)
        ends = {name: state.next_offset for name, state in total.states.items()}
        check_offsets(self._committed, ranges, ends, self.report_with(total.report).seen(), self._report)
        check_delay_offsets(self.store, ranges, self._report)
        if self.settings.live:
            return
        with self.read_errors.part():
            head.check(self.store, self.log.files, self._parts, lookups, self._report)
            files, version = self.log.files, self.releases.newest
            seen = Witnesses(self.store, files, self.topics, ranges, total.states, total.totals, version)
            check_witnesses(seen, self._report)
        with self.read_errors.part():
            ends = {name: max(found.max_offset, ends.get(name, 0)) for name, found in ranges.items()}
            latest = total.totals.latest
            check_timer(self.store, ends, self.log.files, latest, self._report, self.settings.reading())

    def _finish_index(self, total: PartResult, lookups: Lookups) -> None:
        """Units behind those of all messages; header timestamps against the messages that they are those of."""
        if self.settings.index and not self.settings.live and not self.read_errors.index_in(self.store):
            open_files = OpenFiles(self.settings.reading())
            units = IndexUnits(self._parts, open_files)
            rest = IndexCheck(self.store, total.report, units, total.extents, lookups, total.seam.index_at,
                              units.total, False, self.log_start, False)  # fmt: skip
            rest.finish(total.log_end or 0)
            open_files.close()
        if not self.settings.live:
            check_timestamps(self.store, self._parts, lookups, self._report)

    def _finish_log_end(self, total: PartResult, lookups: Lookups) -> None:
        """The end of the log against what other files know of it."""
        is_end_read = not total.extents.end_unread(self.log_end)
        check_checkpoint(self.store, self.log, total.totals, self.log_end, lookups, self._report, is_end_read)
        if is_end_read:
            ends = {name: state.next_offset for name, state in total.states.items()}
            seen = LogSeen(self.log.files, self.log_start, self.log_end, total.totals, self._committed, ends)
            check_log_end(self.store, seen, self._parts, self._report)

    def merged(self) -> PartResult:
        """What all parts have found, those that were interrupted included; nothing can be added then."""
        if self._total is None:
            total = self._joining.total() if self._joining is not None else PartResult(self.settings.report())
            for number in sorted(self._of_index):
                total.extend(self._of_index[number])
            self.stale_from = total.stale_from
            self.log_end = total.log_end if total.log_end is not None else self.log_end
            report_unreadable(self.store, self.log.files, total)
            self.read_errors.extend(total.read_errors)
            self._total = total
        return self._total

    def report_with(self, found: Report) -> Report:
        """The findings of the whole store together with those of its parts."""
        both = self.settings.report()
        both.merge(self._report)
        both.merge(found)
        for error in self.read_errors.findings(self.store):
            both.insist(error)
        return both
