"""Whether a run of the cleaner deletes at all, and whether regardless of age (`CleanCommitLogService`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from rmqtool.broker.delete_when import CleanerFailsError, is_time, local_time
from rmqtool.broker.disks import Disk
from rmqtool.rules.retention import RetentionSettings
from rmqtool.rules.versions import DISK_LEVEL_DECIDES_AT_ONCE, Version

_NO_PATH = 100.0  # what the minimum over the log's paths begins with


@dataclass(frozen=True)
class Disks:
    """The disks that are measured: of each commit log path, and of consumequeue/.

    `major_file_size` is the size of log, queues and index together, bytes; it counts where brokers share a disk.
    """

    log: Sequence[Disk]
    queues: Disk
    major_file_size: int = 0


@dataclass(frozen=True)
class Trigger:
    """Why one run of the cleaner deletes files, or does not.

    `forced` deletes regardless of age; `writes_refused` is the broker's "disk full"; `failure` is the piece of
    `deleteWhen` at which the run ends with an exception. Ratios are fractions, -1 where the broker cannot compute them;
    `queue_ratio` is None when the run does not get so far.
    """

    time: bool = False
    space: bool = False
    manual: bool = False
    forced: bool = False
    writes_refused: bool = False
    failure: str | None = None
    log_ratio: float = -1.0
    queue_ratio: float | None = None

    @property
    def runs(self) -> bool:
        """Whether the run deletes expired files at all (`CleanCommitLogService#deleteExpiredFiles`)."""
        return self.failure is None and (self.time or self.space or self.manual)


def trigger_at(
    settings: RetentionSettings, disks: Disks, now: int, zone: tzinfo | None, version: Version, *, manual: bool = False
) -> Trigger:
    """What triggers a run at `now` (epoch ms); `manual` after ``mqadmin deleteExpiredCommitLog``."""
    log_ratio = min((disk.ratio(version) for disk in disks.log), default=_NO_PATH)
    try:
        time = is_time(settings.delete_when, local_time(now, zone).hour)
    except CleanerFailsError as error:
        return Trigger(manual=manual, failure=str(error), log_ratio=log_ratio)
    decide = _space_since_5 if version >= DISK_LEVEL_DECIDES_AT_ONCE else _space_before_5
    queue_ratio = disks.queues.ratio(version)
    shortage = decide(settings, disks, log_ratio, queue_ratio, version)
    return Trigger(
        time=time,
        space=shortage.space,
        manual=manual,
        forced=settings.clean_file_forcibly_enable and shortage.at_once,
        writes_refused=shortage.writes_refused,
        log_ratio=log_ratio,
        queue_ratio=queue_ratio if shortage.asked_queues else None,
    )


@dataclass(frozen=True)
class _Space:
    """What `isSpaceToDelete` returns, and what it sets on the way."""

    space: bool
    at_once: bool
    writes_refused: bool
    asked_queues: bool = True


def _space_before_5(
    settings: RetentionSettings, disks: Disks, log_ratio: float, queue_ratio: float, version: Version
) -> _Space:
    """The 4.x rule: above 85 percent files are deleted at once, but only if `diskMaxUsedSpaceRatio` is exceeded too."""
    limit = settings.disk_max_used_space_ratio / 100.0
    at_once, refused = log_ratio > settings.forcibly_level, log_ratio > settings.warning_level
    at_once = at_once or refused
    if log_ratio < 0 or log_ratio > limit:
        return _Space(True, at_once, refused, asked_queues=False)
    # The queues' level overwrites what the log's has set about refusing writes.
    if queue_ratio > settings.warning_level:
        refused = True
    elif queue_ratio <= settings.forcibly_level:
        refused = False
    at_once = at_once or queue_ratio > min(settings.forcibly_level, settings.warning_level)
    return _Space(queue_ratio < 0 or queue_ratio > limit, at_once, refused)


def _space_since_5(
    settings: RetentionSettings, disks: Disks, log_ratio: float, queue_ratio: float, version: Version
) -> _Space:
    """The 5.x rule: above 85 percent of either disk files are deleted at once."""
    for asked, ratio in ((False, log_ratio), (True, queue_ratio)):
        if ratio > settings.warning_level:
            return _Space(True, True, True, asked_queues=asked)
        if ratio > settings.forcibly_level:
            return _Space(True, True, False, asked_queues=asked)
    limit = settings.disk_max_used_space_ratio / 100.0
    if settings.replicas_per_disk_partition <= 1:
        return _Space(not 0 <= log_ratio <= limit or not 0 <= queue_ratio <= limit, False, False)
    share = _share_of_partition(settings, disks, version)
    return _Space(share > limit or share > settings.logical_threshold, share > settings.logical_threshold, False)


def _share_of_partition(settings: RetentionSettings, disks: Disks, version: Version) -> float:
    """How much of its share of the emptiest of the log's disks this broker uses, a fraction."""
    emptiest = min(disks.log, key=lambda disk: disk.ratio(version), default=None)
    share = (emptiest.total if emptiest else 0) // settings.replicas_per_disk_partition
    return disks.major_file_size / share if share > 0 else float("inf")
