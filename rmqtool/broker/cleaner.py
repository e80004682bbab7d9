"""The cleaner's runs one after the other, over log, queues and index, until a run finds nothing to delete.

Of the log `MappedFileQueue#deleteExpiredFileByTime` decides which files go, and why others stay.
"""

from __future__ import annotations

import heapq
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import takewhile
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import note_failure
from rmqtool.base.files import InputFile, unreadable
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.broker.trigger import Disk, Disks, Trigger, trigger_at
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats import consume_queue
from rmqtool.formats.layout import integer_at
from rmqtool.rules.retention import RetentionSettings
from rmqtool.rules.system_topics import FILLED_BY_BROKERS
from rmqtool.rules.versions import BATCH_MAX_CONFIGURED, COMBINED_QUEUES, EXPIRED_QUEUE_MIN_IS_MAX, NEWEST, Version
from rmqtool.store.consume_queues import Queue
from rmqtool.store.index_files import IndexFile
from rmqtool.store.queue_units import QueueRange, moved_range, queue_range
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.snapshot import Snapshot

Reason = Literal[
    "expired",
    "forced",
    "last-file",
    "ahead",
    "not-expired",
    "shielded",
    "next-run",
    "no-trigger",
    "cleaner-fails",
    "in-use",
    "plain-files",
]
NOT_BY_AGE = ("last-file", "ahead", "plain-files")
"""Reasons to keep a file, however old it is."""

_BLOCK = 512  # of st_blocks, whatever the file system's own are, bytes


@dataclass(frozen=True)
class LogFile:
    """One commit log file; `mtime` is its modification time, epoch ms, `allocated` its bytes on the disk `device`."""

    file: MappedFile
    mtime: int
    allocated: int
    device: int

    @property
    def start_offset(self) -> int:
        """Physical offset of its first byte."""
        return self.file.start_offset


@dataclass(frozen=True)
class FileDecision:
    """Whether and why a run deletes one file; `expires` is when its age allows to delete it, epoch ms."""

    log_file: LogFile
    deleted: bool
    reason: Reason
    expires: int


@dataclass(frozen=True)
class LogRun:
    """One run over the commit log; `min_offset` is the log's minimum after it, -1 without a file."""

    decisions: tuple[FileDecision, ...]
    min_offset: int

    @property
    def deleted(self) -> list[FileDecision]:
        """The files that are deleted, oldest first."""
        return [decision for decision in self.decisions if decision.deleted]

    @property
    def kept(self) -> list[FileDecision]:
        """The files that are kept, oldest first."""
        return [decision for decision in self.decisions if not decision.deleted]


def allocated_bytes(path: Path) -> int:
    """Bytes that a file occupies on its disk; 0 when it no longer exists."""
    try:
        status = os.stat(path)
    except OSError as error:
        note_failure(path, error)
        return 0
    return status.st_blocks * _BLOCK


