"""The options of an export: which messages it writes, and the form of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from rmqtool.base.errors import UsageError
from rmqtool.base.numbers import Int64
from rmqtool.base.times import rfc3339
from rmqtool.scan.filters import Filters
from rmqtool.scan.typed_columns import typed_column
from rmqtool.store.message_reader import Query
from rmqtool.store.splits import SPLIT_SIZE

Mode = Literal["error", "append", "overwrite", "incremental"]
PartitionKey = Literal["topic", "date", "hour", "queue"]
Format = Literal["parquet", "csv", "ndjson"]
BodyFormat = Literal["base64", "hex", "text", "json"]

DELTA, ICEBERG = "delta", "iceberg:"
"""Tables that an output may be, too; the name of an Iceberg table follows."""

CODECS = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11), "snappy": None, "lz4": None, "none": None}
"""Compressions of Parquet that Spark reads too, with the levels that they have."""

TEXT_SUFFIXES = {"zstd": ".zst", "gzip": ".gz", "none": ""}
"""Compressions of CSV and NDJSON, whole files, with the end of their names by which readers know them."""

_LISTS = {"topic": "topics", "exclude_topic": "excluded_topics", "transaction": "transactions", "queue": "queue_ids",
          "tag": "tags", "key": "keys"}  # fmt: skip
"""Filters of several values, by their names in a manifest."""

_LATER = ("exclude_topic", "transaction")  # manifests of before have none
_DEFAULT_LEVELS = {"zstd": 1, "gzip": 6, "brotli": 1}  # zstd 1: measured, level 3 costs twice and is hardly smaller


@dataclass(frozen=True)
class ExportOptions:
    """Selection and form of the files; a later run into the same output must have the same.

    `null_before` has the columns that a table got later: up to which physical offset rows of each store are null there.
    """

    query: Query = field(default_factory=Query)
    partition_by: tuple[PartitionKey, ...] = ()
    codec: str = "zstd"
    level: int | None = 1
    split_size: int = SPLIT_SIZE
    format: Format = "parquet"
    body_format: BodyFormat = "base64"
    int64: Int64 = "number"
    table: str | None = None
    null_before: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """The end of the names of files."""
        if self.format == "parquet":
            return f".{self.codec}.parquet"
        return f".{self.format}{TEXT_SUFFIXES[self.codec]}"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the output: columns that came later may be null."""
        return pa.schema(
            [column.with_nullable(True) if column.name in self.null_before else column for column in self.query.schema]
        )

    def as_json(self) -> dict[str, Any]:
        """The options as the manifest holds them."""
        query, filters = self.query, self.query.filters
        return {
            "format": self.format,
            "columns": [self._column_as_json(column) for column in query.schema],
            "body": query.body,
            "redact": query.redaction.as_json() if query.redaction else None,
            "decoder": query.decoder.text if query.decoder else None,
            "include": list(query.include),
            "filters": {
                **{
                    name: list(values)
                    for name, field in _LISTS.items()
                    if (values := getattr(filters, field)) or name not in _LATER
                },
                "from_timestamp": filters.from_timestamp,
                "from_time": rfc3339(filters.from_timestamp),
                "to_timestamp": filters.to_timestamp,
                "to_time": rfc3339(filters.to_timestamp),
                "from_offset": filters.from_offset,
                "to_offset": filters.to_offset,
            },
            "partition_by": list(self.partition_by),
            "compression": {"codec": self.codec, "level": self.level},
            "body_format": None if self.format == "parquet" else self.body_format,
            "int64": self.int64 if self.format == "ndjson" else None,
            **({"table": self.table} if self.table else {}),
        }

    def _column_as_json(self, column: pa.Field) -> dict[str, Any]:
        later = {"null_before": dict(self.null_before[column.name])} if column.name in self.null_before else {}
        typed = self.query.typed_by_name.get(column.name)
        made = {"made_of": f"{typed.source}:{typed.kind}"} if typed else {}
        return {"name": column.name, "type": str(column.type), **made, **later}


@dataclass(frozen=True)
class Target:
    """Where workers write: below `folder`, which all workers must reach; `run` is the run's name.

    On this machine files are hidden until a commit renames them. On another machine they have their final names from
    the beginning, each attempt its own, and `is_direct` is set.
    """

    folder: Path
    run: str
    is_direct: bool = False

    def file(self, hidden: str, final: str) -> Path:
        """Where a file is written that has these names below the output."""
        return self.folder / (final if self.is_direct else hidden)


def watermarks(manifest: dict[str, Any]) -> dict[str, int]:
    """How far each store of a manifest is exported, a physical offset."""
    return {source["store"]: source["next_physical_offset"] for source in manifest["source"]}


def parse_compression(text: str | None, form: Format = "parquet") -> tuple[str, int | None]:
    """``zstd``, ``zstd:3``, ``none`` ... as codec and level, None for that of the format; raise UsageError."""
    codec, _, level = (text or ("zstd" if form == "parquet" else "none")).lower().partition(":")
    if codec not in CODECS:
        raise UsageError(f"no compression is named {codec!r}", hint=f"one of {', '.join(CODECS)}")
    if form != "parquet" and codec not in TEXT_SUFFIXES:
        raise UsageError(f"{form} files are not compressed with {codec}", hint=f"one of {', '.join(TEXT_SUFFIXES)}")
    levels = CODECS[codec]
    if not level:
        return codec, _DEFAULT_LEVELS.get(codec)
    if levels is None:
        raise UsageError(f"{codec} has no levels")
    if not level.isdecimal() or not levels[0] <= int(level) <= levels[1]:
        raise UsageError(f"{codec} has the levels {levels[0]} to {levels[1]}, not {level}")
    return codec, int(level)


def options_of(manifest: dict[str, Any]) -> ExportOptions:
    """What an output was exported with, as far as it says what stands in its files."""
    form: Format = manifest.get("format", "parquet")  # manifests of before have none
    body_format: BodyFormat = manifest.get("body_format") or "base64"
    query = replace(query_of(manifest), epoch_ms=form != "parquet")
    int64: Int64 = manifest.get("int64") or "number"
    later = null_before_of(manifest)
    return ExportOptions(query, format=form, body_format=body_format, int64=int64, null_before=later)


def null_before_of(manifest: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The columns that came after the first run: before which physical offset rows of each store are null there."""
    return {column["name"]: column["null_before"] for column in manifest["columns"] if "null_before" in column}


def query_of(manifest: dict[str, Any]) -> Query:
    """The query that an output was exported with."""
    given = manifest["filters"]
    values: dict[str, Any] = {field: tuple(given.get(name, ())) for name, field in _LISTS.items()}
    values |= {name: given[name] for name in ("from_timestamp", "to_timestamp", "from_offset", "to_offset")}
    columns = tuple(column["name"] for column in manifest["columns"])
    made = (typed_column(f"{column['made_of']} as {column['name']}") for column in manifest["columns"]
            if "made_of" in column)  # fmt: skip
    typed = tuple(column for column in made if column is not None)
    return Query(columns, manifest["body"], Filters(**values), tuple(manifest["include"]), typed=typed)
