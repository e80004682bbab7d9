"""How fast the log grows, when the disk reaches its levels, and how long it lasts at other reserved times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rmqtool.broker.cleaner import NOT_BY_AGE, Rules
from rmqtool.broker.trigger import Disk, local_time, matching_hours, next_start, trigger_at
from rmqtool.clean.plan import CleanPlan, Facts
from rmqtool.rules.retention import RetentionSettings

HOUR_MS = 3_600_000
_RECENT_MS = 24 * HOUR_MS  # growth is that of the log's last day where it is that old
_SHORTEST_MS = 60_000  # a shorter log shows no growth
_RESERVED_TIMES = (12, 24, 48, 72, 96, 168)
_BEHIND_RESERVED = 7 * 24  # hours that are forecast after the reserved time: then each day is like the one before
_MAX_HOURS = 366 * 24
_GROWTHS = (1.0, 2.0)  # times as fast as the log grew
LEVELS = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
"""The levels of a disk, in the order in which it reaches them by default."""


@dataclass(frozen=True)
class Growth:
    """Bytes per hour: of the log, and with queues and index; measured between two store timestamps, epoch ms."""

    log_bytes_per_hour: float
    disk_bytes_per_hour: float
    since: int
    until: int

    def times(self, factor: float) -> Growth:
        """A growth that is so many times as fast."""
        return replace(
            self,
            log_bytes_per_hour=self.log_bytes_per_hour * factor,
            disk_bytes_per_hour=self.disk_bytes_per_hour * factor,
        )


@dataclass(frozen=True)
class Outlook:
    """How a disk fares at one reserved time, in hours: the most that is used, and when each of LEVELS is reached."""

    file_reserved_time: int
    most_used_ratio: float
    reached: dict[str, int | None]


@dataclass(frozen=True)
class Course:
    """The used part of the fullest disk of the log, hour by hour from now on, when it grows `times` as fast as it did.

    After the last of `ratios` nothing changes, or the disk is full. `total` are its bytes.
    """

    times: float
    total: int
    ratios: Sequence[float]

    def reaches(self, level: float) -> int | None:
        """Hours until more than `level`, a fraction, is used; None when that does not happen."""
        return next((hour for hour, ratio in enumerate(self.ratios) if ratio > level), None)


@dataclass(frozen=True)
class Forecast:
    """`growth` is None where the log is too short to show it; `outlooks` are empty without it or a disk's size."""

    growth: Growth | None
    oldest_expires: int | None
    next_deletion: int | None
    outlooks: Sequence[Outlook]

    def at(self, reserved_time: int) -> Outlook | None:
        """The outlook at one reserved time."""
        return next((outlook for outlook in self.outlooks if outlook.file_reserved_time == reserved_time), None)


def forecast(plan: CleanPlan) -> Forecast:
    """The forecast when nothing is changed: the cleaner goes on by its settings, the log grows as it did."""
    facts, rules = plan.facts, plan.rules
    growth = growth_of(facts)
    first = next((decision for decision in plan.kept if decision.reason not in NOT_BY_AGE), None)
    times = sorted({*_RESERVED_TIMES, rules.settings.file_reserved_time})
    disk = fullest_disk(facts)
    return Forecast(
        growth,
        first.expires if first else None,
        _next_deletion(plan, first.expires) if first else None,
        [_outlook(plan, disk, growth, hours) for hours in times if hours >= 0] if growth and disk else [],
    )


def courses(plan: CleanPlan) -> list[Course]:
    """How the disk fares with the settings as they are, for each growth; none without a growth or a disk's size."""
    growth, disk = growth_of(plan.facts), fullest_disk(plan.facts)
    return [_course(plan, plan.rules.settings, disk, growth, times) for times in _GROWTHS] if growth and disk else []


def _course(plan: CleanPlan, settings: RetentionSettings, disk: Disk, growth: Growth, times: float = 1.0) -> Course:
    """How the disk fares with some settings when it grows so many times as fast."""
    rules = replace(plan.rules, settings=replace(settings, clean_file_forcibly_enable=False), manual=False)
    return Course(times, disk.total, [*_ratios(plan, rules, disk, growth.times(times))])


