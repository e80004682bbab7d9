"""What a real broker says of its queues, as keys and values to be compared."""

from __future__ import annotations

from typing import Any


def queue_of(queue: dict[str, Any]) -> tuple[str, str, int]:
    """The kind, topic and number of a queue."""
    return queue["kind"], queue["topic"], queue["queue_id"]


def reachable(queue: dict[str, Any]) -> set[tuple[int, ...]]:
    """What a consumer gets of a queue: queue offsets with physical offsets."""
    return {tuple(pair) for pair in queue["reachable"]}
