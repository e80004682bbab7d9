"""Single messages of a store and the queues that lead to them, for checks that need a few and not all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.record_at import record_at
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.snapshot import Snapshot

Message = dict[str, Any]
"""The message object of the machine interface, of its fields those of FIELDS."""

FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "message_size", "message_id", "unique_key", "keys", "tags",
    "properties", "store_timestamp", "reconsume_times", "transaction",
)  # fmt: skip
"""What checks ask about: all fields take twice as long."""

_KEPT = 4096


class SingleMessages:
    """Messages by physical offset and by queue offset; None for those that cannot be read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.at = lru_cache(_KEPT)(self._at)

    def _at(self, physical_offset: int) -> Message | None:
        """The message that begins at a physical offset."""
        try:
            frames = record_at(self._snapshot.log.files, physical_offset)
            return None if frames is None else next(message_dicts(frames, "", fields=FIELDS), None)
        except RmqtoolError:
            return None

    def queue(self, topic: str, queue_id: int) -> LoadedQueue | None:
        """A queue of a topic, None without a unit in it; batch queues are not read."""
        try:
            queue = self._snapshot.queue(topic, queue_id)
        except RmqtoolError:
            return None
        if queue is None or queue.queue.kind != "simple" or queue.range.max_offset <= queue.range.min_offset:
            return None
        return queue

    def in_queue(self, queue: LoadedQueue, queue_offset: int) -> Message | None:
        """The message that a unit of a queue points at."""
        try:
            unit = queue.unit_at(queue_offset)
        except RmqtoolError:
            return None
        return None if unit is None else self.at(unit.physical_offset)

    def due_time(self, queue: LoadedQueue, queue_offset: int) -> int | None:
        """When a message of a delay level is due, epoch ms: its unit stores that instead of the tags code."""
        try:
            unit = queue.unit_at(queue_offset)
        except RmqtoolError:
            return None
        return None if unit is None else unit.tags_code

    def stored_from(self, queue: LoadedQueue, store_timestamp: int) -> Iterator[Message | None]:
        """The messages of a queue from the first that was stored at a time or later, epoch ms."""
        low, high = queue.range.min_offset, queue.range.max_offset
        while low < high:
            middle = (low + high) // 2
            message = self.in_queue(queue, middle)
            if message is not None and message["store_timestamp"] < store_timestamp:
                low = middle + 1
            else:
                high = middle
        for queue_offset in range(low, queue.range.max_offset):
            yield self.in_queue(queue, queue_offset)
