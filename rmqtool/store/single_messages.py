"""Single messages of a store and the queues that lead to them, for checks that need a few and not all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFile
from rmqtool.rules.versions import Version
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.record_at import record_at
from rmqtool.store.queue_range import queue_range
from rmqtool.store.queue_units import LoadedQueue, find_queue
from rmqtool.store.store import Store

Message = dict[str, Any]
"""The message object of the machine interface."""

_KEPT = 4096


class SingleMessages:
    """Messages by physical offset and by queue offset; None for those that cannot be read."""

    def __init__(self, store: Store, files: Sequence[MappedFile], version: Version) -> None:
        self._store = store
        self._files = files
        self._version = version
        self.at = lru_cache(_KEPT)(self._at)
        self.queue = lru_cache(_KEPT)(self._queue)

    def _at(self, physical_offset: int) -> Message | None:
        """The message that begins at a physical offset."""
        try:
            frames = record_at(self._files, physical_offset)
            return None if frames is None else next(iter(message_dicts(frames, "", "none")), None)
        except RmqtoolError:
            return None

    def _queue(self, topic: str, queue_id: int) -> LoadedQueue | None:
        """A queue of a topic, None without a unit in it."""
        try:
            on_disk = find_queue(self._store, topic, queue_id)
            if on_disk is None or on_disk.kind != "simple":
                return None
            start = self._files[0].start_offset if self._files else -1
            queue = LoadedQueue(on_disk, queue_range(on_disk, start, self._version))
        except RmqtoolError:
            return None
        return queue if queue.range.max_offset > queue.range.min_offset else None

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
