"""The messages of a store, or of the Parquet files of an export, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.rules.system_topics import RETRY_PREFIX
from rmqtool.scan.events import Damage
from rmqtool.scan.filters import Filters
from rmqtool.store.message_query import make_query
from rmqtool.store.message_reader import SplitReader
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import Source as LogSource
from rmqtool.store.splits import split_source

COLUMNS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "message_size", "message_id", "properties",
    "born_timestamp", "store_timestamp", "store_host", "flag", "sys_flag", "reconsume_times", "body_crc", "body",
)  # fmt: skip
"""What is read of each message."""

_ROWS = 1000  # messages that are Python objects at the same time
Row = dict[str, Any]


@dataclass
class Reading:
    """What reading a source has met: bytes that are no messages, and those of them that were shown first."""

    damaged_extents: int = 0
    damaged_bytes: int = 0
    first_damage: int | None = None
    is_unordered: bool = False

    def add(self, damage: Damage) -> None:
        """Count an extent."""
        self.damaged_extents += 1
        self.damaged_bytes += damage.size
        if self.first_damage is None:
            self.first_damage = damage.physical_offset


class MessageSource(Protocol):
    """Messages that can be read more than once; each reading gives the same ones."""

    @property
    def size(self) -> int:
        """Bytes of one reading, for its progress."""

    @property
    def name(self) -> str:
        """What the journal remembers of it."""

    def queue_count(self, topic: str) -> int | None:
        """How many queues a topic has, where that is known."""

    def rows(self, reading: Reading) -> Iterator[tuple[list[Row], int]]:
        """Lists of messages in the order of the log, each with the bytes that were read so far."""


@dataclass(frozen=True)
class Unconsumed:
    """The offsets that a group has committed, by topic and queue; in another queue of its topics, none."""

    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @staticmethod
    def of_group(snapshot: Snapshot, group: str) -> Unconsumed:
        """Those of a store; empty when the group has committed none."""
        return Unconsumed(
            {(each.topic, each.queue_id): each.offset for each in snapshot.committed.offsets if each.group == group}
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the group, its retry topic among them."""
        return tuple(sorted({topic for topic, _ in self.offsets}))

    def keeps(self, batch: pa.RecordBatch) -> list[bool]:
        """Which rows the group has not consumed."""
        columns = (batch.column(name).to_pylist() for name in ("topic", "queue_id", "queue_offset"))
        return [offset >= self.offsets.get((topic, queue), 0) for topic, queue, offset in zip(*columns, strict=True)]

    def queues_without(self, snapshot: Snapshot) -> list[tuple[str, int]]:
        """Queues of the group's topics of which it has committed no offset: all of them count as not consumed."""
        topics = {topic for topic in self.topics if not topic.startswith(RETRY_PREFIX)}
        names = ((queue.topic, queue.queue_id) for queue in snapshot.queues if queue.topic in topics)
        return sorted(set(names) - self.offsets.keys())


@dataclass(frozen=True)
class StoreSource:
    """The messages of a store that pass filters; `log` is fixed, so that a growing log does not end it never."""

    snapshot: Snapshot
    log: LogSource
    filters: Filters
    unconsumed: Unconsumed | None = None
    bytes_per_second: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the log that are read."""
        return self.log.stop - self.log.start

    @property
    def name(self) -> str:
        """The path of the store."""
        return str(self.snapshot.store.root.resolve())

    def queue_count(self, topic: str) -> int | None:
        """As `MessageSource` says."""
        config = self.snapshot.topics.by_name.get(topic)
        if config is not None:
            return config.write_queues
        return len(self.snapshot.queue_ids(topic)) or None

    def rows(self, reading: Reading) -> Iterator[tuple[list[Row], int]]:
        """As `MessageSource` says; damage is passed over and counted."""
        query = replace(
            make_query(COLUMNS, "stored", self.filters, ("prepared", "rolled-back"), epoch_ms=True),
            bytes_per_second=self.bytes_per_second,
        )
        for split in split_source(self.log):
            reader = SplitReader(split, query, proves_bodies=False)
            for event in reader.events():
                done = (reader.end or split.start) - self.log.start
                if isinstance(event, Damage):
                    reading.add(event)
                    continue
                batch = reader.to_messages(event)
                if self.unconsumed is not None:
                    batch = batch.filter(pa.array(self.unconsumed.keeps(batch), pa.bool_()))
                for start in range(0, batch.num_rows, _ROWS):
                    yield [{**row, "is_stored": True} for row in batch.slice(start, _ROWS).to_pylist()], done


def passing(batch: pa.RecordBatch, filters: Filters) -> pa.RecordBatch:
    """The rows of a batch of COLUMNS with epoch ms that pass all filters, physical offsets among them."""
    offsets = np.asarray(batch.column("physical_offset"))
    kept = filters.mask(batch) & (offsets >= filters.start) & (offsets < filters.stop)
    return batch if kept.all() else batch.filter(pa.array(kept))


def milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of times as epoch ms."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64())


def with_keys(table: pa.Table) -> pa.Table:
    """A table with the columns that filters read, made from the properties where they are missing."""
    for name, of in (("unique_key", "UNIQ_KEY"), ("tags", "TAGS")):
        if name not in table.column_names:
            table = table.append_column(name, pc.map_lookup(table.column("properties"), of, "last"))
    if "keys" not in table.column_names:
        texts = pc.map_lookup(table.column("properties"), "KEYS", "last").cast(pa.string())
        table = table.append_column("keys", pc.split_pattern(texts.fill_null(""), " "))
    return table
