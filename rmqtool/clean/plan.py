"""The plan: the cleaner's next runs on a store, and the store after them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import islice
from pathlib import Path

from rmqtool.base.files import RateLimit, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.cleaner import (
    Cleaner,
    CleanerRun,
    FileDecision,
    LogFile,
    QueueAfterRun,
    QueueCleaner,
    Rules,
    first_state,
    has_filter,
    rows_below,
    stat_log_file,
)
from rmqtool.broker.trigger import Disks, Trigger, disk_of, next_start
from rmqtool.rules.retention import settings_of, settings_of_node
from rmqtool.rules.versions import SEVERAL_LOG_PATHS, Version
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.commit_log import LogRange, log_range
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONSUME_QUEUE, Store


@dataclass(frozen=True)
class Facts:
    """The facts that a broker's cleaner decides by: the store, and times and sizes of its files and disks."""

    snapshot: Snapshot
    log_range: LogRange
    log_files: Sequence[LogFile]
    first_timestamps: Sequence[int | None]  # store timestamp of each file's first message, epoch ms
    disks: Disks
    states: Sequence[QueueAfterRun]

    @property
    def log_bytes(self) -> int:
        """Bytes that the commit log occupies on its disks."""
        return sum(log_file.allocated for log_file in self.log_files)


def take_snapshot(
    store: Store, version: Version | None = None, used_ratio: float | None = None, limit: RateLimit | None = None
) -> Facts:
    """The facts about a store now; `used_ratio` (a fraction) replaces the measured ratio of all disks."""
    snapshot = Snapshot(store, version, limit)
    states = [first_state(queue, snapshot.log_min_offset, snapshot.release) for queue in snapshot.queues]
    ends = [state.range.last_physical_offset for state in states if state.range.last_physical_offset is not None]
    found = log_range(snapshot.log.files, max(ends, default=None), snapshot.reading)
    return _facts(snapshot, found, states, used_ratio)


def log_facts(snapshot: Snapshot, range_of_log: LogRange, newest: int) -> Facts:
    """The facts about the log without queues; times are those of its `newest` files, and of the first one."""
    return _facts(snapshot, range_of_log, [], None, newest)


def _facts(
    snapshot: Snapshot,
    range_of_log: LogRange,
    states: Sequence[QueueAfterRun],
    used_ratio: float | None,
    newest: int | None = None,
) -> Facts:
    store, log, release, reading = snapshot.store, snapshot.log, snapshot.release, snapshot.reading
    log_files = [log_file for log_file in map(stat_log_file, log.files) if log_file]
    timed = {id(each) for each in (log_files if newest is None else [*log_files[:1], *log_files[-newest:]])}
    measured = _measured_paths(store, release, has_plain_files=bool(snapshot.older_log.files))
    disks = [disk_of(path, release, used_ratio) for path in measured]
    queue_disk = disk_of(store.root / CONSUME_QUEUE, release, used_ratio)
    # Log, queues and index together, bytes (`DefaultMessageStore#getMajorFileSize`).
    index_size = sum(file.size for file in snapshot.index_files)
    major_size = log.size + sum(state.queue.files.size for state in states) + index_size
    return Facts(
        snapshot=snapshot,
        log_range=range_of_log,
        log_files=log_files,
        first_timestamps=[_first_timestamp(each.file, reading) if id(each) in timed else None for each in log_files],
        disks=Disks(disks, queue_disk, major_size),
        states=states,
    )


def _measured_paths(store: Store, version: Version, *, has_plain_files: bool) -> Sequence[Path]:
    """The paths whose disks count: those that are written to; before 4.9.2 several are one that does not exist."""
    text = store.conf.text("storePathCommitLog")
    if store.dledger_directory:
        return store.older_log_directories if has_plain_files else store.commit_log_directories
    if text is None:
        return store.commit_log_directories
    if version < SEVERAL_LOG_PATHS:
        return [store.root / text]
    return [path for path in store.commit_log_directories if path in {store.root / path for path in text.split(",")}]


def _first_timestamp(file: MappedFile, reading: ReadPolicy) -> int | None:
    """Store timestamp of a file's first message, with which each file begins."""
    if reading.rate_limit:
        reading.rate_limit.spend(os.sysconf("SC_PAGESIZE"))
    record = single_record_at([file], file.start_offset + file.header_size)
    return record.number("store_timestamp") if record is not None else None


