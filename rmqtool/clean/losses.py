"""Messages that consumer groups and topics lose, and undelivered ones, between now and after the last run of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.numbers import Count, Long
from rmqtool.base.times import Moment
from rmqtool.broker.cleaner import QueueAfterRun
from rmqtool.broker.half_messages import ended_halves
from rmqtool.clean.plan import CleanPlan, QueueRows, queue_rows
from rmqtool.formats.java import whole_number
from rmqtool.formats.properties import TIMER_DUE
from rmqtool.rules.system_topics import (
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
)
from rmqtool.scan.filters import TopicChoice
from rmqtool.scan.single_record import SingleRecord, single_record_at
from rmqtool.store.config_tables import CommittedOffset, load_delay_offsets
from rmqtool.store.consume_queues import Queue
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.side_rows import HalfRows, half_rows
from rmqtool.store.store import rocksdb_configs
from rmqtool.store.tiered import tiered_ranges
from rmqtool.store.unit_files import written_units

Kind = Literal["delay", "timer", "transaction"]

_TIMER_MAX_DELAY_MS = 3 * 86_400_000  # MessageStoreConfig#timerMaxDelaySec, its default
_MAX_RECORDS = 5_000  # records that are read one by one for each queue


@dataclass(frozen=True)
class Undelivered:
    """Waiting messages of one queue that go."""

    # delay: not delivered by a delay level. timer: not yet due by the timer. transaction: half messages neither
    # committed nor rolled back.
    kind: Kind
    topic: str  # Topic in which they wait.
    queue_id: Long  # Queue number.
    messages_lost: Count  # How many.
    exact: bool = True  # False: not all could be checked, and it is an upper limit.
    first_due: Moment = None  # When the first is due.
    last_due: Moment = None  # When the last is due.


class _Waiting(NamedTuple):
    """How many messages of a queue wait, no more than so many unless it is `exact`, and when they are due, epoch ms."""

    messages: int
    exact: bool = True
    dues: Sequence[int] = ()


def undelivered_messages(plan: CleanPlan) -> Iterator[Undelivered]:
    """The messages that wait now and that the runs of a plan delete, queue by queue."""
    for old, new in zip(plan.facts.states, plan.states, strict=True):
        queue, start, stop = old.queue, old.first_alive, new.first_alive  # queue offsets
        if queue.topic in _MODELS and queue.kind == "simple" and start < stop:
            kind, waiting_in = _MODELS[queue.topic]
            found = waiting_in(plan, queue, start, stop)
            if found.messages:
                ends = min(found.dues, default=None), max(found.dues, default=None)
                yield Undelivered(kind, queue.topic, queue.queue_id, found.messages, found.exact, *ends)


def _delayed(plan: CleanPlan, queue: Queue, start: int, stop: int) -> _Waiting:
    """Messages that a delay level has not delivered yet; its units have the delivery time in place of the tags code."""
    delivered = load_delay_offsets(plan.snapshot.store).by_level.get(queue.queue_id + 1, 0)
    pieces = [units["tags_code"] for _, units in written_units(queue, max(start, delivered), stop)]
    dues: list[int] = np.concatenate([np.zeros(0, np.int64), *pieces]).tolist()
    return _Waiting(len(dues), dues=dues)


def _timed(plan: CleanPlan, queue: Queue, start: int, stop: int) -> _Waiting:
    """Messages that the timer wheel has not delivered yet: the due time is a property of the record."""
    newest = next(_records(plan, queue, stop - 1, stop), None)
    if newest and newest.number("store_timestamp") + _TIMER_MAX_DELAY_MS < plan.now:
        return _Waiting(0)
    first = max(start, stop - _MAX_RECORDS)
    times = (
        whole_number(each.properties.get(TIMER_DUE, ""), 64) for each in _records(plan, queue, first, stop) if each
    )
    dues = [time for time in times if time is not None and time > plan.now]
    return _Waiting(len(dues) if first == start else stop - start, first == start, dues)


def _records(plan: CleanPlan, queue: Queue, start: int, stop: int) -> Iterator[SingleRecord | None]:
    log = [log_file.file for log_file in plan.facts.log_files]
    for _, units in written_units(queue, start, stop):
        yield from (single_record_at(log, offset) for offset in units["physical_offset"].tolist())


def _halves(plan: CleanPlan, queue: Queue, start: int, stop: int) -> _Waiting:
    """Half messages that were neither committed nor rolled back (`TransactionalMessageServiceImpl#check`)."""
    offsets = plan.snapshot.committed.offsets
    done = {
        each.topic: each.offset
        for each in offsets
        if (each.group, each.queue_id) == (TRANSACTION_GROUP, queue.queue_id)
    }
    states = (
        each for each in plan.facts.states if (each.queue.topic, each.queue.queue_id) == (OP_TOPIC, queue.queue_id)
    )
    start, op = max(start, done.get(HALF_TOPIC, 0)), next(states, None)
    if not op or start >= stop:
        return _Waiting(max(0, stop - start))
    log = [log_file.file for log_file in plan.facts.log_files]
    ended = ended_halves(op.queue, max(op.first_alive, done.get(OP_TOPIC, 0)), op.range.max_offset, log)
    inside = np.count_nonzero((ended.offsets >= start) & (ended.offsets < stop))
    return _Waiting(stop - start - int(inside), ended.unread == 0)


def _halves_in_rocksdb(plan: CleanPlan, queue: Queue, start: int, stop: int) -> _Waiting:
    """Half messages of a topic of their own: their rows go with the answer (`TransMessageRocksDBStore`)."""
    pieces = [units["physical_offset"] for _, units in written_units(queue, start, stop)]
    offsets = np.concatenate([np.zeros(0, dtype=np.int64), *pieces])
    known: HalfRows | None = None
    with suppress(RmqtoolError):
        known = half_rows(plan.snapshot.store)
    if known is None:
        return _Waiting(len(offsets), exact=False)
    unindexed = offsets > known.indexed_to
    waits = np.isin(offsets, known.physical_offsets) | unindexed
    return _Waiting(int(np.count_nonzero(waits)), not unindexed.any())


_MODELS: dict[str, tuple[Kind, Callable[[CleanPlan, Queue, int, int], _Waiting]]] = {
    SCHEDULE_TOPIC: ("delay", _delayed),
    TIMER_TOPIC: ("timer", _timed),
    HALF_TOPIC: ("transaction", _halves),
    ROCKSDB_HALF_TOPIC: ("transaction", _halves_in_rocksdb),
}


@dataclass(frozen=True)
class GroupLoss:
    """One committed offset."""

    group: str  # Consumer group.
    topic: str  # Topic.
    queue_id: Long  # Queue number.
    committed_offset: Long  # The next offset that the group reads.
    min_offset: Long | None  # The queue's minimum now; null without the queue.
    min_offset_after: Long | None  # The queue's minimum after all passes; null without the queue.
    messages_lost: Count  # Messages that the group has not read and that are deleted.
    already_lost: Count  # Messages that it has not read and that were deleted before.


@dataclass
class TopicLoss:
    """The queues of one topic together, in messages."""

    topic: str
    queues: int = 0
    messages_deleted: int = 0
    messages_left: int = 0


@dataclass(frozen=True)
class Losses:
    """The losses by all runs of a plan, of the topics that are `chosen`; `rows` of queues in RocksDB are of all."""

    plan: CleanPlan
    groups: Sequence[GroupLoss]
    undelivered: Sequence[Undelivered]
    rows: QueueRows | None = None
    chosen: TopicChoice = field(default_factory=TopicChoice)

    def of(self, topics: TopicChoice) -> Losses:
        """What is lost of some topics; undelivered messages, which wait in topics of the broker, all stay."""
        return replace(self, groups=[each for each in self.groups if each.topic in topics], chosen=topics)

    @property
    def unread(self) -> int:
        """Messages that groups have not read, those of each group counted."""
        return sum(item.messages_lost for item in self.groups)

    @property
    def losing_groups(self) -> int:
        """The number of groups that lose unread messages."""
        return len({item.group for item in self.groups if item.messages_lost})

    @property
    def undelivered_messages(self) -> int:
        """Delayed and half messages that wait; at most so many unless all of `undelivered` are exact."""
        return sum(queue.messages_lost for queue in self.undelivered)

    @property
    def is_known(self) -> bool:
        """Whether committed offsets and queues were read, in files or in RocksDB, so that it shows who loses what."""
        snapshot, file = self.plan.snapshot, self.plan.snapshot.committed.file
        is_hidden = snapshot.leaves_queues_out or snapshot.hides_entries
        is_known = file.path is not None and file.problem is None and not is_hidden
        return is_known and (is_readable() or not rocksdb_configs(snapshot.store))

    @property
    def may_lose_unread(self) -> bool:
        """Whether somebody may miss a message that is deleted."""
        return bool(self.unread or self.undelivered or (self.plan.deleted and not self.is_known))

    @property
    def topics(self) -> list[TopicLoss]:
        """The topics that lose messages, by name."""
        return [topic for topic in self._topics.values() if topic.messages_deleted]

    @property
    def messages_deleted(self) -> int:
        """Messages that the queues offer now and will not offer any more."""
        return sum(topic.messages_deleted for topic in self._topics.values())

    @property
    def oldest_timestamp(self) -> int | None:
        """Store timestamp of the log's first message after the last run, epoch ms."""
        facts = self.plan.facts
        files = zip(facts.log_files, facts.first_timestamps, strict=True)
        return next((time for file, time in files if file.start_offset >= self.plan.min_offset), None)

    @cached_property
    def _topics(self) -> dict[str, TopicLoss]:
        topics: dict[str, TopicLoss] = {}
        for before, after in zip(self.plan.facts.states, self.plan.states, strict=True):
            if before.queue.topic not in self.chosen:
                continue
            loss = topics.setdefault(before.queue.topic, TopicLoss(before.queue.topic))
            loss.queues += 1
            loss.messages_deleted += after.first_alive - before.first_alive
            loss.messages_left += max(0, after.range.max_offset - after.first_alive)
        return dict(sorted(topics.items()))


