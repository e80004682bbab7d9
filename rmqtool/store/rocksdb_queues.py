"""Consume queues in RocksDB (`RocksDBConsumeQueueStore`): which there are, and their ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rmqtool.base.mapped_files import MappedFiles
from rmqtool.formats.rocksdb_rows import queue_bound, queue_prefix, queue_unit
from rmqtool.store.queue_range import QueueRange
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.store import CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES, Store, holds_rocksdb


@dataclass(frozen=True)
class RocksDbQueue:
    """One consume queue in RocksDB, which has no files."""

    topic: str
    queue_id: int
    kind: Literal["rocksdb"] = "rocksdb"
    files: MappedFiles = field(default_factory=MappedFiles)


def queue_database(store: Store) -> Path | None:
    """The database of the consume queues, None without one."""
    places = (store.root / name for name in (SEPARATE_ROCKSDB_QUEUES, CONSUME_QUEUE))
    return next((path for path in places if holds_rocksdb(path)), None)


def queues_in(path: Path, log_min_offset: int) -> Iterator[tuple[RocksDbQueue, QueueRange]]:
    """The queues of a database, each with its range, in the order of their keys.

    A queue is there when it has a last unit; its minimum is that of the first unit at or behind `log_min_offset`,
    which a broker looks for when it is asked (`RocksDBConsumeQueueOffsetTable#correctMinCqOffset`).
    """
    with RocksDb(path) as database:
        for key, value in database.rows("offset"):
            row = queue_bound(key, value)
            if row.kind != "queue-bound" or row.key["bound"] != "max":
                continue
            topic, queue_id = row.key["topic"], row.key["queue_id"]
            last, last_physical = row.fields["queue_offset"], row.fields["physical_offset"]
            first = _first_live(database, queue_prefix(topic.encode(), queue_id), last, log_min_offset)
            is_expired = first > last
            reported = QueueRange(first, last + 1, last_physical if last >= 0 else None, is_expired and last >= 0)
            yield RocksDbQueue(topic, queue_id), reported


def _first_live(database: RocksDb, prefix: bytes, last: int, log_min_offset: int) -> int:
    """The queue offset of the first unit at or behind `log_min_offset`; behind the last one where there is none."""
    first = _unit_from(database, prefix, 0)
    low, high = 0, last + 1
    if first is None or first[1] >= log_min_offset:  # as in most queues
        return first[0] if first else high
    while low < high:
        middle = (low + high) // 2
        unit = _unit_from(database, prefix, middle)
        if unit is None or unit[1] >= log_min_offset:
            high = middle
        else:
            low = unit[0] + 1
    unit = _unit_from(database, prefix, low)
    return unit[0] if unit else last + 1


def _unit_from(database: RocksDb, prefix: bytes, queue_offset: int) -> tuple[int, int] | None:
    """The queue offset and physical offset of the first unit at or behind a queue offset; None without one."""
    for key, value in database.rows("default", prefix, prefix + queue_offset.to_bytes(8, "big", signed=True)):
        row = queue_unit(key, value)
        return row.key["queue_offset"], row.fields["physical_offset"]
    return None