@dataclass(frozen=True)
class CleanPlan:
    """The runs from `now` on (epoch ms), and the queues after them.

    `last` is the last run, or with all runs the one after it, which finds nothing to delete.
    """

    facts: Facts
    rules: Rules
    now: int
    runs: Sequence[CleanerRun]
    last: CleanerRun
    states: Sequence[QueueAfterRun]
    freed: Mapping[int, int]  # by device, bytes

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the store that is planned for."""
        return self.facts.snapshot

    @property
    def trigger(self) -> Trigger:
        """The reasons for the next run to delete."""
        return self.runs[0].trigger

    @property
    def kept(self) -> list[FileDecision]:
        """The log files that stay after all runs, oldest first."""
        return self.last.log.kept

    @property
    def deleted(self) -> list[FileDecision]:
        """The log files that go in all runs, oldest first."""
        return [decision for run in self.runs for decision in run.log.deleted]

    @property
    def holds_entries_back(self) -> bool:
        """Whether plain files from before DLedger keep those of DLedger's log from being deleted."""
        return any(decision.reason == "plain-files" for decision in self.runs[0].log.kept)

    @property
    def min_offset(self) -> int:
        """The log's minimum after all runs, -1 without a file."""
        return self.last.log.min_offset

    @property
    def next_start(self) -> int | None:
        """When the next hour of `deleteWhen` begins, epoch ms."""
        return next_start(self.rules.settings.delete_when, self.now, self.rules.zone)


@dataclass(frozen=True)
class AsIf:
    """What is taken to be otherwise than it is: settings, the disks' used ratio (a fraction), zone, who asked."""

    options: Mapping[str, str] = field(default_factory=dict)
    used_ratio: float | None = None
    zone: tzinfo | None = None
    is_manual: bool = False
    is_first_file_in_use: bool = False


def next_deletions(
    store: Store,
    version: Version | None,
    now: int,
    as_if: AsIf | None = None,
    *,
    limit: RateLimit | None = None,
    all_runs: bool = False,
) -> CleanPlan:
    """The plan for a store as it is now, at `now`, epoch ms; `version` None: the newest release that fits."""
    as_if = as_if or AsIf()
    facts = take_snapshot(store, version, as_if.used_ratio, limit)
    rules = rules_of(facts, store.conf.settings, as_if, facts.snapshot.release)
    return plan(facts, rules, now, all_runs=all_runs)


def rules_of(facts: Facts, conf: Mapping[str, str], as_if: AsIf, version: Version) -> Rules:
    """The rules by which a broker of `version` cleans, with the settings `conf` of broker.conf."""
    settings, snapshot = settings_of(conf, as_if.options, version), facts.snapshot
    is_node = snapshot.store.dledger_directory is not None
    of_node = settings_of_node(settings, version) if is_node else None
    if of_node and not snapshot.older_log.files:
        settings = of_node
    return Rules(settings, version, as_if.zone, as_if.is_manual, as_if.is_first_file_in_use, is_node, of_node)


def plan(facts: Facts, rules: Rules, now: int, *, all_runs: bool = False) -> CleanPlan:
    """Plan the next run at `now` (epoch ms); `all_runs` adds the runs that follow until nothing is deleted.

    A run that deletes nothing is shown only when it is the first.
    """
    cleaner = cleaner_of(facts, rules)
    runs = list(cleaner.runs(now) if all_runs else islice(cleaner.runs(now), 1))
    shown = runs[:-1] if len(runs) > 1 else runs
    return CleanPlan(facts, rules, now, shown, runs[-1], cleaner.queues.states(), cleaner.freed)


def cleaner_of(facts: Facts, rules: Rules, *, log_only: bool = False) -> Cleaner:
    """The cleaner of a broker that has started on the store as it is, or on its log alone."""
    return Cleaner(
        rules=rules,
        log_files=list(facts.log_files),
        max_offset=facts.log_range.max_offset,
        disks=facts.disks,
        index_files=[] if log_only else list(facts.snapshot.index_files),
        queues=QueueCleaner([] if log_only else facts.states, rules.version),
        has_row_filter=facts.snapshot.database is not None and has_filter(facts.snapshot, rules.version),
    )


@dataclass(frozen=True)
class QueueRows:
    """Rows of a `database` that lead below the log: `now`, `dropped` by each run, and `left` after the last.

    `is_filtered` is false where no compaction ever drops them.
    """

    database: QueueDatabase
    is_filtered: bool
    now: int
    dropped: Sequence[int]
    left: int


def queue_rows(plan: CleanPlan) -> QueueRows | None:
    """The rows before and after the runs of a plan; None without a database. Raises UnreadableError."""
    snapshot = plan.snapshot
    database, batch_topics = snapshot.database, snapshot.topics.with_batch_queues or frozenset()
    if database is None:
        return None
    dropped, gone = [], 0
    for run in plan.runs:
        below = rows_below(database, run.log.min_offset, batch_topics) if run.filters_rows else gone
        dropped.append(below - gone)
        gone = below
    now = rows_below(database, snapshot.log_min_offset, batch_topics)
    left = rows_below(database, plan.min_offset, batch_topics) - gone
    return QueueRows(database, has_filter(snapshot, plan.rules.version), now, dropped, left)
