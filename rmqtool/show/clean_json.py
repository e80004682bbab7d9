"""A plan of the cleaner as JSON."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from rmqtool.base.numbers import Count, Long
from rmqtool.base.times import CertainMoment, Moment
from rmqtool.clean.forecast import Forecast
from rmqtool.clean.losses import GroupLoss, Losses, Undelivered
from rmqtool.clean.other_logs import NextCompaction, OtherLogs, TierExpiry
from rmqtool.clean.plan import CleanPlan
from rmqtool.rules.retention import Setting
from rmqtool.scan.filters import TopicChoice
from rmqtool.show.shapes import Recovered, Shape, at, by


def clean_json(
    plan: CleanPlan, losses: Losses, forecast: Forecast, topics: TopicChoice | None = None
) -> dict[str, Any]:
    """The `result` of ``clean STORE``; its lists of queues, topics and consumers are of `topics`, None: of all."""
    return Deletion.of(_Shown(plan, losses, forecast, losses if topics is None else losses.of(topics)), plan)


class _Shown(NamedTuple):
    plan: CleanPlan
    losses: Losses
    forecast: Forecast
    chosen: Losses


def _percent(ratio: float | None) -> float | None:
    """A ratio as percent; None where the broker does not know it."""
    return None if ratio is None or ratio < 0 else round(ratio * 100, 6)


def _path(place: str) -> Any:
    """A path in the store, of an attribute."""
    read = at(place).read
    return by(lambda shown, plan: plan.snapshot.store.relative(read(shown, plan)))


def _paths(files: Any, plan: CleanPlan) -> list[str]:
    return [plan.snapshot.store.relative(file.path) for file in files]


class Disk(Shape):
    """One disk that is measured."""

    path: str = _path("path")  # The directory below which it is, relative to the store.
    # How full it is as that version computes it; null where the broker cannot measure it.
    used_percent: float | None = by(lambda disk, plan: _percent(disk.ratio(plan.snapshot.release)))
    total_bytes: Count = at("total")  # Its size.
    free_bytes: Count = at("free")  # What is free for root.
    usable_bytes: Count = at("usable")  # What is free for others.


class Trigger(Shape):
    """What the next run finds."""

    time: bool  # The hour is one of deleteWhen.
    space: bool  # A disk is above diskMaxUsedSpaceRatio, or cannot be measured.
    manual: bool  # As after mqadmin deleteExpiredCommitLog.
    forced: bool  # Files may be deleted regardless of age, if the run deletes at all.
    runs: bool  # The run looks at files: time, space or manual, and no failure.
    failure: str | None  # The piece of deleteWhen at which the run ends with an exception.
    writes_refused: bool  # The broker refuses messages: disk full.
    # Of the least full commit log path, as that version computes it; null where the broker cannot measure it.
    disk_used_percent: float | None = by(lambda trigger, _: _percent(trigger.log_ratio))
    # Those of the commit log paths, then that of consumequeue/.
    disks: list[Disk] = by(lambda _, plan: [*plan.facts.disks.log, plan.facts.disks.queues])
    next: Moment = by(lambda _, plan: plan.next_start)  # When the next hour of deleteWhen begins.


class DeletedFile(Shape):
    """A commit log file that goes."""

    file: str = _path("log_file.file.path")  # Path, relative to the store; absolute outside.
    bytes: Count = at("log_file.file.size")  # Its size.
    reason: Literal["expired", "forced"]  # By age, or regardless of it because the disk is too full.
    # When it was last changed, which is what its age is counted from.
    modified: CertainMoment = at("log_file.mtime")
    expires: CertainMoment  # When its age allows to delete it.


class KeptFile(Shape):
    """A commit log file that stays."""

    file: str = _path("log_file.file.path")  # Path, relative to the store; absolute outside.
    bytes: Count = at("log_file.file.size")  # Its size.
    # last-file: never deleted. ahead: allocated in advance, the log ends before it. not-expired: too young. shielded:
    # an older file has not expired. next-run: deleted in a later run. no-trigger: expired, but it is neither the hour
    # nor is the disk full. cleaner-fails: deleteWhen cannot be parsed. in-use: somebody still reads it. plain-files: of
    # DLedger's log, which is kept while plain files from before DLedger exist.
    reason: Literal[
        "last-file", "ahead", "not-expired", "shielded", "next-run", "no-trigger", "cleaner-fails", "in-use",
        "plain-files",
    ]  # fmt: skip
    # When it was last changed, which is what its age is counted from.
    modified: CertainMoment = at("log_file.mtime")
    expires: CertainMoment  # When its age allows to delete it.


class Pass(Shape):
    """One run of the cleaner."""

    run: CertainMoment = at("time")  # When it runs.
    commit_log: list[DeletedFile] = at("log.deleted")  # Commit log files to be deleted, oldest first.
    # Queue files to be deleted, by queue, oldest first.
    consume_queues: list[str] = by(lambda run, plan: _paths((file for _, file in run.queue_files), plan))
    index: list[str] = by(lambda run, plan: _paths(run.index_files, plan))  # Index files to be deleted, oldest first.
    freed_bytes: Count  # What all of them take on their disks; less than its size for a sparse file.
    min_offset: Long = at("log.min_offset")  # The commit log's minimum after the run; -1 without a file.


class Rows(Shape):
    """Rows of consume queues in RocksDB that lead below the commit log."""

    database: str = _path("database.path")  # The database, relative to the store.
    # Whether compactions drop such rows: false for brokers before 5.3.4 that write queues twice.
    filtered: bool = at("is_filtered")
    below_log: Count = at("now")  # Such rows now.
    dropped: list[Count]  # Of each pass: the rows that its compaction drops.
    below_log_after: Count = at("left")  # Such rows after all passes.


class Queue(Shape):
    """A queue that loses messages or whose minimum moves."""

    topic: str = by(lambda change, _: change[0].queue.topic)  # Topic.
    queue_id: Long = by(lambda change, _: change[0].queue.queue_id)  # Queue number.
    min_offset: Long = by(lambda change, _: change[0].range.min_offset)  # Minimum now.
    min_offset_after: Long = by(lambda change, _: change[1].range.min_offset)  # Minimum after all passes.
    max_offset: Long = by(lambda change, _: change[0].range.max_offset)  # Maximum, exclusive.
    # Messages that are deleted; before 5.0.0 the minimum of a completely expired queue does not move.
    messages_deleted: Count = by(lambda change, _: change[1].first_alive - change[0].first_alive)


class Topic(Shape):
    """A topic that loses messages."""

    topic: str  # Topic.
    messages_deleted: Count  # Messages that are deleted.
    messages_left: Count  # Messages that remain.
    emptied: bool = by(lambda topic, _: topic.messages_left == 0)  # None remains.


class Reached(Shape):
    """When the disk gets above one level."""

    # The level, by the setting's name.
    name: Literal["diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"] = by(
        lambda level, _: level[0]
    )
    reached: Moment = by(lambda level, _: level[1])  # When; null: never, as far as is looked ahead.


class Outlook(Shape):
    """How the disk fares at one fileReservedTime, when files go by age alone."""

    file_reserved_time: Long  # Hours.
    # The most that is used within that time and a week.
    most_used_percent: float | None = by(lambda outlook, _: _percent(outlook.most_used_ratio))
    reached: list[Reached] = by(lambda outlook, _: outlook.reached.items())  # Each level, in the order of the settings.


def _growth(read: Any) -> Any:
    """What `read` finds in the growth, where the log shows one."""
    return by(lambda forecast, _: read(forecast.growth) if forecast.growth else None)


class FutureUse(Shape):
    """What comes when nothing is done and the log grows as it did."""

    # Growth of the log by its store timestamps, bytes; null when it is too short to tell.
    log_bytes_per_hour: Count | None = _growth(lambda growth: round(growth.log_bytes_per_hour))
    # The same with queues and index.
    disk_bytes_per_hour: Count | None = _growth(lambda growth: round(growth.disk_bytes_per_hour))
    measured_from: Moment = _growth(lambda growth: growth.since)  # Where the measured part of the log begins.
    measured_to: Moment = _growth(lambda growth: growth.until)  # Where it ends.
    oldest_expires: Moment  # When the oldest file that stays expires.
    next_deletion: Moment  # When it goes by its age.
    # The present fileReservedTime and others; empty without growth or a disk's size.
    reserved_times: list[Outlook] = at("outlooks")


def _changed(shown: _Shown) -> list[Any]:
    """The queues of the chosen topics that change: before and after."""
    topics, both = shown.chosen.chosen, zip(shown.plan.facts.states, shown.plan.states, strict=True)
    return [(old, new) for old, new in both
            if old.queue.topic in topics and (old.range, old.first_alive) != (new.range, new.first_alive)]  # fmt: skip


class Deletion(Shape):
    """What a saved plan holds."""

    now: CertainMoment = at("plan.now")  # The time that counts.
    broker_version: str = by(lambda _, plan: str(plan.rules.version))  # The release whose rules apply.
    # The broker's; null: this machine's.
    time_zone: str | None = by(lambda _, plan: None if plan.rules.zone is None else str(plan.rules.zone))
    settings: list[Setting] = at("plan.rules.settings.shown")  # All settings that decide.
    trigger: Trigger = at("plan.trigger")
    # The next run; with --all-runs those that follow too, as far as they delete.
    passes: list[Pass] = at("plan.runs")
    # Rows of consume queues in RocksDB whose messages are deleted; null where no database was read.
    rocksdb_rows: Rows | None = at("losses.rows")
    kept: list[KeptFile] = at("plan.kept")  # Commit log files that remain after all passes, oldest first.
    min_offset: Long = at("plan.min_offset")  # The commit log's minimum after all passes; -1 without a file.
    # Store timestamp of the message that the log then begins with.
    oldest_message: Moment = at("losses.oldest_timestamp")
    # Messages that the queues serve now but will not serve then.
    messages_deleted: Count = at("losses.messages_deleted")
    queues: list[Queue] = by(lambda shown, _: _changed(shown))  # Queues that lose messages, or whose minimum moves.
    topics: list[Topic] = at("chosen.topics")  # Topics that lose messages, by name.
    consumers: list[GroupLoss] = at("chosen.groups")  # All committed offsets.
    delayed: list[Undelivered] = at("losses.undelivered")  # Waiting delayed, timed and half messages that are deleted.
    forecast: FutureUse


def other_logs_json(others: OtherLogs) -> dict[str, Any]:
    """The part of the `result` about a tier and compacted queues."""
    return Others.of(others)


class Others(Shape):
    """What goes beside the log."""

    tier: list[TierExpiry]  # Queues of the tier, with what its next hourly run deletes.
    compactions: list[NextCompaction]  # Compacted queues, with what the next compaction leaves.


class _Done(Shape):
    # planned: not deleted, with --dry-run. nothing: there is nothing to delete. done: the first pass is deleted.
    # recovered: an interrupted run was ended and nothing else was done.
    state: Literal["planned", "nothing", "done", "recovered"]
    transaction: str | None  # Id of the deletion; null without one.
    recovered: list[Recovered]  # Interrupted runs that were completed first.


class CleanResult(Deletion, Others, _Done):
    """What the cleaner deletes, when, why, and what is lost."""
