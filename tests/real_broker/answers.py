"""What a real broker says of its queues, as keys and values to be compared."""

from __future__ import annotations

from typing import Any

from rmqtool.broker.pull import Subscription, puller_of
from rmqtool.store.snapshot import Snapshot


def queue_of(queue: dict[str, Any]) -> tuple[str, str, int]:
    """The kind, topic and number of a queue."""
    return queue["kind"], queue["topic"], queue["queue_id"]


def reachable(queue: dict[str, Any]) -> set[tuple[int, ...]]:
    """What a consumer gets of a queue: queue offsets with physical offsets."""
    return {tuple(pair) for pair in queue["reachable"]}


def pull(
    snapshot: Snapshot, topic: str, queue_id: int, offset: int, most: int, tags: list[str] | None
) -> dict[str, Any]:
    """Our answer to a pull, as Questions.java writes one; messages by their physical offsets."""
    answer = puller_of(snapshot, topic, queue_id).pull(offset, most, Subscription(tuple(tags or ())))
    return {
        "status": answer.status,
        "next_begin_offset": answer.next_begin_offset,
        "min_offset": answer.min_offset,
        "max_offset": answer.max_offset,
        "physical_offsets": [unit.physical_offset for unit in answer.units],
    }
