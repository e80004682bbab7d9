"""The contents of a store, from names, headers and first and last units; with a scan, from all records too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import UNLIMITED, OpenFiles, RateLimit
from rmqtool.base.numbers import Count
from rmqtool.base.paths import is_remote
from rmqtool.base.tolerant import ReadErrors, ReadScope
from rmqtool.base.visible import quote
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.clients.queue_view import QueueView, QueueViews
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from rmqtool.rules.versions import ANY_RELEASE, EXPIRED_QUEUE_MIN_IS_MAX, NEWEST, Releases, Sign, Version, sorted_signs
from rmqtool.store.commit_log import LogRange, log_range
from rmqtool.store.config_tables import CommittedOffset, load_delay_offsets
from rmqtool.store.consume_queues import Queue
from rmqtool.store.file_findings import (
    index_finding,
    layout_findings,
    log_findings,
    offset_findings,
    one_of_each,
    queue_findings,
    unread_finding,
    with_next_command,
)
from rmqtool.store.lock import ABORT_FILE, LOCK_FILE, Holder, has_abort, unclean_stop
from rmqtool.store.queue_units import QueueRange, queue_range
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, Store
from rmqtool.store.unit_files import units_of
from rmqtool.transaction.home import interrupted_findings

_WHOLE = QueueView()
_MOST_HOLES = 20  # queues whose holes are findings


@dataclass(frozen=True)
class Overview:
    """A store at a glance.

    Errors of unreadable files are in `unread`; `log_range` is None when the log's first or last records are among them.
    `older_range` is that of the plain log of a broker that was converted to DLedger. `views` are the queues with holes,
    and those of which the next start derives messages.
    """

    snapshot: Snapshot
    last_exit: str
    signs: tuple[Sign, ...]
    log_range: LogRange | None
    older_range: LogRange | None
    queues: tuple[tuple[Queue, QueueRange], ...]
    checkpoint: dict[str, int] | None
    unread: tuple[RmqtoolError, ...]
    findings: tuple[Finding, ...] = ()
    views: Mapping[QueueName, QueueView] = field(default_factory=dict)

    def lag(self, committed: CommittedOffset) -> int | None:
        """Messages between a committed offset and its queue's maximum; negative beyond it, None where it is not known.

        Those that the next start derives count too, those past the hole at which a queue ends do not.
        """
        queue_range, view = self.range_of(committed.topic, committed.queue_id), self.view_of(committed)
        if queue_range is None or self.snapshot.hides_entries:
            return None
        end = queue_range.max_offset + view.derived
        return (min(end, view.end.queue_offset) if view.end else end) - committed.offset

    def view_of(self, committed: CommittedOffset) -> QueueView:
        """What consumers reach of the queue of an offset."""
        return self.views.get(QueueName(committed.topic, committed.queue_id), _WHOLE)

    def unreachable(self, committed: CommittedOffset) -> int:
        """Messages of the log from a committed offset on that the group does not get because of holes."""
        return self.view_of(committed).from_offset(committed.offset)[1]

    def range_of(self, topic: str, queue_id: int) -> QueueRange | None:
        """The range of a queue, None without it."""
        return self._ranges.get((topic, queue_id))

    def with_scan(self, signs: Iterable[str], unread: Iterable[RmqtoolError]) -> Overview:
        """The overview with the results of a scan of all records: signs of the version, and read errors."""
        errors, store = tuple(unread), self.snapshot.store
        return replace(
            self,
            signs=tuple(sorted_signs([*signs, *(sign.name for sign in self.signs)])),
            unread=(*self.unread, *errors),
            findings=(*self.findings, *(with_next_command(store, unread_finding(store, error)) for error in errors)),
        )

    @cached_property
    def _ranges(self) -> dict[tuple[str, int], QueueRange]:
        return {(queue.topic, queue.queue_id): reported for queue, reported in self.queues}


def overview_of(store: Store, version: Version | None = None, limit: RateLimit | None = None) -> Overview:
    """The overview of a store by the rules of `version`, or of the newest release without it."""
    unread = ReadErrors()
    snapshot = Snapshot(store, version, limit, scope=unread.scope)
    checkpoint, range_of_log, older_range = None, None, None
    early: set[QueueName] = set()
    queues = tuple(with_range(snapshot, unread.scope, early))
    with unread.scope():
        checkpoint = snapshot.checkpoint
    with unread.scope():
        ends = (each.last_physical_offset for _, each in queues if each.last_physical_offset is not None)
        near = max(ends, default=None)  # the end of the log is near where the last units of queues point
        range_of_log = log_range(snapshot.current_log.files, near, snapshot.reading)
    with unread.scope():
        older_range = log_range(snapshot.older_log.files, reading=snapshot.reading)
    signs = set(snapshot.file_signs)
    if range_of_log is not None:
        with unread.scope():
            signs |= snapshot.record_signs
    overview = Overview(
        snapshot=snapshot,
        last_exit=last_exit_of(store, snapshot.holder),
        signs=tuple(sorted_signs(signs)),
        log_range=range_of_log,
        older_range=older_range,
        queues=queues,
        checkpoint=checkpoint,
        unread=(),
        views=QueueViews(snapshot).with_holes(queues, early),  # whose sample of the log is not kept
    )
    findings = tuple(with_next_command(store, each) for each in _findings(overview, unread))
    return replace(overview, unread=tuple(unread.errors), findings=findings)


def last_exit_of(store: Store, holder: Holder | None) -> str:
    """How the last broker ended: `abort` is there while one runs and after one that was killed."""
    if holder and holder.program is None:
        return "unknown"
    if has_abort(store.root):
        return "unknown" if is_remote(store.root) else "unclean"
    return "clean" if (store.root / CHECKPOINT).exists() or (store.root / LOCK_FILE).exists() else "unknown"


def with_range(snapshot: Snapshot, scope: ReadScope, early: set[QueueName]) -> Iterator[tuple[Queue, QueueRange]]:
    """The queues that can be read, each with its range; `early` gets those with bytes past their end."""
    version = snapshot.version or NEWEST
    with closing(OpenFiles(UNLIMITED)) as open_files:
        for queue in snapshot.listed_queues():
            with scope():
                opened = units_of(queue, open_files)
                reported = queue_range(queue, snapshot.log_min_offset, version, opened=opened)
                is_simple = queue.kind == "simple"
                if opened.data_end > reported.max_offset if is_simple else opened.ends_early(*opened.recovered_end()):
                    early.add(QueueName(queue.topic, queue.queue_id))
                yield queue, reported
    if snapshot.database:
        with scope():
            snapshot.database.rows.check_tables()


def hole_findings(
    store: Store, queues: Iterable[tuple[Queue, QueueRange]], views: Mapping[QueueName, QueueView]
) -> Iterator[Finding]:
    """Holes of queues, those with the most messages out of reach first."""
    listed = {(queue.topic, queue.queue_id): queue for queue, _ in queues}
    for name, view in sorted(views.items(), key=lambda item: -item[1].unreachable)[:_MOST_HOLES]:
        for hole in view.holes:
            code = "consumequeue.hole"
            if name not in listed:
                code = "consumequeue.missing-queue"
            elif listed[name].database or (hole.ends_queue and not hole.messages_past):
                code = "consumequeue.missing-unit"
            yield finding(
                code, store=store.root, severity="error", count=hole.messages, topic=name.topic,
                queue_id=name.queue_id, queue_offset=hole.queue_offset,
                details={**hole.as_json(), "problem": "unreachable", "why": hole.told},
            )  # fmt: skip


def _findings(overview: Overview, unread: ReadErrors) -> Iterator[Finding]:
    snapshot = overview.snapshot
    store, is_live = snapshot.store, snapshot.holder is not None
    geometries = snapshot.index_geometries  # first: what of the index cannot be read is among the errors then
    with unread.scope():
        yield from interrupted_findings(store.root)
    yield from (unread_finding(store, error) for error in unread.errors)
    yield from layout_findings(store)
    if has_abort(store.root) and not snapshot.holder:
        yield finding("store.unclean-stop", store=store.root, file=ABORT_FILE, details=unclean_stop(store.root))
    releases = Releases.named(snapshot.version) if snapshot.version else ANY_RELEASE
    yield from log_findings(store, snapshot.log, releases, live=is_live)
    if not is_live:  # a file that a broker has just created gets its size a moment later
        yield from one_of_each(each for queue, _ in overview.queues for each in queue_findings(store, queue, releases))
    yield from hole_findings(store, overview.queues, overview.views)
    unread_files = {error.file for error in unread.errors}
    for file, geometry in geometries:
        if geometry is None and file.keys and str(file.path) not in unread_files:
            yield index_finding(store, file)
    oldest = max((sign.since for sign in overview.signs), default=None)
    expired = sum(reported.expired for _, reported in overview.queues)
    if overview.snapshot.version is None and expired and not (oldest and oldest >= EXPIRED_QUEUE_MIN_IS_MAX):
        remedy = f"rmqtool inspect {quote(str(overview.snapshot.store.root))} --broker-version 4.9"
        yield finding("store.version-ambiguous", remedy=remedy, count=expired, details={"problem": "minimum"})
    yield from offset_findings(store, snapshot.committed.file)


_HOUR_MS = 3_600_000
_LEAST_SPAN_MS = 60_000  # a shorter time shows no growth per hour
_LEVEL = re.compile(r"[1-9]\d{0,3}", re.ASCII)

OutOfRange = Literal["below", "beyond"]


@dataclass(frozen=True)
class GroupFailures:
    """What a group failed on."""

    group: str  # Consumer group.
    retry_messages: Count  # Messages of its retry topic that it has not consumed yet.
    dead_letter_messages: Count  # Units in the queues of its dead letter topic.


@dataclass(frozen=True)
class DelayLevel:
    """A delay level."""

    level: Count  # Number of the level, from 1.
    messages: Count  # Messages not delivered yet by delayOffset.json; all without that file.


@dataclass(frozen=True)
class Waiting:
    """What a broker has accepted and consumers do not see yet."""

    delayed: list[DelayLevel]  # Delay levels with a queue.
    timer_messages: Count  # Units in the timer's topic.
    half_messages: Count  # Half messages of transactions, ended ones too.
    op_messages: Count  # Messages that end transactions; since 5.0 one may end several.


def messages_in(offsets: QueueRange) -> int:
    """Units between minimum and maximum."""
    return max(0, offsets.max_offset - max(offsets.min_offset, 0))


def out_of_range(overview: Overview, committed: CommittedOffset) -> OutOfRange | None:
    """Whether a committed offset lies below its queue's minimum, or beyond its maximum; None within, or no queue."""
    offsets = overview.range_of(committed.topic, committed.queue_id)
    if offsets is None:
        return None
    if committed.offset > offsets.max_offset:
        return "beyond"
    return "below" if committed.offset < offsets.min_offset else None


