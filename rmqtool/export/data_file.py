"""A file of messages that is written: Parquet, CSV or NDJSON, to the disk or to another machine."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.base.limits import sized
from rmqtool.export.options import BodyFormat, ExportOptions
from rmqtool.export.sink import abandon, new_sink, output_errors
from rmqtool.scan.row_text import csv_header, csv_rows, json_rows, text_of

ROW_GROUP_BYTES = 64 << 20
"""A row group is written when its columns reach this in memory, bytes; earlier where memory is limited."""

_LEAST_ROW_GROUP = 8 << 20

_VALUES_AT_ONCE = 1 << 16  # Arrow's 1024 cost calls
_DICTIONARY = ("topic", "tags", "born_host", "store_host", "transaction", "compression", "queue_id", "store",
               "file", "flag", "sys_flag", "reconsume_times", "properties.key_value.key")  # fmt: skip
_DELTA = ("queue_offset", "physical_offset", "message_size", "body_size", "born_timestamp", "store_timestamp",
          "file_position")  # fmt: skip
"""Numbers near the one before: their differences take half the time to write, and less room."""

_STATISTICS = ("topic", "queue_id", "queue_offset", "physical_offset", "message_id", "unique_key", "tags",
               "born_timestamp", "store_timestamp", "store")  # fmt: skip
"""Columns that are filtered on: with their statistics readers skip row groups."""


class ParquetFile:
    """A Parquet file that is being written, a row group at a time."""

    def __init__(self, path: Path, schema: pa.Schema, options: ExportOptions) -> None:
        self.path = path
        self.rows = 0
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._limit = sized(ROW_GROUP_BYTES, _LEAST_ROW_GROUP)
        self._schema = schema
        with output_errors(path):
            self._sink = new_sink(path)
            self._writer = pq.ParquetWriter(
                self._sink.target,
                schema,
                compression=options.codec,
                compression_level=options.level,
                write_batch_size=_VALUES_AT_ONCE,
                use_dictionary=[name for name in _DICTIONARY if name.partition(".")[0] in schema.names],
                column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTA if name in schema.names},
                write_statistics=[name for name in _STATISTICS if name in schema.names],
                store_schema=False,  # readers shall see strings, and not that they were given as dictionaries
            )

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; they may be written later."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._bytes >= self._limit:
            self._flush()

    def close(self) -> tuple[int, int]:
        """Write the remaining rows and sync; return the file's size, bytes, and its CRC-32."""
        self._flush()
        with output_errors(self.path):
            self._writer.close()
            return self._sink.finish()

    def abandon(self) -> None:
        """Let go of the file after an error."""
        self._batches.clear()
        self._sink.abandon()
        abandon(self._writer)

    def _flush(self) -> None:
        # The writer takes one dictionary for a row group as it is; with several it would read each string again.
        table = pa.Table.from_batches(self._batches, self._schema).unify_dictionaries()
        self._batches, self._bytes = [], 0
        if table.num_rows:
            with output_errors(self.path):
                self._writer.write_table(table, row_group_size=table.num_rows)
                self._sink.begin_sync()


BODY, BODY_BASE64 = "body", "body_base64"


class TextRows:
    """The rows of one format, and the header before them; made from batches with the columns of a query."""

    def __init__(self, options: ExportOptions) -> None:
        self._is_csv = options.format == "csv"
        self._int64 = options.int64
        self._body_format = options.body_format
        self.names = text_columns(options.query.columns, options.body_format)
        self.header = csv_header(self.names) if self._is_csv else b""

    def rows(self, messages: pa.RecordBatch) -> pa.StringArray:
        """Each message as a line with its line end."""
        batch = self._with_text_bodies(messages)
        if self._is_csv:
            return csv_rows(batch, self.names)
        raw = frozenset({BODY}) if self._body_format == "json" else frozenset[str]()
        return json_rows(batch, frozenset({BODY_BASE64}), self._int64, raw=raw)

    def _with_text_bodies(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        if BODY in columns:
            bodies = columns[BODY].to_pylist()
            columns |= _text_bodies(bodies, self._body_format)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.names], names=list(self.names))


def text_columns(names: Sequence[str], body_format: BodyFormat) -> tuple[str, ...]:
    """The columns of a text file for those of a query: bodies that are not text have one of their own."""
    beside = (BODY_BASE64,) if body_format in ("text", "json") else ()
    return tuple(column for name in names for column in ((name, *beside) if name == BODY else (name,)))


def _text_bodies(bodies: Sequence[bytes], body_format: BodyFormat) -> dict[str, pa.StringArray]:
    if body_format == "hex":
        return {BODY: pa.array([body.hex() for body in bodies], pa.string())}
    if body_format == "base64":
        return {BODY: pa.array([_base64(body) for body in bodies], pa.string())}
    read: Callable[[bytes], str | None] = _as_json if body_format == "json" else _as_text
    texts = [read(body) for body in bodies]
    others = [_base64(body) if text is None else None for text, body in zip(texts, bodies, strict=True)]
    return {BODY: pa.array(texts, pa.string()), BODY_BASE64: pa.array(others, pa.string())}


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _as_json(body: bytes) -> str | None:
    """A JSON body as it was written, on one line; None where it is no JSON."""
    text = _as_text(body)
    try:
        json.loads(text or "", parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    # In JSON a line end stands between values only: within a text it is escaped.
    return text and text.replace("\r", " ").replace("\n", " ")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_FRAME_BYTES = 8 << 20
"""Text is compressed and written when it reaches this, bytes: readers of gzip and zstd take one frame after another."""


class TextFile:
    """A text file that is being written, a frame at a time."""

    def __init__(self, path: Path, options: ExportOptions) -> None:
        self.path = path
        self.rows = 0
        self._text = TextRows(options)
        self._codec = None if options.codec == "none" else pa.Codec(options.codec, compression_level=options.level)
        self._pieces: list[bytes | memoryview] = [self._text.header]
        self._bytes = 0
        with output_errors(path):
            self._sink = new_sink(path)
            self._file = self._sink.open()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; they may be written later."""
        lines = text_of(self._text.rows(batch))
        self._pieces.append(lines)
        self._bytes += len(lines)
        self.rows += batch.num_rows
        if self._bytes >= _FRAME_BYTES:
            self._flush()

    def close(self) -> tuple[int, int]:
        """Write the remaining rows and sync; return the file's size, bytes, and its CRC-32."""
        self._flush()
        with output_errors(self.path):
            self._file.close()
            return self._sink.finish()

    def abandon(self) -> None:
        """Let go of the file after an error."""
        self._pieces.clear()
        self._sink.abandon()
        self._file.close()

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._pieces, self._bytes = [], 0
        with output_errors(self.path):
            rest = memoryview(self._codec.compress(data, asbytes=True) if self._codec and data else data)
            while rest:
                rest = rest[self._file.write(rest) :]
            self._sink.begin_sync()


def open_data_file(path: Path, schema: pa.Schema, options: ExportOptions) -> ParquetFile | TextFile:
    """A new file for batches of `schema`, the columns of the query."""
    return ParquetFile(path, schema, options) if options.format == "parquet" else TextFile(path, options)
