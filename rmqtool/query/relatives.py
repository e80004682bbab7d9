"""Records of one message: its half, its delayed and its delivered copy, its retries, its dead letter.

They share the unique key; the index leads to them, for the broker indexes each under its own topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.query.by_place import Message, message_at
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.store.index_query import MAX_MATCHES
from rmqtool.store.snapshot import Snapshot

Relation = Literal["half", "commit", "rollback", "delayed", "retry", "dead-letter", "delivered", "original", "copy"]
"""The relation of another record to the one that is traced."""

_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC)


@dataclass(frozen=True)
class Relative:
    """Another record of the same message."""

    relation: Relation
    record: Message

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        names = ("topic", "queue_id", "queue_offset", "physical_offset", "message_id", "store_timestamp", "store_time")
        return {"relation": self.relation, **{name: self.record[name] for name in names}}


def relatives_of(snapshot: Snapshot, message: Message) -> list[Relative]:
    """The other records with the unique key of `message`, in the order of the log; none without a unique key."""
    key = message["unique_key"]
    if not key:
        return []
    topics = {*snapshot.topic_names, message["topic"]}
    offsets = {unit.physical_offset for unit in snapshot.index.query_topics(topics, key, MAX_MATCHES)}
    offsets.discard(message["physical_offset"])
    others = [message_at(snapshot, offset) for offset in sorted(offsets)]
    return [Relative(_relation(message, other), other) for other in others if other and other["unique_key"] == key]


def _relation(message: Message, other: Message) -> Relation:
    topic = other["topic"]
    if other["transaction"] in ("commit", "rollback") and _is_half(message):
        return "commit" if other["transaction"] == "commit" else "rollback"
    if _is_half(other):
        return "half"
    if topic in _WAITING:
        return "delayed"
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DEAD_LETTER_PREFIX):
        return "dead-letter"
    if other["physical_offset"] < message["physical_offset"]:
        return "original"
    return "delivered" if message["topic"] in _WAITING else "copy"


def _is_half(message: Message) -> bool:
    return bool(message["topic"] == HALF_TOPIC or message["transaction"] == "prepared")
