"""All that a report shows, gathered from the jobs that find it out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.trigger import MAX_TIME, next_start
from rmqtool.clean.forecast import Course, courses
from rmqtool.clean.losses import GroupLoss, Losses, losses_of
from rmqtool.clean.plan import AsIf, CleanPlan, next_deletions
from rmqtool.clean.plan import plan as plan_of
from rmqtool.clients.losses import BesideLog
from rmqtool.clients.queue_view import QueueView
from rmqtool.inspect.overview import Overview
from rmqtool.repair.plan import Plan
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.store.config_tables import CommittedOffset
from rmqtool.store.other_logs import local_begin
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import QUEUE_KINDS, Unreadable, tier_of
from rmqtool.verify.outcome import Outcome

MAX_LOOKUPS = 2000
"""Queues of which the next message is looked up, those with the largest lag; one reads two pages of the disk."""

_WHOLE = QueueView()


@dataclass
class GroupPosition:
    """A group in a topic: `lag` over its queues, messages; `next_timestamp` is the store time of its oldest unread one.

    `lost` are messages that the cleaner deletes next and that it has not read, `already_lost` went before.
    `next_timestamp` is None where it has read all, or none is seen. `lag` counts the queues that are there; `gone` are
    those that are not, or cannot be seen, `beyond` those whose offset is past their end. `unreachable` are messages of
    the log that it has not read, and does not get because of holes in queues: these are not in `lag`.
    """

    group: str
    topic: str
    queues: int = 0
    gone: int = 0
    beyond: int = 0
    lag: int = 0
    unreachable: int = 0
    next_timestamp: int | None = None
    lost: int = 0
    already_lost: int = 0


def positions_of(
    snapshot: Snapshot,
    ranges: Iterable[tuple[tuple[str, int], QueueRange]],
    losses: Iterable[GroupLoss],
    views: Mapping[QueueName, QueueView],
) -> list[GroupPosition]:
    """All groups by topic, those that lose messages first, then those that are farthest behind.

    `views` are the queues with holes, and those of which the next start derives messages.
    """
    known = dict(ranges)
    found: dict[tuple[str, str], GroupPosition] = {}
    behind: list[tuple[int, CommittedOffset]] = []
    for item in snapshot.committed.offsets:
        position = found.setdefault((item.group, item.topic), GroupPosition(item.group, item.topic))
        position.queues += 1
        offsets = known.get((item.topic, item.queue_id))
        view = views.get(QueueName(item.topic, item.queue_id), _WHOLE)
        position.unreachable += view.from_offset(item.offset)[1]
        end = offsets.max_offset + view.derived if offsets else 0
        if offsets is None or snapshot.hides_entries:
            position.gone += 1
        elif item.offset > end:
            position.beyond += not view.holes  # at a hole the queue ends before messages that it has read
        elif lag := max(0, end - max(item.offset, offsets.min_offset)):
            position.lag += lag
            behind.append((lag, item))
    for loss in losses:
        position = found.setdefault((loss.group, loss.topic), GroupPosition(loss.group, loss.topic))
        position.lost += loss.messages_lost
        position.already_lost += loss.already_lost
    behind.sort(key=lambda pair: -pair[0])
    for item, timestamp in _next_messages(snapshot, (item for _, item in behind[:MAX_LOOKUPS])):
        position = found[item.group, item.topic]
        position.next_timestamp = min(timestamp, position.next_timestamp or timestamp)
    return sorted(found.values(), key=lambda each: (-each.lost, -each.lag - each.unreachable, each.group, each.topic))


def _next_messages(snapshot: Snapshot, items: Iterable[CommittedOffset]) -> Iterator[tuple[CommittedOffset, int]]:
    """The store time of the message that a group reads next, where queue and log have it, epoch ms."""
    for item in items:
        try:
            queue = snapshot.queue(item.topic, item.queue_id)
            unit = queue.unit_at(max(item.offset, queue.range.min_offset)) if queue else None
            timestamp = snapshot.log_bytes.store_timestamp(unit.physical_offset, unit.message_size) if unit else -1
        except RmqtoolError:  # which the verification has reported
            continue
        if timestamp > 0:
            yield item, timestamp


PIECES = 240
"""Pieces of the log, of one size."""

_MAX_BINS = 120
_MAX_TOPICS = 20_000  # further ones are counted together
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_WIDTHS = (
    *(_SECOND, 5 * _SECOND, 15 * _SECOND),
    *(_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 28 * _DAY, 365 * _DAY),
)

OTHERS = ""
"""Stands for all topics that are not named; no topic has an empty name."""

Counts = NDArray[np.int64]


@dataclass
class Timeline:
    """Bytes of messages by topic: in bins of `width` ms from `first` on, epoch ms, and in pieces of the log.

    Messages with times outside of the bins are counted in the first or the last one.
    """

    first: int
    width: int
    bins: int
    start: int  # physical offset
    piece: int  # bytes
    topics: dict[str, int] = field(default_factory=dict)
    messages: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    by_time: Counts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    by_place: Counts = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    @classmethod
    def of_range(cls, first: int | None, last: int | None, start: int, end: int) -> Timeline:
        """For messages stored from `first` to `last`, epoch ms, at physical offsets from `start` to before `end`."""
        last = min(max(last or 0, 0), MAX_TIME)
        first = first if first is not None and 0 < first <= last else last  # of nonsense nothing can be drawn
        span = last - first
        width = next((each for each in _WIDTHS if span // each < _MAX_BINS - 1), _WIDTHS[-1])
        begin = first // width * width
        bins = min(_MAX_BINS, (first + span - begin) // width + 1)
        return cls(begin, width, bins, start, max(1, -(-(end - start) // PIECES)))

    def add(self, frames: RecordRun) -> None:
        """Count the messages of a run."""
        (batch,) = record_batches(frames, ("topic",))
        encoded = batch.column(0).dictionary_encode()
        codes = np.asarray(encoded.indices).astype(np.int64)
        rows = np.array([self._row(name) for name in encoded.dictionary.to_pylist()], np.intp)
        sizes = frames.message_sizes
        stamps = np.clip(frames.headers.field("store_timestamp"), self.first, self.first + self.width * self.bins - 1)
        times = (stamps - self.first) // self.width
        np.add.at(self.messages, rows, np.bincount(codes, minlength=len(rows)))
        np.add.at(self.by_time, rows, _summed(codes, times, sizes, (len(rows), self.bins)))
        begins, sizes = frames.physical_offsets - self.start, sizes.astype(np.int64)
        while len(begins):  # one message may reach over many pieces
            places = np.clip(begins // self.piece, 0, PIECES - 1)
            parts = np.minimum(sizes, self.piece - begins % self.piece)
            np.add.at(self.by_place, rows, _summed(codes, places, parts, (len(rows), PIECES)))
            left = parts < sizes
            codes, begins, sizes = codes[left], (begins + parts)[left], (sizes - parts)[left]

    def largest(self, count: int) -> list[str]:
        """The names of the topics with most bytes, the largest first; OTHERS is none of them."""
        sums = self.by_time.sum(axis=1)
        names = sorted((name for name in self.topics if name != OTHERS), key=lambda name: -sums[self.topics[name]])
        return names[:count]

    def rows(self, counts: Counts, names: list[str]) -> Counts:
        """Rows of `by_time` or `by_place`: one of each name, then one of all other topics."""
        chosen = [self.topics[name] for name in names]
        rest = counts[: len(self.topics)].sum(axis=0) - counts[chosen].sum(axis=0)
        rows: Counts = np.vstack([counts[chosen], rest])
        return rows

    def _row(self, topic: str) -> int:
        if topic not in self.topics and len(self.topics) >= _MAX_TOPICS:
            topic = OTHERS
        row = self.topics.setdefault(topic, len(self.topics))
        if row >= len(self.messages):
            room = max(16, len(self.messages))
            self.messages = np.concatenate([self.messages, np.zeros(room, np.int64)])
            self.by_time = _grown(self.by_time, room, self.bins)
            self.by_place = _grown(self.by_place, room, PIECES)
        return row


def _summed(rows: Counts, columns: Counts, sizes: Counts, shape: tuple[int, int]) -> Counts:
    """Sums of `sizes` by row and column."""
    sums = np.bincount(rows * shape[1] + columns, sizes, shape[0] * shape[1])  # float64, exact up to 2**53
    return sums.reshape(shape).astype(np.int64)


def _grown(counts: Counts, more: int, columns: int) -> Counts:
    return np.vstack([counts.reshape(-1, columns), np.zeros((more, columns), np.int64)])


@dataclass(frozen=True)
class Retention:
    """What the cleaner does next, who loses by it, and how the disk fares: as it grows now, and twice as fast.

    `plan` is of now, or of the next hour of deleteWhen when only that one deletes.
    """

    plan: CleanPlan
    losses: Losses
    courses: Sequence[Course]


@dataclass(frozen=True)
class Life:
    """The messages of an id, one of each unique key, with their traces in `places`: JSON objects of `query`.

    `notes` say why there is none.
    """

    name: str
    messages: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class TieredQueueFacts:
    """A queue of the tier: its queue offsets, bytes, how many messages only the tier has, and how many are lost."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    size: int
    only_there: int
    lost: int


