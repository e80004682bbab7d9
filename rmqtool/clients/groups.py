"""The next message of each consumer group and queue: before a damage, and after a start."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartPrediction
from rmqtool.clients.losses import MovedGroup
from rmqtool.clients.queues import read_changes
from rmqtool.rules.versions import BEYOND_MAX_TO_MAX, Version
from rmqtool.store.config_json import NO_NAME
from rmqtool.store.config_tables import CommittedOffset
from rmqtool.store.queue_units import QueueRange

Ranges = Callable[[QueueName], QueueRange | None]
"""The range of a queue, None without it."""
GroupQueue = tuple[str, str, int]
"""Group, topic and queue."""


def moved_groups(
    had: Iterable[CommittedOffset],
    after: Iterable[CommittedOffset],
    ranges_had: Ranges,
    ranges_after: Ranges,
    version: Version,
    *,
    is_slave: bool = False,
    to_end: Collection[str] = (),
) -> list[MovedGroup]:
    """The groups that a start of `version` lets go on elsewhere in a queue.

    `had` are the committed offsets that the last broker had, `after` those that the start loads
    (`store.consumer_offsets`); the ranges are those of the queues then. Of queues that are in neither a group loses the
    offset only.
    Of the topics `to_end` a repair has brought offsets past the end to it.
    """
    before, now = _by_queue(had), _by_queue(after)
    for key, offset in now.items():
        queue = ranges_after(QueueName(*key[1:]))
        if key[1] in to_end and queue is not None:
            now[key] = min(offset, queue.max_offset)
    found = []
    for key in sorted(before.keys() | now.keys()):
        name = QueueName(*key[1:])
        queue, queue_after = ranges_had(name), ranges_after(name)
        if queue is None and queue_after is None and key in before and key in now:
            continue
        if queue and queue.expired and queue_after:
            queue_after = replace(queue_after, expired=True)  # none of its messages comes back
        next_had = next_message(before.get(key), queue, version, is_slave=is_slave)
        next_after = next_message(now.get(key), queue_after, version, is_slave=is_slave)
        if next_had != next_after:
            found.append(MovedGroup(*key, next_had, next_after))
    return found


def next_message(
    committed: int | None, queue: QueueRange | None, version: Version, *, is_slave: bool = False
) -> int | None:
    """The queue offset from which a group goes on; None where the group has none, and begins by its own policy.

    `DefaultMessageStore#getMessage` sends a client that asks for an offset out of range to another one, which a slave
    does not (`#nextOffsetCorrection`). Without the queue there is nothing to go on with: it begins with 0. Where all
    messages of a queue have expired, pulls lead from file to file to its end, wherever its minimum is.
    """
    if committed is None or committed < 0:  # what a broker answers for a negative offset is the same as for none
        return None
    if is_slave:
        return committed
    if queue is None or queue.max_offset == 0:
        return 0
    if queue.expired:
        return queue.max_offset
    if committed > queue.max_offset and version < BEYOND_MAX_TO_MAX and queue.min_offset == 0:
        return 0
    return min(max(committed, queue.min_offset), queue.max_offset)


def may_have_been(damaged: CommittedOffset, other: CommittedOffset) -> bool:
    """Whether damage may have made the names of an offset from those of another, which are whole."""
    name = f"{damaged.topic}@{damaged.group}" if damaged.group else damaged.topic
    pattern = ".+".join(map(re.escape, re.split(f"{NO_NAME.pattern}+", name)))
    return damaged.queue_id == other.queue_id and bool(re.fullmatch(pattern, f"{other.topic}@{other.group}"))


def ranges_after_start(start: StartPrediction, *, twice: bool) -> dict[QueueName, QueueRange]:
    """The queues that a predicted start changes, as it leaves them; of those written `twice` the ones in files."""
    changes = read_changes(start, twice=twice)
    return {name: QueueRange(change.min_offset, change.max_offset) for name, change in changes}


def _by_queue(offsets: Iterable[CommittedOffset]) -> dict[GroupQueue, int]:
    return {(each.group, each.topic, each.queue_id): each.offset for each in offsets}
