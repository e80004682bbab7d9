"""The plan: the cleaner's next runs on a store, and the store after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import islice

from rmqtool.base.files import RateLimit
from rmqtool.broker.cleaner import Cleaner, CleanerRun, Rules
from rmqtool.broker.delete_when import next_start
from rmqtool.broker.log_deletion import FileDecision
from rmqtool.broker.queue_cleaner import QueueCleaner
from rmqtool.broker.queue_deletion import QueueAfterRun
from rmqtool.broker.row_filter import has_filter
from rmqtool.broker.trigger import Trigger
from rmqtool.clean.snapshot import Facts, take_snapshot
from rmqtool.rules.retention import settings_of, settings_of_node
from rmqtool.rules.versions import Version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store


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