@dataclass(frozen=True)
class TierFacts:
    """The tier of a store, or `why` it is not read; `lost` counts messages that consumers do not get of it."""

    queues: Sequence[TieredQueueFacts] = ()
    lost: int = 0
    why: str | None = None


@dataclass(frozen=True)
class StoreReport:
    """A store at `now`, epoch ms; times are shown in `zone`, None: this machine's.

    `retention` is None where `no_retention` says why.
    """

    now: int
    zone: tzinfo | None
    overview: Overview
    outcome: Outcome
    plan: Plan
    timeline: Timeline
    retention: Retention | None
    no_retention: str | None
    positions: Sequence[GroupPosition]
    tier: TierFacts | None = None
    lives: Sequence[Life] = ()


def gather(
    now: int, zone: tzinfo | None, overview: Overview, outcome: Outcome, plan: Plan, timeline: Timeline
) -> StoreReport:
    """What has been read already, with retention and groups."""
    retention, why = None, None
    snapshot = overview.snapshot
    try:
        retention = _retention(overview, now, zone)
    except RmqtoolError as error:
        why = str(error)
    ranges = (((queue.topic, queue.queue_id), offsets) for queue, offsets in overview.queues)
    positions = positions_of(snapshot, ranges, retention.losses.groups if retention else (), overview.views)
    tier = _tier_facts(snapshot, outcome)
    return StoreReport(now, zone, overview, outcome, plan, timeline, retention, why, positions, tier)


