"""What an operator asks first about a store, in less than a second whatever its size: no pass over the log.

Read are names, sizes, small files, the first record of a few log files, and the ends of as many queues as the time
allows; of a store with few queues the newest part of the log, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import RateLimit
from rmqtool.base.numbers import Count
from rmqtool.base.tolerant import ReadErrors
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.start_duration import StartDuration, rough_duration
from rmqtool.broker.trigger import Disk
from rmqtool.clean.forecast import HOUR_MS, courses, fullest_disk, growth_of
from rmqtool.clean.plan import AsIf, Facts, log_facts, plan, rules_of
from rmqtool.clients.queue_view import QueueViews
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.findings.report import Report, Verdict, verdict_of
from rmqtool.inspect.overview import hole_findings, last_exit_of, messages_in, with_range
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.rules.versions import ANY_RELEASE, NEWEST, Releases, Version
from rmqtool.store.commit_log import near_end
from rmqtool.store.config_tables import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, CommittedOffset, load_delay_offsets
from rmqtool.store.consume_queues import queue_ids_of, topics_on_disk
from rmqtool.store.file_findings import layout_findings, log_findings, unread_finding
from rmqtool.store.lock import ABORT_FILE, has_abort, unclean_stop
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, Store
from rmqtool.transaction.home import interrupted_findings
from rmqtool.transaction.losses import loss_findings
from rmqtool.verify.config_checks import check_config_files
from rmqtool.verify.disk_and_time_checks import check_environment

SECONDS = 0.4
"""So long queues are looked at; the program itself takes about as long to start."""

_ALWAYS = 256  # queues that are looked at however long it takes
_TIMED_FILES = 64  # newest log files whose first messages show how fast the log grows
_NEWEST_PART = 8 << 20  # bytes of the log that are compared with queues
_COUNTED_TOPICS = 64  # whose queues are counted
_MOST_CONFIG = 1 << 20  # bytes of files in config/ that are checked
_MOST_OFFSETS = 1 << 20  # bytes of committed offsets that are read


@dataclass(frozen=True)
class DiskStatus:
    """The fullest disk of the log, bytes, and what becomes of it if the log grows as it did.

    Above `refuses_from`, a fraction, a broker refuses messages; `refuses_at` is when that is, epoch ms, None where the
    cleaner keeps the disk below it, or where no growth is known.
    """

    total: int
    usable: int
    used_ratio: float
    log_bytes_per_hour: int | None
    refuses_from: float
    refuses_at: int | None


@dataclass(frozen=True)
class GroupLag:
    """How many messages of a topic a group has not consumed."""

    group: str  # Consumer group.
    topic: str  # Topic.
    messages: Count  # Messages of its queues that the group has not consumed.


@dataclass
class Waiting:
    """Messages that no consumer sees yet, or that wait to be consumed again."""

    delayed: Count = 0  # Messages of delay levels that are not delivered yet by delayOffset.json.
    timers: Count = 0  # Entries of the timer's topic.
    halves: Count = 0  # Half messages of transactions, ended ones too.
    retries: Count = 0  # Messages of retry topics that their groups have not consumed.
    dead_letters: Count = 0  # Entries of dead letter topics.


@dataclass(frozen=True)
class Status:
    """The answer at `now`, epoch ms.

    `lags` are the largest first; `out_of_time` is what would have taken too long.
    """

    snapshot: Snapshot
    now: int
    last_exit: str
    findings: tuple[Finding, ...]
    disk: DiskStatus | None
    last_message: int | None  # when the last message was stored, epoch ms
    lags: tuple[GroupLag, ...]
    waiting: Waiting
    out_of_time: tuple[str, ...]
    start: StartDuration | None = None  # how long the next start takes, None while a broker runs

    @property
    def not_looked_at(self) -> tuple[str, ...]:
        """What would have taken too long, or is in the memory of a running broker."""
        hidden = ("lags", "what waits") if self.snapshot.hides_entries else ()
        return tuple(dict.fromkeys((*self.out_of_time, *hidden)))

    @property
    def has_problems(self) -> bool:
        """Whether there is a finding above information."""
        return any(each.severity != "info" for each in self.findings)

    @property
    def verdict(self) -> Verdict:
        """What the findings come to: `unproven` at best, for most of the store was not looked at."""
        return verdict_of(list(self.findings), is_proven=False)


@dataclass
class _Time:
    """The time that there is for queues, and what has been left out for lack of it."""

    until: float
    queues: int = 0
    left_out: dict[str, None] = field(default_factory=dict)

    def allows(self, what: str) -> bool:
        """Whether one more queue may be looked at."""
        self.queues += 1
        if self.queues <= _ALWAYS or time.monotonic() < self.until:
            return True
        self.left_out[what] = None
        return False


def status_of(
    store: Store, version: Version | None, now: int, limit: RateLimit | None = None, disk_rate: int | None = None
) -> Status:
    """The status at `now`, epoch ms, by the rules of `version`, or of the newest release.

    A start reads the log as fast as `disk_rate` says, bytes per second, or from memory.
    """
    left = _Time(time.monotonic() + SECONDS)
    snapshot = Snapshot(store, version or NEWEST, limit)
    releases = Releases.named(version) if version else ANY_RELEASE
    found = [*_findings(snapshot, releases, left)]
    disk, last_message, start = None, None, None
    try:
        facts = log_facts(snapshot, near_end(snapshot.log.files, snapshot.reading), _TIMED_FILES)
        last_message = facts.log_range.last_store_timestamp
        snapshot.log_range = facts.log_range  # which would be looked for in all of the last file
        found += _holes(snapshot)
        disk = _disk(facts, now)
        if snapshot.holder is None:
            times, queues = facts.first_timestamps, _queue_count(snapshot)
            start = rough_duration(snapshot, facts.log_range, times, queues, disk_rate)
    except RmqtoolError as error:
        found.append(unread_finding(store, error))
    waiting, lags = Waiting(), tuple[GroupLag, ...]()
    try:
        waiting = _waiting(snapshot, left)
        lags = () if snapshot.hides_entries else _lags(snapshot, left)
    except RmqtoolError as error:
        found.append(unread_finding(store, error))
    return Status(snapshot, now, last_exit_of(store, snapshot.holder), tuple(found), disk, last_message, lags, waiting,
                  tuple(left.left_out), start)  # fmt: skip


def _queue_count(snapshot: Snapshot) -> int:
    """About how many queues there are: those of some topics are counted."""
    topics = sorted(topics_on_disk(snapshot.store, None))
    some = topics[:: max(1, len(topics) // _COUNTED_TOPICS)]
    counted = sum(len(queue_ids_of(snapshot.store, topic, None)) for topic in some)
    return counted * len(topics) // len(some) if some else 0


def _findings(snapshot: Snapshot, releases: Releases, left: _Time) -> Iterator[Finding]:
    """What names, sizes and small files show."""
    store, is_live = snapshot.store, snapshot.holder is not None
    yield from interrupted_findings(store.root)
    yield from loss_findings(store.root)
    yield from layout_findings(store)
    if not is_live and has_abort(store.root):
        yield finding("store.unclean-stop", store=store.root, file=ABORT_FILE, details=unclean_stop(store.root))
    yield from log_findings(store, snapshot.log, releases, live=is_live)
    report = Report(root=str(store.root))
    check_environment(snapshot, report)
    sizes = _sizes_in(store.root / CONFIG)
    if sum(sizes.values()) <= _MOST_CONFIG:
        check_config_files(snapshot, report, is_alone=True)
    else:
        left.left_out["files in config/"] = None
    yield from report.findings()


def _holes(snapshot: Snapshot) -> Iterator[Finding]:
    """What the newest messages show of queues, where these are few."""
    if _queue_count(snapshot) <= _ALWAYS:
        early, errors = set[QueueName](), ReadErrors()
        queues = [*with_range(snapshot, errors.scope, early)]
        views = QueueViews(snapshot, _NEWEST_PART).with_holes(queues, early)
        yield from (unread_finding(snapshot.store, each) for each in errors.errors)
        yield from hole_findings(snapshot.store, queues, views)


def _sizes_in(directory: Path) -> dict[str, int]:
    with suppress(OSError):
        return {each.name: each.stat().st_size for each in directory.iterdir() if each.is_file()}
    return {}


def _disk(facts: Facts, now: int) -> DiskStatus | None:
    """The fullest disk, and when a broker refuses messages; None where its size is not known."""
    disk: Disk | None = fullest_disk(facts)
    if disk is None:
        return None
    version = facts.snapshot.release
    rules = rules_of(facts, facts.snapshot.store.conf.settings, AsIf(), version)
    growth, level = growth_of(facts), rules.settings.warning_level
    course = next(iter(courses(plan(facts, rules, now))), None) if growth else None
    hours = course.reaches(level) if course else None
    refuses_at = now if disk.ratio(version) > level else None if hours is None else now + hours * HOUR_MS
    per_hour = int(growth.log_bytes_per_hour) if growth else None
    return DiskStatus(disk.total, disk.usable, disk.ratio(version), per_hour, level, refuses_at)


def _waiting(snapshot: Snapshot, left: _Time) -> Waiting:
    """Messages of the topics that a broker delivers from, retries and dead letters."""
    waiting, done = Waiting(), load_delay_offsets(snapshot.store).by_level
    for topic, queue in _queues_of(snapshot, (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC), left):
        if topic == SCHEDULE_TOPIC:
            first = max(queue.range.min_offset, done.get(queue.queue.queue_id + 1, 0), 0)
            waiting.delayed += max(0, queue.range.max_offset - first)
        elif topic == TIMER_TOPIC:
            waiting.timers += messages_in(queue.range)
        else:
            waiting.halves += messages_in(queue.range)
    topics = topics_on_disk(snapshot.store, snapshot.database)
    known = sorted(topic for topic in topics if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)))
    consumed = {(each.topic, each.queue_id): each.offset for each in _committed(snapshot, left)
                if each.topic == RETRY_PREFIX + each.group} if known else {}  # fmt: skip
    for topic, queue in _queues_of(snapshot, known, left):
        if topic.startswith(RETRY_PREFIX):
            past = queue.range.max_offset - consumed.get((topic, queue.queue.queue_id), 0)
            waiting.retries += min(messages_in(queue.range), max(0, past))
        else:
            waiting.dead_letters += messages_in(queue.range)
    return waiting


def _queues_of(snapshot: Snapshot, topics: Iterable[str], left: _Time) -> Iterator[tuple[str, LoadedQueue]]:
    for topic in topics:
        if not left.allows("what waits"):
            return
        for queue_id in queue_ids_of(snapshot.store, topic, snapshot.database):
            if not left.allows("what waits"):
                return
            if queue := snapshot.queue(topic, queue_id):
                yield topic, queue


def _committed(snapshot: Snapshot, left: _Time) -> tuple[CommittedOffset, ...]:
    """The committed offsets, where they are not too many to be read in time."""
    sizes = _sizes_in(snapshot.store.root / CONFIG)
    if max(sizes.get(CONSUMER_OFFSET, 0), sizes.get(LMQ_CONSUMER_OFFSET, 0)) > _MOST_OFFSETS:
        left.left_out["lags"] = None
        return ()
    return snapshot.committed.offsets


def _lags(snapshot: Snapshot, left: _Time) -> tuple[GroupLag, ...]:
    """What groups have not consumed by topic, the largest lag first; by the entries that queues have now."""
    found: dict[tuple[str, str], int] = {}
    for each in _committed(snapshot, left):
        if not left.allows("lags"):
            break
        with suppress(RmqtoolError):  # whoever reads the queue meets it again
            if queue := snapshot.queue(each.topic, each.queue_id):
                lag = max(0, queue.range.max_offset - each.offset)
                found[each.group, each.topic] = found.get((each.group, each.topic), 0) + lag
    lags = (GroupLag(*name, messages) for name, messages in found.items())
    return tuple(sorted(lags, key=lambda lag: (-lag.messages, lag.group, lag.topic)))