def stat_log_file(file: MappedFile) -> LogFile | None:
    """A file with its modification time and size on disk; None when a running broker has just deleted it.

    Raises UnreadableError.
    """
    try:
        status = os.stat(file.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file.path, None, error) from error
    return LogFile(file, status.st_mtime_ns // 1_000_000, status.st_blocks * _BLOCK, status.st_dev)


def run_over(
    files: Sequence[LogFile],
    max_offset: int,
    trigger: Trigger,
    settings: RetentionSettings,
    now: int,
    *,
    first_in_use: bool = False,
) -> LogRun:
    """One run at `now`, epoch ms; `max_offset` is the log's end.

    Files past the end are allocated in advance, and the store does not count them. With `first_in_use` a reader still
    holds the first file: the run ends with it, and the log's minimum moves after it although it is kept.
    """
    counted = sum(log_file.start_offset <= max_offset for log_file in files)
    deleted = _deleted(files[: max(0, counted - 1)], trigger, settings, now)
    gone = 0 if first_in_use else len(deleted)
    expires = [settings.expires(log_file.mtime) for log_file in files]
    young = next((index for index, time in enumerate(expires) if now < time), len(files))
    decisions = []
    for index, log_file in enumerate(files):
        kept = _kept(index, counted, young, is_young=now < expires[index], trigger=trigger)
        reason = deleted[index] if index < gone else kept
        decisions.append(FileDecision(log_file, index < gone, reason, expires[index]))
    if first_in_use and deleted:
        decisions[0] = FileDecision(files[0], False, "in-use", decisions[0].expires)
        return LogRun(tuple(decisions), files[0].file.end_offset)
    return LogRun(tuple(decisions), files[gone].start_offset if files else -1)


def run_before_entries(
    files: Sequence[LogFile],
    trigger: Trigger,
    settings: RetentionSettings,
    now: int,
    *,
    deletes_last: bool,
    first_in_use: bool = False,
) -> LogRun:
    """One run where plain files stand before the entries of a DLedger node, whose own cleaner waits for their end.

    Where it `deletes_last` the last plain file goes alone in a run of its own (`DLedgerCommitLog#deleteExpiredFile`).
    """
    plain = [log_file for log_file in files if not log_file.file.header_size]
    entries = files[len(plain) :]
    run = run_over(plain, plain[-1].start_offset, trigger, settings, now, first_in_use=first_in_use)
    decisions, min_offset = list(run.decisions), run.min_offset
    last = decisions[-1]
    if deletes_last:
        young = next((index for index, each in enumerate(decisions) if now < each.expires), len(plain))
        is_young = now < last.expires
        goes = len(plain) == 1 and trigger.runs and (not is_young or trigger.forced)
        reason = _spared(len(plain) - 1, young, is_young=is_young, trigger=trigger)
        decisions[-1] = replace(last, deleted=goes, reason=("forced" if is_young else "expired") if goes else reason)
        if goes:
            min_offset = entries[0].start_offset if entries else -1
    held = (FileDecision(log_file, False, "plain-files", settings.expires(log_file.mtime)) for log_file in entries)
    return LogRun((*decisions, *held), min_offset)


def _deleted(candidates: Sequence[LogFile], trigger: Trigger, settings: RetentionSettings, now: int) -> list[Reason]:
    """The reasons why the first candidates are deleted, one for each."""
    reasons: list[Reason] = []
    if not trigger.runs:
        return reasons
    for log_file in candidates[: settings.delete_file_batch_max]:
        expired = now >= settings.expires(log_file.mtime)
        if not expired and not trigger.forced:
            break
        reasons.append("expired" if expired else "forced")
    return reasons


def _kept(index: int, counted: int, young: int, *, is_young: bool, trigger: Trigger) -> Reason:
    """Why a file is kept: the reason that would hold even without the others; `counted` are below the log's end."""
    if index >= counted:
        return "ahead"
    if index == counted - 1:
        return "last-file"
    return _spared(index, young, is_young=is_young, trigger=trigger)


def _spared(index: int, young: int, *, is_young: bool, trigger: Trigger) -> Reason:
    """Why a file that may be deleted is kept; `young` is the index of the first one that has not expired."""
    if index >= young and not (trigger.runs and trigger.forced):
        return "not-expired" if is_young else "shielded"
    if trigger.failure is not None:
        return "cleaner-fails"
    return "next-run" if trigger.runs else "no-trigger"


@dataclass(frozen=True)
class QueueAfterRun:
    """A queue after a run: the files that are left, and the range that the broker reports.

    `first_alive` is the first queue offset whose message the log still has; before 5.0.0 the minimum of a queue that
    has expired stays below it.
    """

    queue: Queue
    range: QueueRange
    first_alive: int


def first_state(queue: Queue, log_min_offset: int, version: Version) -> QueueAfterRun:
    """A queue as a start leaves it with its present files."""
    reported = queue_range(queue, log_min_offset, version)
    return QueueAfterRun(queue, reported, _first_alive(reported))


def follow(state: QueueAfterRun, log_min_offset: int, version: Version) -> tuple[list[MappedFile], QueueAfterRun]:
    """The queue files that are deleted when the log begins at `log_min_offset`, and the queue without them.

    The last file is always kept. Of the others the last unit decides; in a file that is not full it reads as offset 0
    (`MappedFileQueue#deleteExpiredFileByOffset`). Rows in RocksDB are not read any more when their messages are gone.
    """
    queue = state.queue
    if queue.database:
        reported = queue_range(queue, log_min_offset, version)
        return [], QueueAfterRun(queue, reported, max(_first_alive(reported), state.first_alive))
    gone = [*takewhile(lambda file: newest_offset_in(queue, file) < log_min_offset, queue.files.files[:-1])]
    left = replace(queue, files=MappedFiles(queue.files.files[len(gone) :]))
    reported = moved_range(left, state.range, log_min_offset, version)
    return gone, QueueAfterRun(left, reported, max(_first_alive(reported), state.first_alive))


def expired_index_files(files: Sequence[IndexFile], log_min_offset: int) -> list[IndexFile]:
    """The leading index files whose last message is gone; the last file stays."""
    return [*takewhile(lambda file: file.end_physical_offset < log_min_offset, files[:-1])]


def newest_offset_in(queue: Queue, file: MappedFile) -> int:
    """The physical offset in the last unit of a file, written or not, by which the broker judges the file."""
    return _offset_at(file, queue.files.file_size - queue.unit_size)


def _offset_at(file: MappedFile, position: int) -> int:
    with InputFile(file.path) as opened:
        data = opened.read(position, consume_queue.UNIT_SIZE).ljust(consume_queue.UNIT_SIZE, b"\0")
    return integer_at(consume_queue.UNIT_DTYPE, "physical_offset", data)  # all units begin with it


def _first_alive(reported: QueueRange) -> int:
    return reported.max_offset if reported.expired else max(reported.min_offset, 0)


class QueueCleaner:
    """The queues of a store; of each only the first file is read until it is deleted."""

    def __init__(self, start: Sequence[QueueAfterRun], version: Version) -> None:
        """`start` are the queues before the first run; `version` decides how minimum offsets move."""
        self._start = start
        self._version = version
        self._minimums: list[int] = []  # of the log, at each run that cleaned, ascending
        # (physical offset of the file's last unit, index of the queue, index of its first file)
        self._first_files: list[tuple[int, int, int]] | None = None

    def clean(self, log_min_offset: int) -> list[tuple[Queue, MappedFile]]:
        """The files that a run deletes when the log begins at `log_min_offset`, by queue, oldest first."""
        self._minimums.append(log_min_offset)
        if self._first_files is None:
            self._first_files = [
                entry for queue_index in range(len(self._start)) for entry in self._entry(queue_index, 0)
            ]
            heapq.heapify(self._first_files)
        gone: list[tuple[int, int]] = []
        while self._first_files and self._first_files[0][0] < log_min_offset:
            _, queue_index, file_index = heapq.heappop(self._first_files)
            gone.append((queue_index, file_index))
            for entry in self._entry(queue_index, file_index + 1):
                heapq.heappush(self._first_files, entry)
        queues = [state.queue for state in self._start]
        return [
            (queues[queue_index], queues[queue_index].files.files[file_index])
            for queue_index, file_index in sorted(gone)
        ]

    def states(self) -> list[QueueAfterRun]:
        """The queues after the last run."""
        return [self._state(state) for state in self._start]

    def _entry(self, queue_index: int, file_index: int) -> list[tuple[int, int, int]]:
        """The heap entry of a queue's first file; none for the last file, which is never deleted."""
        queue = self._start[queue_index].queue
        if file_index >= len(queue.files.files) - 1:
            return []
        return [(newest_offset_in(queue, queue.files.files[file_index]), queue_index, file_index)]

    def _state(self, state: QueueAfterRun) -> QueueAfterRun:
        if not self._minimums:
            return state
        last, final = state.range.last_physical_offset, self._minimums[-1]
        if self._version < EXPIRED_QUEUE_MIN_IS_MAX and last is not None and last < final:
            # The minimum of a wholly expired queue stays where the last run that found a unit left it.
            before = self._minimums[: bisect_right(self._minimums, last)]
            if before:
                state = follow(state, before[-1], self._version)[1]
        return follow(state, final, self._version)[1]


_FILLED_BY_BROKERS = re.compile(FILLED_BY_BROKERS)


def has_filter(snapshot: Snapshot, version: Version) -> bool:
    """Whether compactions drop rows of deleted messages.

    Before the combined store the second store of a broker that writes queues twice has a log of its own, without a
    file: its minimum, -1, keeps all rows (`DefaultMessageStore#enableRocksdbCQWrite`).
    """
    return version >= COMBINED_QUEUES or not snapshot.has_queues_twice


def compacts(trigger: Trigger, queue_disk: Disk, settings: RetentionSettings, version: Version) -> bool:
    """Whether a run compacts the database that finds a new minimum of the log; `--manual` alone does not."""
    ratio = queue_disk.ratio(version)
    is_full = ratio < 0 or ratio > settings.disk_max_used_space_ratio / 100.0
    return trigger.failure is None and (trigger.time or is_full)


def rows_below(database: QueueDatabase, log_min_offset: int, with_gaps: frozenset[str]) -> int:
    """Rows that lead below `log_min_offset`; they are counted one by one in topics `with_gaps`, else by their ends."""
    return sum(database.rows_below(queue, log_min_offset, has_gaps=queue[0] in with_gaps) for queue in database.lasts)


def unconfigured_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """One for each topic whose rows a broker deletes since it does not know it; none where that is not known."""
    database, topics = snapshot.database, snapshot.topics
    if database is None or topics.file.problem is not None:
        return
    rows: dict[str, list[int]] = {}  # of each queue, those whose messages are in the log
    for (topic, queue_id), last in database.lasts.items():
        if topic not in topics.by_name and not _FILLED_BY_BROKERS.search(topic):
            alive = last.queue_offset + 1 - database.first_live((topic, queue_id), snapshot.log_min_offset)
            rows.setdefault(topic, []).append(alive)
    for topic, alive_rows in sorted(rows.items()):
        if count := sum(alive_rows):
            yield finding("clean.topic-rows-dropped", store=snapshot.store.root, topic=topic,
                          details={"rows": count, "queues": len(alive_rows)})  # fmt: skip


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
            deletes_last = rules.version < BATCH_MAX_CONFIGURED  # later ones call another method than the one that does
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