def _tier_facts(snapshot: Snapshot, outcome: Outcome) -> TierFacts | None:
    """What a tier has, queue by queue; None of a store without one."""
    tier = tier_of(snapshot.store)
    if isinstance(tier, Unreadable):
        return TierFacts(why=tier.why)
    if tier is None:
        return None
    lost = outcome.clients.beside_log if outcome.clients else BesideLog()
    queues = []
    for queue in tier.queues:
        stop = min(queue.max_offset, local_begin(snapshot, queue.topic, queue.queue_id))
        size = sum(file.size for kind in QUEUE_KINDS for file in queue.files[kind].files)
        queues.append(TieredQueueFacts(
            queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, size,
            max(0, stop - queue.min_offset), lost.tiered_of(queue.topic, queue.queue_id),
        ))  # fmt: skip
    return TierFacts(queues, lost.tiered)


def _retention(overview: Overview, now: int, zone: tzinfo | None) -> Retention:
    snapshot = overview.snapshot
    first = next_deletions(snapshot.store, snapshot.version, now, AsIf(zone=zone))
    # The runs of now, or those of the next hour of deleteWhen when only they delete.
    hour = next_start(first.rules.settings.delete_when, first.now, first.rules.zone)
    plans = (plan_of(first.facts, first.rules, at, all_runs=True) for at in (first.now, hour) if at is not None)
    coming = next((plan for plan in plans if plan.deleted), first)
    return Retention(coming, losses_of(coming), courses(first))