def fullest_disk(facts: Facts) -> Disk | None:
    """The disk of the log that decides; None where its size is not known."""
    disk = min(facts.disks.log, key=lambda disk: disk.ratio(facts.snapshot.release), default=None)
    return disk if disk is not None and disk.total > 0 else None


def growth_of(facts: Facts) -> Growth | None:
    """The log's own growth, by the store timestamps of its files' first messages and of its last message."""
    last = facts.log_range.last_store_timestamp
    begins = [
        (file.start_offset, time)
        for file, time in zip(facts.log_files, facts.first_timestamps, strict=True)
        if time is not None and file.start_offset < facts.log_range.max_offset
    ]
    if last is None or not begins:
        return None
    recent = [begin for begin in begins if begin[1] <= last - _RECENT_MS]
    offset, since = recent[-1] if recent else begins[0]
    if last - since < _SHORTEST_MS:
        return None
    per_hour = (facts.log_range.max_offset - offset) * HOUR_MS / (last - since)
    others = facts.disks.major_file_size - facts.snapshot.log.size
    share = others / facts.snapshot.log.size if facts.snapshot.log.size else 0.0
    return Growth(per_hour, per_hour * (1 + share), since, last)


def _next_deletion(plan: CleanPlan, expires: int) -> int | None:
    """When the oldest file that stays goes by its age: at a matching hour, or as soon as it may on a full disk."""
    rules, moment = plan.rules, max(expires, plan.now)
    if rules.first_in_use or plan.trigger.failure is not None:
        return None
    hours = matching_hours(rules.settings.delete_when)
    if plan.last.trigger.space or local_time(moment, rules.zone).hour in hours:
        return moment
    return next_start(rules.settings.delete_when, moment, rules.zone)


def _outlook(plan: CleanPlan, disk: Disk, growth: Growth, hours: int) -> Outlook:
    """The outlook at a reserved time of `hours`: the log grows hour by hour, and expired files are deleted."""
    settings = replace(plan.rules.settings, file_reserved_time=hours)
    course = _course(plan, settings, disk, growth)
    levels = settings.disk_max_used_space_ratio / 100, settings.forcibly_level, settings.warning_level
    reached = (course.reaches(level) for level in levels)
    moments = (None if hour is None else plan.now + hour * HOUR_MS for hour in reached)
    return Outlook(hours, max(0.0, *course.ratios), dict(zip(LEVELS, moments, strict=True)))


def _ratios(plan: CleanPlan, rules: Rules, disk: Disk, growth: Growth) -> Iterator[float]:
    """The used part of the disk, hour by hour until it is full; a file younger than an older one waits for it."""
    reserved = rules.settings.reserved_ms
    waiting, expires = [], 0
    for decision in plan.kept:
        if decision.reason not in NOT_BY_AGE:
            expires = max(expires, decision.log_file.mtime + reserved)
            waiting.append((expires, decision.log_file.allocated))
    waiting.reverse()
    written = kept_since = 0.0
    disk = disk.after(plan.freed.get(disk.device, 0))
    share = growth.disk_bytes_per_hour / growth.log_bytes_per_hour if growth.log_bytes_per_hour else 1.0
    for hour in range(min(rules.settings.file_reserved_time + _BEHIND_RESERVED, _MAX_HOURS)):
        time = plan.now + hour * HOUR_MS
        now = disk.after(-int(written - kept_since))
        yield min(ratio := now.ratio(plan.snapshot.release), 1.0)
        if ratio >= 1:
            return
        disks = replace(plan.facts.disks, log=[now], queues=now)
        if trigger_at(rules.settings, disks, time, rules.zone, rules.version).runs:
            while waiting and waiting[-1][0] <= time:
                disk = disk.after(int(waiting.pop()[1] * share))
            if not waiting:
                kept_since = max(kept_since, growth.disk_bytes_per_hour * (hour - rules.settings.file_reserved_time))
        written = growth.disk_bytes_per_hour * (hour + 1)
