"""Who loses what: consumer groups, topics and waiting messages, between now and behind the last run of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rmqtool.broker.queue_deletion import QueueAfterRun
from rmqtool.clean.plan import CleanPlan
from rmqtool.clean.undelivered import Waiting, waiting_messages


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
    """What the runs of a plan take away."""

    plan: CleanPlan
    groups: Sequence[GroupLoss]
    waiting: Sequence[Waiting]

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
        """Store timestamp of the message that the log begins with behind the last run, epoch ms."""
        facts = self.plan.facts
        files = zip(facts.log_files, facts.first_timestamps, strict=True)
        return next((time for file, time in files if file.start_offset >= self.plan.min_offset), None)

    @cached_property
    def _topics(self) -> dict[str, TopicLoss]:
        found: dict[str, TopicLoss] = {}
        for before, after in zip(self.plan.facts.states, self.plan.states, strict=True):
            loss = found.setdefault(before.queue.topic, TopicLoss(before.queue.topic))
            loss.queues += 1
            loss.messages_deleted += after.first_alive - before.first_alive
            loss.messages_left += max(0, after.range.max_offset - after.first_alive)
        return dict(sorted(found.items()))


def losses_of(plan: CleanPlan) -> Losses:
    """What the runs of a plan take away; reads the units and records of what waits."""
    facts = plan.facts
    after = {(state.queue.topic, state.queue.queue_id): state for state in plan.states}
    groups = [
        _group_loss(item.group, item.topic, item.queue_id, item.offset, facts.by_queue, after)
        for item in facts.snapshot.committed.offsets
    ]
    committed = {(item.group, item.topic, item.queue_id): item.offset for item in facts.snapshot.committed.offsets}
    log = [log_file.file for log_file in facts.log_files]
    waiting = waiting_messages(facts.snapshot.store, facts.states, plan.states, committed, log, plan.now)
    return Losses(plan, groups, list(waiting))


def _group_loss(
    group: str,
    topic: str,
    queue_id: int,
    committed: int,
    before: dict[tuple[str, int], QueueAfterRun],
    after: dict[tuple[str, int], QueueAfterRun],
) -> GroupLoss:
    old, new = before.get((topic, queue_id)), after.get((topic, queue_id))
    if old is None or new is None:
        return GroupLoss(group, topic, queue_id, committed, None, None, 0, 0)
    lost = max(0, new.first_alive - max(committed, old.first_alive))
    already = max(0, old.first_alive - max(committed, 0))
    return GroupLoss(group, topic, queue_id, committed, old.range.min_offset, new.range.min_offset, lost, already)
