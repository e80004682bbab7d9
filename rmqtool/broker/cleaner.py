"""The cleaner's runs one after the other: log, queues and index, until a run finds nothing to delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.log_deletion import LogFile, LogRun, allocated_bytes, run_before_entries, run_over
from rmqtool.broker.queue_cleaner import QueueCleaner
from rmqtool.broker.queue_deletion import expired_index_files
from rmqtool.broker.row_filter import compacts
from rmqtool.broker.trigger import Disks, Trigger, trigger_at
from rmqtool.rules.retention import RetentionSettings
from rmqtool.rules.versions import BATCH_MAX_CONFIGURED, NEWEST, Version
from rmqtool.store.consume_queues import Queue
from rmqtool.store.index_files import IndexFile

_MANUAL_RUNS = 20  # CleanCommitLogService.MAX_MANUAL_DELETE_FILE_TIMES


@dataclass(frozen=True)
class Rules:
    """What the cleaner's decisions follow; `zone` None is this machine's time zone.

    `manual` is set after ``mqadmin deleteExpiredCommitLog``, `first_in_use` while a reader holds the first log file.
    `is_node` stands for a DLedger node, which has a cleaner of its own; while plain files from before DLedger are there
    that of all brokers runs, and `node_settings` count once they are gone.
    """

    settings: RetentionSettings
    version: Version
    zone: tzinfo | None = None
    manual: bool = False
    first_in_use: bool = False
    is_node: bool = False
    node_settings: RetentionSettings | None = None

    def of_node(self) -> Rules:
        """The rules of the node's own cleaner: those by which a run deletes are the same in all releases."""
        return replace(self, settings=self.node_settings or self.settings, version=NEWEST)

    @property
    def deletes_last_plain_file(self) -> bool:
        """Whether the last plain file goes: later releases call another method than the one that deletes it."""
        return self.version < BATCH_MAX_CONFIGURED


@dataclass(frozen=True)
class CleanerRun:
    """One run at `time`, epoch ms: what triggers it, and the files that it deletes, each kind oldest first.

    `filters_rows` is set when it takes the rows of deleted messages from the queues in RocksDB.
    """

    time: int
    trigger: Trigger
    log: LogRun
    queue_files: tuple[tuple[Queue, MappedFile], ...] = ()
    index_files: tuple[IndexFile, ...] = ()
    freed_bytes: int = 0  # allocated on the disks, not the files' lengths
    filters_rows: bool = False

    @property
    def deletes(self) -> bool:
        """Whether any file is deleted."""
        return bool(self.log.deleted or self.queue_files or self.index_files)


@dataclass
class Cleaner:
    """Runs the cleaner, and holds the state that its runs change.

    `log_min_offset` is the minimum that the queues were last cleaned for (`lastPhysicalMinOffset`, 0 after a start).
    `has_row_filter` is set where queues are in RocksDB, with a filter.
    """

    rules: Rules
    log_files: Sequence[LogFile]
    max_offset: int
    disks: Disks
    index_files: Sequence[IndexFile]
    queues: QueueCleaner
    freed: Counter[int] = field(default_factory=Counter)  # by device, bytes
    log_min_offset: int = 0
    has_row_filter: bool = False
    manual_runs: int = field(init=False)

    def __post_init__(self) -> None:
        is_by_node = self.rules.is_node and not self._has_plain_files
        self.manual_runs = _MANUAL_RUNS if self.rules.manual and not is_by_node else 0

    def runs(self, now: int) -> Iterator[CleanerRun]:
        """The runs from `now` on, epoch ms, one every `cleanResourceInterval`; the last deletes nothing."""
        while True:
            run = self.run(now)
            yield run
            if not run.deletes:
                return
            now += max(self.rules.settings.clean_resource_interval, 1)

    def run(self, now: int) -> CleanerRun:
        """One run at `now`, epoch ms; the next one no longer sees the files that it deletes."""
        is_by_node = self.rules.is_node and not self._has_plain_files
        rules = self.rules.of_node() if is_by_node else self.rules
        disks, freed = self._disks_now(), sum(self.freed.values())
        is_manual = self.manual_runs > 0 and not is_by_node
        trigger = trigger_at(rules.settings, disks, now, rules.zone, rules.version, manual=is_manual)
        if trigger.manual and trigger.runs:
            self.manual_runs -= 1
        log = self._log_run(rules, trigger, now)
        for decision in log.deleted:
            self.freed[decision.log_file.device] += decision.log_file.allocated
        self.log_files = self.log_files[len(log.deleted) :]
        run = CleanerRun(now, trigger, log)
        if log.min_offset > self.log_min_offset:
            self.log_min_offset = log.min_offset
            run = replace(run, queue_files=tuple(self._clean_queues()), index_files=tuple(self._clean_index()))
            queue_disk = self._disks_now().queues
            filters = self.has_row_filter and compacts(trigger, queue_disk, rules.settings, rules.version)
            run = replace(run, filters_rows=filters)
        return replace(run, freed_bytes=sum(self.freed.values()) - freed)

    @property
    def _has_plain_files(self) -> bool:
        return any(not log_file.file.header_size for log_file in self.log_files)

    def _log_run(self, rules: Rules, trigger: Trigger, now: int) -> LogRun:
        files, settings, in_use = self.log_files, rules.settings, rules.first_in_use
        if rules.is_node and self._has_plain_files:
            deletes_last = rules.deletes_last_plain_file
            return run_before_entries(files, trigger, settings, now, deletes_last=deletes_last, first_in_use=in_use)
        return run_over(files, self.max_offset, trigger, settings, now, first_in_use=in_use)

    def _clean_queues(self) -> list[tuple[Queue, MappedFile]]:
        gone = self.queues.clean(self.log_min_offset)
        self.freed[self.disks.queues.device] += sum(allocated_bytes(file.path) for _, file in gone)
        return gone

    def _clean_index(self) -> list[IndexFile]:
        gone = expired_index_files(self.index_files, self.log_min_offset)
        self.index_files = self.index_files[len(gone) :]
        self.freed[self.disks.queues.device] += sum(allocated_bytes(file.path) for file in gone)
        return gone

    def _disks_now(self) -> Disks:
        """The disks without the files that are deleted."""
        log = [disk.after(self.freed[disk.device]) for disk in self.disks.log]
        queues = self.disks.queues.after(self.freed[self.disks.queues.device])
        return Disks(log, queues, self.disks.major_file_size - sum(self.freed.values()))
