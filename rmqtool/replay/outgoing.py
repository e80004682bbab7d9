"""A message on its way: where it stands in the source, and what is sent of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rmqtool.formats.sys_flag import COMPRESSED

Reason = Literal[
    "delayed", "half", "system-topic", "retry-topic", "dead-letter", "replay", "rolled-back",
    "no-origin", "empty-body", "damaged-body", "damaged-batch", "too-large", "properties-too-large", "too-late",
    "no-topic", "not-writable", "already-there",
]  # fmt: skip
"""Why a message is not sent; `MEANINGS` explains each."""

MEANINGS: Mapping[Reason, str] = {
    "delayed": "wait for their time; what was delivered of them stands in its topic (--delays sends what waits)",
    "half": "half messages of transactions, and operations on them: never sent",
    "rolled-back": "prepared or rolled back: never sent",
    "system-topic": "of topics that brokers use themselves: sent only where --topic names them",
    "retry-topic": "of retry topics, copies of messages: sent only where --topic names them",
    "dead-letter": "dead letters, copies of messages: sent only where --topic names them, or --dead-letters-of",
    "replay": "sent by a replay before (--include-replays sends them)",
    "no-origin": "do not say of which topic they are",
    "empty-body": "have no body, which brokers refuse (--empty-bodies blank sends one blank)",
    "damaged-body": "have a body that does not have its CRC, or cannot be decompressed",
    "damaged-batch": "are a batch that cannot be taken apart",
    "too-large": "are larger than the target takes",
    "properties-too-large": "have properties or a topic that are too long",
    "too-late": "are due later than the target can wait",
    "no-topic": "have no topic on the target",
    "not-writable": "have a topic that cannot be written on the target",
    "already-there": "are there already (--send-again sends them)",
}

EXPECTED: frozenset[Reason] = frozenset(
    ("delayed", "half", "rolled-back", "system-topic", "retry-topic", "dead-letter", "replay", "already-there")
)
"""Reasons that are no loss: the others are messages that were wanted and cannot be sent."""


class Identity(NamedTuple):
    """Where a message stands in the source: its physical offset, and which part of an inner batch it is, from 0."""

    physical_offset: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """A message of the source; times are epoch ms."""

    identity: Identity
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is sent; `due_timestamp` is when it is to be delivered, epoch ms, None for at once.

    `source_topic` and `queue_id` are those that it was sent to first, and `is_copy` says that it comes from a retry or
    dead-letter topic, so that its original is expected to be on the same cluster.
    """

    origin: Origin
    source_topic: str
    topic: str
    queue_id: int
    properties: Mapping[str, str]
    body: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    reconsume_times: int
    due_timestamp: int | None = None
    is_copy: bool = False

    @property
    def is_compressed(self) -> bool:
        """Whether the body is compressed."""
        return bool(self.sys_flag & COMPRESSED)


@dataclass(frozen=True, slots=True)
class Ready:
    """A message and the queue that it is sent to."""

    message: Outgoing
    broker: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A message that is not sent."""

    origin: Origin
    reason: Reason
