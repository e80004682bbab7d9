"""The whole proof: surroundings, log, queues and index, in one process or several; told when interrupted, too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFiles
from rmqtool.base.parallel import WorkerPool
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartPrediction
from rmqtool.findings.finding import counted
from rmqtool.findings.report import NEEDING_INDEX, NEEDING_QUEUES, Report, Selection, verdict_of
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from rmqtool.store.commit_log import log_start
from rmqtool.store.consume_queues import QueueRange, has_light_queues, list_queues, queue_range
from rmqtool.store.consumer_offsets import CommittedOffset, load_offsets
from rmqtool.store.delays_seen import delay_levels_of_store
from rmqtool.store.lock import Holder, lock_holder
from rmqtool.store.splits import PART_SIZE, log_parts
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, Store
from rmqtool.store.topics import Topics, load_topics
from rmqtool.store.version_signs import releases_of
from rmqtool.verify.config_witnesses import check_witnesses
from rmqtool.verify.disk_and_time_checks import check_environment, check_times, first_records, latest_modification
from rmqtool.verify.index_chains import check_headers, check_timestamps
from rmqtool.verify.index_check import check_index_end
from rmqtool.verify.index_sequence import known_geometries, parts_of, tags_expected
from rmqtool.verify.log_head import LogHead
from rmqtool.verify.log_witnesses import LogSeen, check_log_end
from rmqtool.verify.missing_units import WHETHER_DELETED, report_missing_units
from rmqtool.verify.mixed_brokers import check_hosts
from rmqtool.verify.offset_checks import check_delay_offsets, check_kind, check_offsets, check_topics
from rmqtool.verify.part_check import PartCheck
from rmqtool.verify.part_result import PartMerger, PartResult, report_unreadable
from rmqtool.verify.parts import AnyPart, index_parts, live_parts, order_of, with_index
from rmqtool.verify.queue_leftovers import LogBounds, UnmatchedUnits
from rmqtool.verify.read_errors import UnreadFiles
from rmqtool.verify.record_checks import finish_end, finish_times
from rmqtool.verify.single_messages import SingleMessages
from rmqtool.verify.start import Prediction, Predictor, report_starts
from rmqtool.verify.store_checks import (
    check_abort_missing,
    check_checkpoint,
    check_index_names,
    check_preallocated,
    check_surroundings,
)
from rmqtool.verify.task import StoreReader, VerifyTask
from rmqtool.verify.timer_checks import check_timer
from rmqtool.verify.witnesses import Witnesses

_CLOCK_TOLERANCE = 60_000  # ms
P = ParamSpec("P")


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
        self.log_start = log_start(self.log.files)
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
        self._merger: PartMerger | None = None
        self._total: PartResult | None = None

    def _settings(self) -> VerifyTask:
        store, request = self.store, self.request
        light = has_light_queues(store, self.read_errors.part)
        version, delays, older = self.releases.newest, delay_levels_of_store(store), not self.releases.is_named
        rules = DispatchRules.of(version, store.conf, delays, lmq_seen=light, may_be_older=older)
        selection = request.selection
        return VerifyTask(
            root=store.root,
            conf=store.conf,
            version=request.version,
            rules=replace(rules, index_tags=True),
            batch_topics=self.topics.with_batch_queues,
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
        self._check_surroundings()
        self.settings = replace(
            self.settings,
            tags_expected=tags_expected(self._index, self.log.files, self.request.version),
            files=self.log.files,
            index_parts=tuple(self._parts),
        )
        with closing(StoreReader(self.store, self.settings)) as reader:
            self._check_parts(self._parts_to_check(reader), progress, pool)
            self._check_whole(reader, self.merged())
        self.complete = True

    def _check(self, check: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Do one check, which ends when a file cannot be read; the others go on."""
        with self.read_errors.part():
            check(*arguments, **options)

    def _check_surroundings(self) -> None:
        """What needs no scan of the log."""
        check, store, log, report, live = self._check, self.store, self.log, self._report, self.settings.live
        check(check_surroundings, store, log, self.holder, report, self.releases)
        check(check_environment, store, log, self.request.version, report, live=live)
        check(check_headers, store, self._index, report, live=live)
        check(check_index_names, store, [file for file, _ in self._index], report)

    def _check_parts(self, parts: list[AnyPart], progress: Callable[[int], None], pool: WorkerPool[PartResult]) -> None:
        """The log against queues and index, and the index by itself, part by part."""
        rate = self.request.rate and max(1, self.request.rate // self.request.jobs)
        task = replace(self.settings, rate=rate)
        pool.grow(min(self.request.jobs, len(parts)) - 1)
        check = PartCheck(task, parts)
        pool.begin(partial(PartCheck, task, parts), order_of(parts), check)
        self._merger = merger = PartMerger(parts, PartResult(task.report()))
        with closing(check):
            try:
                for step in pool.steps():
                    part = None if step.result is None else merger.add(step.part, step.result)
                    while part is not None:
                        part = merger.replace(part, check.again(part))
                    if step.size:
                        progress(step.size)
            except KeyboardInterrupt:
                for step in pool.stop():
                    if step.result is not None:
                        merger.keep(step.part, step.result)
                raise

    def _parts_to_check(self, reader: StoreReader) -> list[AnyPart]:
        """Of the log, then of the index, the same for any number of processes unless a broker writes."""
        files, size = self.log.files, self.request.part_size
        if self.settings.live:
            of_log = live_parts(files, reader.index, self.request.jobs)
        else:
            of_log = with_index(log_parts(files, reader.reading, size), reader.index, self.read_errors)
        return [*of_log, *index_parts(self._parts, size)]

    def _check_whole(self, reader: StoreReader, total: PartResult) -> None:
        """What only the whole log shows; each check may build on what those before it have found."""
        check, store, report, live = self._check, self.store, self._report, self.settings.live
        files, totals, log_end = self.log.files, total.totals, self.log_end
        is_end_read = not total.extents.end_unread(log_end)
        now = max(int(time.time() * 1000), latest_modification(files))
        if is_end_read:
            check(finish_end, totals, report)
        check(finish_times, totals, report, now + _CLOCK_TOLERANCE)
        self._predict(total)
        if self.settings.queues:
            self._check_queues(reader, total)
        if not live and self.settings.index and not self.read_errors.index_in(store):
            check(check_index_end, reader, total)
        if not live:
            check(check_timestamps, reader, report)
            check(check_checkpoint, reader, totals, log_end, report, is_end_read=is_end_read)
        if not live and is_end_read:
            seen = LogSeen(reader, log_end, totals, self._committed, total.queue_ends)
            check(check_log_end, seen, report)
        with self.read_errors.part():
            firsts = list(first_records(files, reader.lookups))
            check(check_times, store, firsts, report)
            check(check_hosts, store, firsts, self.report_with(total.report), report)
        check(check_preallocated, store, files, max(log_end, total.extents_end()), report)
        if self.starts:
            findings = self.report_with(total.report).findings()
            check(report_starts, self.starts, report, is_clean=verdict_of(findings, is_proven=True) == "clean")
        if self.holder is None:
            check(check_abort_missing, self.report_with(total.report).seen(), report)

    def _check_queues(self, reader: StoreReader, total: PartResult) -> None:
        """What only all queues show, and what is in none."""
        check, store, report = self._check, self.store, self._report
        head = LogHead(self.log_start)
        ranges = self._match_queues(reader, total, head)
        for state in total.states.values():
            check(report_missing_units, state, self.topics, report, self.start, self.releases, live=self.settings.live)
        if not ranges and report.seen().get("commitlog.deleted-topic"):
            report.doubt(*WHETHER_DELETED)
        ends = total.queue_ends
        check(check_topics, self.topics, ranges, report)
        check(check_offsets, self._committed, ranges, ends, self.report_with(total.report).seen(), report)
        check(check_delay_offsets, store, ranges, report)
        if self.settings.live:
            return
        check(head.check, reader, report)
        messages = SingleMessages(store, self.log.files, self.releases.newest)
        seen = Witnesses(reader, self.topics, ranges, total.states, total.totals, messages)
        check(check_witnesses, seen, report)
        ends = {name: max(found.max_offset, ends.get(name, 0)) for name, found in ranges.items()}
        check(check_timer, reader, ends, total.totals.latest, report)

    def _match_queues(self, reader: StoreReader, total: PartResult, head: LogHead) -> dict[QueueName, QueueRange]:
        """Look at each queue on disk for units that no message of the log has; the range of each."""
        files_end = self.log.files[-1].end_offset if self.log.files else 0
        bounds = LogBounds(self.log_start, self.log_end, files_end, total.extents, self.settings.live)
        ranges: dict[QueueName, QueueRange] = {}
        rest = UnmatchedUnits(self.store, self._report, bounds, reader.open_files, reader.lookups, self.lost,
                              releases=self.releases, start=self.start)  # fmt: skip
        for queue in list_queues(self.store, self.read_errors.part):
            name = QueueName(queue.topic, queue.queue_id)
            with self.read_errors.queue(name):
                rest.check(queue, None if name in self.read_errors.queues else total.states.get(name))
                check_kind(self.topics, queue, self._report)
                head.look(queue, reader.open_files)
                ranges[name] = queue_range(queue, self.log_start, self.releases.newest)
        if rest.beyond_files.total():
            message = f"{counted(rest.beyond_files.total(), 'consume queue unit')} of messages behind the last file"
            self._report.add("commitlog.last-file-missing", message, offset=files_end)
        return ranges

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

    def merged(self) -> PartResult:
        """What all parts have found, those that were interrupted included; nothing can be added then."""
        if self._total is None:
            total = self._merger.total() if self._merger is not None else PartResult(self.settings.report())
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