def losses_of(plan: CleanPlan) -> Losses:
    """The losses by the runs of a plan; reads the units and records of undelivered messages."""
    pairs = zip(plan.facts.states, plan.states, strict=True)
    queues = {(before.queue.topic, before.queue.queue_id): (before, after) for before, after in pairs}
    tier = tiered_ranges(plan.snapshot.store)  # whose messages consumers still get
    groups = [
        _group_loss(item, queues.get((item.topic, item.queue_id)), tier.get((item.topic, item.queue_id), (0, 0)))
        for item in plan.snapshot.committed.offsets
    ]
    return Losses(plan, groups, list(undelivered_messages(plan)), queue_rows(plan))


def _outside(start: int, stop: int, kept: tuple[int, int]) -> int:
    """How many offsets from `start` to before `stop` are not in the range `kept`."""
    return max(0, stop - start) - max(0, min(stop, kept[1]) - max(start, kept[0]))


def _group_loss(
    committed: CommittedOffset, queue: tuple[QueueAfterRun, QueueAfterRun] | None, tier: tuple[int, int]
) -> GroupLoss:
    """The loss at a committed offset; `queue` is its queue before and after the runs, None without it.

    `tier` are the queue offsets that its tier has.
    """
    name, offset = (committed.group, committed.topic, committed.queue_id), committed.offset
    if queue is None:
        return GroupLoss(*name, offset, None, None, 0, 0)
    before, after = queue
    lost = _outside(max(offset, before.first_alive), after.first_alive, tier)
    already = _outside(max(offset, 0), before.first_alive, tier)
    return GroupLoss(*name, offset, before.range.min_offset, after.range.min_offset, lost, already)
