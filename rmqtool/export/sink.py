"""The files of an export while they are written: rows by directory, Parquet and text, and the way to the disk."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from zlib_ng import zlib_ng

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.limits import sized
from rmqtool.base.new_files import sync
from rmqtool.base.remote_files import RemoteSink
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import BodyFormat, ExportOptions
from rmqtool.scan.message_rows import as_text, in_base64
from rmqtool.scan.rows import csv_header, csv_rows, json_rows, text_of

_READ_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class DataFile:
    """One file of rows: `path` below the output, `temporary` where it was written, `store` whose rows it holds.

    Offsets and size are in bytes; `crc32` is that of the whole file. `log` names the log beside the commit log that the
    rows are from.
    """

    temporary: str
    path: str
    rows: int
    bytes: int
    crc32: int
    store: str | None
    physical_offset_first: int | None = None
    physical_offset_last: int | None = None
    log: str | None = None


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` into an RmqtoolError that names the output."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> RmqtoolError:
    """The error for an output that cannot be written, with a hint what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space or take another --output; the earlier export is unchanged"
        return RmqtoolError("cannot write: no space is left on the output's disk", file=path, hint=hint)
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return RmqtoolError(f"cannot write: {reason}", file=path)


def file_crc32(path: Path) -> int:
    """CRC-32 of a whole file; just after writing it is in the page cache, and takes a fiftieth of the writing."""
    crc, piece = 0, memoryview(bytearray(_READ_AT_ONCE))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(piece):
            crc = zlib_ng.crc32(piece[:size], crc)
    return crc


class LocalSink:
    """A file of this machine; `target` is its path, for a writer that opens it itself."""

    def __init__(self, path: Path) -> None:
        self.target = path
        self._begun = 0  # size of what is on its way to the disk, bytes

    def open(self) -> Any:
        """The file, opened for bytes."""
        return self.target.open("wb", buffering=0)

    def begin_sync(self) -> None:
        """Let the disk write what is written so far, and do not wait.

        A disk that is at work while rows are made has less to do when `sync` waits for it. Linux begins to write when
        it is told that pages are not needed, and keeps those that are not on the disk yet; others may ignore it.
        """
        with self.target.open("rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                with suppress(OSError):  # a file system that takes no advice
                    os.posix_fadvise(file.fileno(), self._begun, 0, os.POSIX_FADV_DONTNEED)
            self._begun = os.fstat(file.fileno()).st_size

    def finish(self) -> tuple[int, int]:
        """Sync the file, which its writer has closed; its size, bytes, and its CRC-32."""
        self.begin_sync()
        crc = file_crc32(self.target)  # while the disk is at work
        return sync(self.target), crc

    def abandon(self) -> None:
        """Nothing: the file goes with its directory."""


def new_sink(path: Path) -> LocalSink | RemoteSink:
    """The sink of a new file; raises OSError."""
    return RemoteSink(path) if isinstance(path, RemotePath) else LocalSink(path)


ROW_GROUP_BYTES = 64 << 20
"""A row group is written when its columns reach this in memory, bytes; earlier where memory is limited."""

_LEAST_ROW_GROUP = 8 << 20

_VALUES_AT_ONCE = 1 << 16  # Arrow's 1024 cost calls
_DICTIONARY = ("topic", "tags", "born_host", "store_host", "transaction", "compression", "queue_id", "store",
               "file", "flag", "sys_flag", "reconsume_times", "properties.key_value.key", "reason")  # fmt: skip
_DELTA = ("queue_offset", "physical_offset", "message_size", "body_size", "born_timestamp", "store_timestamp",
          "file_position")  # fmt: skip
"""Numbers near the one before: their differences take half the time to write, and less room."""

_STATISTICS = ("topic", "queue_id", "queue_offset", "physical_offset", "message_id", "unique_key", "tags",
               "born_timestamp", "store_timestamp", "store")  # fmt: skip
"""Columns that are filtered on: with their statistics readers skip row groups."""


class _RowsFile:
    """A file of rows that is being written, as soon as many bytes are held."""

    _sink: LocalSink | RemoteSink
    _writer: Any

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._bytes = 0

    def close(self) -> tuple[int, int]:
        """Write the remaining rows and sync; return the file's size, bytes, and its CRC-32."""
        self._flush()
        with output_errors(self.path):
            self._writer.close()
            return self._sink.finish()

    def abandon(self) -> None:
        """Let go of the file after an error; errors of the writer itself are ignored."""
        self._sink.abandon()
        with suppress(OSError, pa.ArrowException):
            self._writer.close()

    def _flush(self) -> None:
        raise NotImplementedError


class ParquetFile(_RowsFile):
    """A Parquet file that is being written, a row group at a time."""

    def __init__(self, path: Path, schema: pa.Schema, options: ExportOptions) -> None:
        super().__init__(path)
        self._batches: list[pa.RecordBatch] = []
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

    def abandon(self) -> None:
        """Let go of the file after an error; errors of the writer itself are ignored."""
        super().abandon()
        self._writer.is_open = False  # else it would try once more, and complain, when it is collected

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
        # Bodies that are not text have a column of their own.
        beside = (BODY_BASE64,) if options.body_format in ("text", "json") else ()
        columns = options.query.columns
        self.names = tuple(each for name in columns for each in ((name, *beside) if name == BODY else (name,)))
        self.header = csv_header(self.names) if self._is_csv else b""

    def rows(self, messages: pa.RecordBatch) -> pa.StringArray:
        """Each message as a line with its line end."""
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        if BODY in columns:
            bodies = columns[BODY].to_pylist()
            columns |= _text_bodies(bodies, self._body_format)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in self.names], names=list(self.names))
        if self._is_csv:
            return csv_rows(batch, self.names)
        raw = frozenset({BODY}) if self._body_format == "json" else frozenset[str]()
        return json_rows(batch, frozenset({BODY_BASE64}), self._int64, raw=raw)


