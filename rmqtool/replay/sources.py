"""The messages of a store, or of the Parquet files of an export, in the order of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.base.files import read_all
from rmqtool.rules.system_topics import RETRY_PREFIX
from rmqtool.scan.block import Damage
from rmqtool.scan.filters import Filters
from rmqtool.store.message_reader import SplitReader, make_query
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
    """The messages of a store that pass filters; `log` is fixed, so that a growing log does not end it never.

    Each reading of it gives the same ones.
    """

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
        """What the journal remembers of it: the path of the store."""
        return str(self.snapshot.store.root.resolve())

    def queue_count(self, topic: str) -> int | None:
        """How many queues a topic has, where that is known."""
        config = self.snapshot.topics.by_name.get(topic)
        if config is not None:
            return config.write_queues
        return len(self.snapshot.queue_ids(topic)) or None

    def rows(self, reading: Reading) -> Iterator[tuple[list[Row], int]]:
        """Lists of messages in the order of the log, each with the bytes that were read so far.

        Damage is passed over and counted.
        """
        query = replace(
            make_query(COLUMNS, "stored", self.filters, ("prepared", "rolled-back"), epoch_ms=True),
            bytes_per_second=self.bytes_per_second,
        )
        for split in split_source(self.log):
            reader = SplitReader(split, query, proves_bodies=False)
            for event in reader.events():
                done = (reader.counts.end or split.start) - self.log.start
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


_MANIFEST = "_manifest.json"
_MAGIC = b"PAR1"
_STORE = "store"
_NOT_NEEDED = {"message_size": pa.int32(), "body_crc": pa.int32()}

_TIMES = ("born_timestamp", "store_timestamp")
_TEXTS = ("topic", "message_id", "store_host")
_INTEGERS = {
    "queue_id": pa.int32(), "queue_offset": pa.int64(), "physical_offset": pa.int64(), "message_size": pa.int32(),
    "flag": pa.int32(), "sys_flag": pa.int32(), "reconsume_times": pa.int32(), "body_crc": pa.int32(),
}  # fmt: skip


def is_parquet(path: Path) -> bool:
    """Whether a path is an export rather than a store: a Parquet file, or a directory that holds some.

    Raises UnreadableError.
    """
    if path.is_file():
        return path.suffix == ".parquet" or read_all(path, len(_MAGIC)) == _MAGIC
    return (path / _MANIFEST).is_file() or next(path.glob("**/*.parquet"), None) is not None


@dataclass(frozen=True)
class ParquetSource:
    """The messages in the Parquet files of a directory that pass filters."""

    path: Path
    filters: Filters

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files, by the first offset in each; raises UnreadableError or UsageError for files that are no export."""
        _require_originals(self.path)
        paths = [self.path] if self.path.is_file() else sorted(self.path.glob("**/*.parquet"))
        found = [(self._first_offset(path), path) for path in paths if not path.name.startswith((".", "_"))]
        return tuple(path for _, path in sorted(found))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.files)

    @property
    def name(self) -> str:
        """The path of the export."""
        return str(self.path.resolve())

    def queue_count(self, topic: str) -> int | None:
        """Not known of an export."""
        del topic
        return None

    def rows(self, reading: Reading) -> Iterator[tuple[list[Row], int]]:
        """As of a store; `is_unordered` is set where a queue's messages are not in the log's order."""
        last: dict[tuple[str, int], int] = {}
        done = 0
        for path in self.files:
            try:
                with pq.ParquetFile(path) as file:
                    names = [name for name in file.schema_arrow.names if name in _READ]
                    for batch in file.iter_batches(_ROWS, columns=names, use_threads=False):
                        rows = self._rows(batch)
                        for row in rows:
                            queue = row["topic"], row["queue_id"]
                            reading.is_unordered |= last.get(queue, -1) > row["physical_offset"]
                            last[queue] = row["physical_offset"]
                        yield rows, done
            except (pa.ArrowException, OSError, ValueError) as error:
                raise UnreadableError(f"cannot be read: {error}", file=path) from error
            done += path.stat().st_size

    def _rows(self, batch: pa.RecordBatch) -> list[Row]:
        table = pa.Table.from_batches([batch])
        for name, kind in _NOT_NEEDED.items():
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(table.num_rows, kind))
        table = with_keys(_cast(table))
        rows: list[Row] = []
        for piece in table.to_batches():
            kept = passing(piece, self.filters).select([*COLUMNS])
            rows += [{**row, "is_stored": False} for row in kept.to_pylist()]
        return rows

    def _first_offset(self, path: Path) -> int:
        try:
            metadata = pq.read_metadata(path)
            schema = metadata.schema.to_arrow_schema()
        except (pa.ArrowException, OSError) as error:
            raise UnreadableError(f"not a Parquet file: {error}", file=path) from error
        missing = [name for name in COLUMNS if name not in schema.names and name not in _NOT_NEEDED]
        if missing:
            raise UsageError(
                f"required columns are missing: {', '.join(missing)}",
                file=path,
                hint="export with the default columns: rmqtool export STORE --output DIR",
            )
        if _STORE in schema.names:
            raise UsageError("it has messages of several stores", file=path, hint="export each store separately")
        leaf = [metadata.schema.column(number).path for number in range(len(metadata.schema))].index("physical_offset")
        chunks = (metadata.row_group(group).column(leaf).statistics for group in range(metadata.num_row_groups))
        return min((chunk.min for chunk in chunks if chunk is not None and chunk.has_min_max), default=0)


MessageSource = StoreSource | ParquetSource
_READ = frozenset((*COLUMNS, "unique_key", "keys", "tags"))


def _cast(table: pa.Table) -> pa.Table:
    """The columns in the types of a store's; raises ArrowInvalid for values that are none."""
    for name in table.column_names:
        column = table.column(name)
        if name in _TIMES:
            column = milliseconds(column)
        elif name in _INTEGERS:
            column = column.cast(_INTEGERS[name])
        elif name in _TEXTS:
            column = column.cast(pa.string())
        elif name == "body":
            column = column.cast(pa.binary())
        table = table.set_column(table.column_names.index(name), name, column)
    required = (*_TEXTS, *_TIMES, *(name for name in _INTEGERS if name not in _NOT_NEEDED))
    empty = next((name for name in required if table.column(name).null_count), None)
    if empty is not None:
        raise pa.ArrowInvalid(f"the column {empty} has no value in some rows")
    return table


def _require_originals(path: Path) -> None:
    """Raise UsageError for an export in which values were hidden, and of another format."""
    manifest = path / _MANIFEST
    if not manifest.is_file():
        return
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot read the manifest: {error}", file=manifest) from error
    if isinstance(content, dict) and content.get("redact"):
        raise UsageError("values were hidden by --redact: these are not the messages", file=path)
    if isinstance(content, dict) and content.get("format", "parquet") != "parquet":
        raise UsageError(f"an export of the format {content['format']}", file=path, hint="export to Parquet")
