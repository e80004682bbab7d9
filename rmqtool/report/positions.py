"""Where consumer groups stand in time: the oldest message that each has still to read, and what it is about to lose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rmqtool.base.errors import RmqtoolError
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.clean.losses import GroupLoss
from rmqtool.clients.holes import QueueView
from rmqtool.store.consumer_offsets import CommittedOffset
from rmqtool.store.queue_range import QueueRange
from rmqtool.store.snapshot import Snapshot

MAX_LOOKUPS = 2000
"""Queues of which the next message is looked up, those with the largest lag; one reads two pages of the disk."""

_WHOLE = QueueView()


@dataclass
class GroupPosition:
    """A group in a topic: `lag` over its queues, messages; `next_timestamp` is the store time of its oldest unread one.

    `lost` are messages that the cleaner deletes next and that it has not read, `already_lost` went before.
    `next_timestamp` is None where it has read all, or none is seen. `lag` counts the queues that are there; `gone` are
    those that are not, `beyond` those whose offset is past their end. `unreachable` are messages of the log that it
    has not read, and does not get because of holes in queues: these are not in `lag`.
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
        if offsets is None:
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
