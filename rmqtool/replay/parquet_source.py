"""The messages of an export, edited or not: Parquet files as `rmqtool export` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.base.files import read_all
from rmqtool.replay.sources import COLUMNS, Reading, Row, milliseconds, passing, with_keys
from rmqtool.scan.filters import Filters

_MANIFEST = "_manifest.json"
_MAGIC = b"PAR1"
_STORE = "store"
_NOT_NEEDED = {"message_size": pa.int32(), "body_crc": pa.int32()}
_ROWS = 1000
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
        """As `MessageSource` says; `is_unordered` is set where a queue's messages are not in the log's order."""
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
                f"columns that a message is made of are missing: {', '.join(missing)}",
                file=path,
                hint="export with the usual columns: rmqtool export STORE --output DIR",
            )
        if _STORE in schema.names:
            raise UsageError("it holds messages of several stores", file=path, hint="export each store by itself")
        leaf = [metadata.schema.column(number).path for number in range(len(metadata.schema))].index("physical_offset")
        chunks = (metadata.row_group(group).column(leaf).statistics for group in range(metadata.num_row_groups))
        return min((chunk.min for chunk in chunks if chunk is not None and chunk.has_min_max), default=0)


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
