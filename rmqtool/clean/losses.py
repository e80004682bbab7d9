"""Messages that consumer groups and topics lose, and undelivered ones, between now and after the last run of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rmqtool.broker.queue_deletion import QueueAfterRun
from rmqtool.clean.plan import CleanPlan
from rmqtool.clean.queue_rows import QueueRows, queue_rows
from rmqtool.clean.undelivered import Undelivered, undelivered_messages
from rmqtool.scan.topic_choice import TopicChoice
from rmqtool.store.consumer_offsets import CommittedOffset
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.store import rocksdb_configs


@dataclass(frozen=True)
class GroupLoss:
    """One committed offset; `messages_lost` go unread now, `already_lost` went before."""

    group: str
    topic: str
    queue_id: int
    committed_offset: int
    min_offset: int | None
    min_offset_after: int | None
    messages_lost: int
    already_lost: int


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
        is_known = file.path is not None and file.problem is None and not snapshot.leaves_queues_out
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
    groups = [_group_loss(item, queues.get((item.topic, item.queue_id))) for item in plan.snapshot.committed.offsets]
    return Losses(plan, groups, list(undelivered_messages(plan)), queue_rows(plan))


def _group_loss(committed: CommittedOffset, queue: tuple[QueueAfterRun, QueueAfterRun] | None) -> GroupLoss:
    """The loss at a committed offset; `queue` is its queue before and after the runs, None without it."""
    name, offset = (committed.group, committed.topic, committed.queue_id), committed.offset
    if queue is None:
        return GroupLoss(*name, offset, None, None, 0, 0)
    before, after = queue
    lost = max(0, after.first_alive - max(offset, before.first_alive))
    already = max(0, before.first_alive - max(offset, 0))
    return GroupLoss(*name, offset, before.range.min_offset, after.range.min_offset, lost, already)