def _text_bodies(bodies: Sequence[bytes], body_format: BodyFormat) -> dict[str, pa.StringArray]:
    if body_format == "hex":
        return {BODY: pa.array([body.hex() for body in bodies], pa.string())}
    if body_format == "base64":
        return {BODY: pa.array([in_base64(body) for body in bodies], pa.string())}
    read: Callable[[bytes], str | None] = _as_json if body_format == "json" else as_text
    texts = [read(body) for body in bodies]
    others = [in_base64(body) if text is None else None for text, body in zip(texts, bodies, strict=True)]
    return {BODY: pa.array(texts, pa.string()), BODY_BASE64: pa.array(others, pa.string())}


def _as_json(body: bytes) -> str | None:
    """A JSON body as it was written, on one line; None where it is no JSON."""
    text = as_text(body)
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


class TextFile(_RowsFile):
    """A text file that is being written, a frame at a time."""

    def __init__(self, path: Path, options: ExportOptions) -> None:
        super().__init__(path)
        self._text = TextRows(options)
        self._codec = None if options.codec == "none" else pa.Codec(options.codec, compression_level=options.level)
        self._pieces: list[bytes | memoryview] = [self._text.header]
        with output_errors(path):
            self._sink = new_sink(path)
            self._writer = self._sink.open()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; they may be written later."""
        lines = text_of(self._text.rows(batch))
        self._pieces.append(lines)
        self._bytes += len(lines)
        self.rows += batch.num_rows
        if self._bytes >= _FRAME_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._pieces, self._bytes = [], 0
        with output_errors(self.path):
            rest = memoryview(self._codec.compress(data, asbytes=True) if self._codec and data else data)
            while rest:
                rest = rest[self._writer.write(rest) :]
            self._sink.begin_sync()


def open_data_file(path: Path, schema: pa.Schema, options: ExportOptions) -> ParquetFile | TextFile:
    """A new file for batches of `schema`, the columns of the query."""
    return ParquetFile(path, schema, options) if options.format == "parquet" else TextFile(path, options)
