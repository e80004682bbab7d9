"""Single messages of a store and the queues that lead to them, for checks that need a few and not all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.formats.layout import struct_of
from rmqtool.formats.message import HEADER_DTYPES
from rmqtool.formats.message_id import format_message_id
from rmqtool.formats.properties import KEYS, TAGS, UNIQUE_KEY, split_keys
from rmqtool.formats.sys_flag import transaction
from rmqtool.scan.single_record import SingleRecord, single_record_at
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.snapshot import Snapshot

Message = dict[str, Any]
"""Of the fields that the machine interface has, those that checks ask about."""

_NUMBERS = (
    "message_size", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "reconsume_times",
)  # fmt: skip
_STRUCTS = {layout: struct_of(layout, *_NUMBERS) for layout in HEADER_DTYPES.values()}
_KEPT = 4096


class SingleMessages:
    """Messages by physical offset and by queue offset; None for those that cannot be read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.at = lru_cache(_KEPT)(self._at)

    def _at(self, physical_offset: int) -> Message | None:
        """The message that begins at a physical offset."""
        try:
            record = single_record_at(self._snapshot.log.files, physical_offset)
            return None if record is None else message_of(record)
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


def message_of(record: SingleRecord) -> Message:
    """A record as a message."""
    message: Message = dict(zip(_NUMBERS, _STRUCTS[record.layout].unpack_from(record.header), strict=True))
    properties = record.properties
    return message | {
        "topic": record.topic,
        "message_id": format_message_id(record.store_host, message["physical_offset"]),
        "unique_key": properties.get(UNIQUE_KEY),
        "keys": split_keys(properties.get(KEYS)),
        "tags": properties.get(TAGS),
        "properties": properties,
        "transaction": transaction(message["sys_flag"]),
    }
