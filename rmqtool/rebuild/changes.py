"""The changes of a rebuild, one by one: of a queue, of an index file, and of what a committed offset means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.queue_diff import QueueDifference
from rmqtool.store.consume_queues import Kind
from rmqtool.store.consumer_offsets import CommittedOffset

Action = Literal["create", "replace", "keep"]
QueueKind = Kind | Literal["rocksdb"]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """The change of one queue; `min_offset` and `max_offset` are those after the rebuild."""

    name: QueueName
    kind: QueueKind
    action: Action
    min_offset: int
    max_offset: int
    difference: QueueDifference = field(default_factory=QueueDifference)
    has_messages: bool = True  # whether the log holds messages of it
    lacks_log_messages: bool = False  # whether it has units that point into the log, which holds no message of it
    neutral: int = 0  # units that stand for lost messages

    @property
    def units(self) -> int:
        """Queue offsets from the minimum on, for a batch queue messages."""
        return max(0, self.max_offset - self.min_offset)


@dataclass(frozen=True)
class IndexFilePlan:
    """The change of one index file."""

    name: str
    action: Literal["create", "replace", "keep", "remove"]


@dataclass(frozen=True)
class MovedConsumer:
    """A group whose committed offset means another message afterwards; physical offsets, None for no message."""

    committed: CommittedOffset
    physical_offset_before: int
    physical_offset_after: int | None