def group_failures(overview: Overview) -> list[GroupFailures]:
    """The groups that have retry or dead letter topics, in name order."""
    counts: dict[str, list[int]] = {}
    committed = overview.snapshot.committed.offsets
    consumed = {
        (each.topic, each.queue_id): each.offset for each in committed if each.topic == RETRY_PREFIX + each.group
    }
    for queue, offsets in overview.queues:
        for column, prefix in enumerate((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            if queue.topic.startswith(prefix):
                done = consumed.get((queue.topic, queue.queue_id), 0)
                left = min(messages_in(offsets), max(0, offsets.max_offset - done))
                counts.setdefault(queue.topic.removeprefix(prefix), [0, 0])[column] += left
    return [GroupFailures(group, *offsets) for group, offsets in sorted(counts.items())]


def waiting(overview: Overview) -> Waiting:
    """Messages that wait in the schedule topic, in the timer's topic and between the two phases of transactions."""
    done = load_delay_offsets(overview.snapshot.store).by_level
    levels, totals = list[DelayLevel](), dict.fromkeys((TIMER_TOPIC, HALF_TOPIC, OP_TOPIC), 0)
    for queue, offsets in overview.queues:
        if queue.topic == SCHEDULE_TOPIC:
            level = queue.queue_id + 1  # ScheduleMessageService#delayLevel2QueueId
            first = max(offsets.min_offset, done.get(level, 0), 0)
            levels.append(DelayLevel(level, max(0, offsets.max_offset - first)))
        elif queue.topic in totals:
            totals[queue.topic] += messages_in(offsets)
    return Waiting(levels, totals[TIMER_TOPIC], totals[HALF_TOPIC], totals[OP_TOPIC])


def bytes_per_hour(overview: Overview) -> int | None:
    """How much the commit log grew on average, bytes; None where the times of its messages do not show it."""
    log = overview.log_range
    if log is None or log.first_store_timestamp is None or log.last_store_timestamp is None:
        return None
    span = log.last_store_timestamp - log.first_store_timestamp
    return (log.max_offset - log.min_offset) * _HOUR_MS // span if span >= _LEAST_SPAN_MS else None


def index_coverage(overview: Overview) -> tuple[int, int] | None:
    """Store timestamps of the first and last message in an index file, epoch ms; None without a key."""
    files = [file for file, _ in overview.snapshot.index_geometries if file.keys]
    if not files:
        return None
    return min(file.begin_timestamp for file in files), max(file.end_timestamp for file in files)
