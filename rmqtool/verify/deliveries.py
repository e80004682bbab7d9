"""Delay levels against the log: what a level has delivered stands there a second time (`ScheduleMessageService`).

A level's offset that lies before a delivered message delivers it again; one behind a message that was never delivered
loses it. The copy has the unique key and the number of retries of the message that waited, and lies in its real queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.verify.single_messages import Message, SingleMessages

_EARLY = 2_000  # ms: a copy is not stored before its time, but clocks and rounding are what they are
_MAX_COPIES = 256  # that are looked at for one message
_MAX_COUNTED = 512
LEVELS = 64  # more than anyone configures


@dataclass(frozen=True)
class Level:
    """A level whose offset does not fit: `repeated` messages would be delivered twice, `skipped` ones never."""

    level: int
    offset: int
    repeated: int = 0
    skipped: int = 0


class Deliveries:
    """What was delivered, as the log shows; `known_until` is when the offsets were written, epoch ms.

    What was delivered later than that may be missing in the offsets of a broker that was killed.
    """

    def __init__(self, messages: SingleMessages, newest: int, known_until: int) -> None:
        self._messages = messages
        self._newest = newest
        self._known_until = known_until

    def levels(self, offsets: dict[int, int]) -> Iterator[Level]:
        """The levels whose offset, 0 where `offsets` has none, is not where the deliveries ended."""
        for level in range(1, LEVELS + 1):
            queue = self._messages.queue(SCHEDULE_TOPIC, level - 1)
            if queue is None:
                continue
            offset = offsets.get(level, 0)
            at = min(max(offset, queue.range.min_offset), queue.range.max_offset)
            ahead = range(at, min(queue.range.max_offset, at + _MAX_COUNTED))
            behind = range(at - 1, max(queue.range.min_offset, at - _MAX_COUNTED) - 1, -1)
            repeated = self._count_run(queue, ahead, delivered=True)
            skipped = self._count_run(queue, behind, delivered=False)
            if repeated or skipped:
                yield Level(level, offset, repeated, skipped)

    def _count_run(self, queue: LoadedQueue, queue_offsets: range, *, delivered: bool) -> int:
        """How many of the messages `queue_offsets`, from the first on, were delivered, or were not, without a break."""
        for count, queue_offset in enumerate(queue_offsets):
            if self._is_delivered(queue, queue_offset) is not delivered:
                return count
        return len(queue_offsets)

    def _is_delivered(self, queue: LoadedQueue, queue_offset: int) -> bool | None:
        """Whether a message of a level has a copy; None where that cannot be known, or was not when it was written."""
        message, due = self._messages.in_queue(queue, queue_offset), self._messages.due_time(queue, queue_offset)
        if message is None or due is None or message["unique_key"] is None:
            return None
        if due > self._newest:
            return False
        target = self._target(message)
        if target is None:
            return None
        for count, other in enumerate(self._messages.stored_from(target, due - _EARLY)):
            if other is None or count == _MAX_COPIES:
                return None
            if _is_copy(message, other):
                return True if other["store_timestamp"] < self._known_until else None
        return False

    def _target(self, message: Message) -> LoadedQueue | None:
        queue_id = message["properties"].get("REAL_QID", "")
        topic = message["properties"].get("REAL_TOPIC")
        return self._messages.queue(topic, int(queue_id)) if topic and queue_id.isdecimal() else None


def _is_copy(message: Message, other: Message) -> bool:
    is_equal = all(other[name] == message[name] for name in ("unique_key", "reconsume_times"))
    return is_equal and bool(other["physical_offset"] > message["physical_offset"])
