"""Whether a run of the cleaner deletes at all, and whether regardless of age (`CleanCommitLogService`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone, tzinfo
from pathlib import Path

from rmqtool.base.files import unreadable
from rmqtool.formats.java import whole_number
from rmqtool.rules.retention import RetentionSettings
from rmqtool.rules.versions import DISK_LEVEL_DECIDES_AT_ONCE, DISK_RATIO_AS_DF, STORE_CREATES_DIRECTORIES, Version

_QUARTER_MS = 15 * 60_000  # every zone's offset is a multiple of it since 1972
_LOOK_AHEAD = 4 * 50  # quarters: two days and the hours that a clock is put forward
MAX_TIME = 253_370_764_800_000  # the year 9999, epoch ms


class CleanerFailsError(Exception):
    """The cleaner's run ends here with a NumberFormatException; the text says which piece it is."""


def is_time(delete_when: str, hour: int) -> bool:
    """Whether `hour` (0 to 23) is one of `delete_when`; raise CleanerFailsError as the broker's run fails.

    The pieces are parsed one by one and the first match ends it, so that a bad piece may go unnoticed for hours.
    """
    for piece in _pieces(delete_when):
        if (number := whole_number(piece)) is None:
            raise CleanerFailsError(piece)
        if number == hour:
            return True
    return False


def matching_hours(delete_when: str) -> list[int]:
    """The matching hours of the day, 0 to 23."""
    return [hour for hour in range(24) if _matches(delete_when, hour)]


def failing_hours(delete_when: str) -> list[int]:
    """The hours of the day in which every run of the cleaner fails."""
    return [hour for hour in range(24) if _matches(delete_when, hour) is None]


def local_time(now: int, zone: tzinfo | None) -> datetime:
    """The wall clock at `now`, epoch ms, in year 9999 at most; `zone` None is this machine's."""
    return datetime.fromtimestamp(min(now, MAX_TIME) / 1000, timezone.utc).astimezone(zone)


def next_start(delete_when: str, now: int, zone: tzinfo | None) -> int | None:
    """When the next matching hour begins, epoch ms; None when none comes within two days."""
    quarter = now // _QUARTER_MS * _QUARTER_MS
    hour = local_time(quarter, zone).hour
    for _ in range(_LOOK_AHEAD):
        quarter += _QUARTER_MS
        before, hour = hour, local_time(quarter, zone).hour
        if hour != before and _matches(delete_when, hour):
            return quarter
    return None


def _matches(delete_when: str, hour: int) -> bool | None:
    try:
        return is_time(delete_when, hour)
    except CleanerFailsError:
        return None


def _pieces(delete_when: str) -> list[str]:
    """As `String#split` gives them: empty pieces at the end are dropped, unless there was nothing to split."""
    pieces = delete_when.split(";")
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    return [] if pieces == [""] and delete_when else pieces


@dataclass(frozen=True)
class Disk:
    """The disk below `path`, bytes: `total`, `free` for root, `usable` for others; `device` as `stat` gives it.

    `missing` is set when `path` does not exist: the broker then computes a ratio of -1. `fixed_ratio` replaces the
    ratio that would be computed.
    """

    path: Path
    device: int = 0
    total: int = 0
    free: int = 0
    usable: int = 0
    missing: bool = False
    fixed_ratio: float | None = None

    def ratio(self, version: Version) -> float:
        """The used part as a fraction; -1 where the broker cannot compute it."""
        if self.missing:
            return -1.0
        if self.fixed_ratio is not None:
            return self.fixed_ratio
        if self.total <= 0:
            return -1.0
        used = self.total - self.free
        if version < DISK_RATIO_AS_DF:
            return used / self.total
        entire = used + self.usable
        return -(-used * 100 // entire) / 100.0 if entire else -1.0

    def after(self, freed: int) -> Disk:
        """The disk once files of `freed` bytes on it are deleted."""
        fixed = self.fixed_ratio
        if fixed is not None and self.total > 0:
            fixed -= freed / self.total
        return replace(self, free=self.free + freed, usable=self.usable + freed, fixed_ratio=fixed)


def disk_of(path: Path, version: Version, fixed_ratio: float | None = None) -> Disk:
    """The disk below `path`, which later releases create when it is missing; raises UnreadableError."""
    existing = path.absolute()
    while version >= STORE_CREATES_DIRECTORIES and not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        status, space = os.stat(existing), os.statvfs(existing)
    except FileNotFoundError:
        return Disk(path, missing=True, fixed_ratio=fixed_ratio)
    except OSError as error:
        raise unreadable(path, None, error) from error
    unit = space.f_frsize
    return Disk(
        path, status.st_dev, space.f_blocks * unit, space.f_bfree * unit, space.f_bavail * unit, fixed_ratio=fixed_ratio
    )


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
