"""The rows of an export's files, read back to be compared with the log."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rmqtool.base.filesystems import file_system
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import TEXT_SUFFIXES, ExportOptions
from rmqtool.export.stored_files import open_stored
from rmqtool.export.text_rows import TextRows
from rmqtool.store.message_query import STORE_COLUMN
from rmqtool.store.message_reader import SplitReader
from rmqtool.store.splits import Split

OFFSET, LINE = "physical_offset", "line"

_LINES = pa.schema([(OFFSET, pa.int64()), (LINE, pa.binary())])
"""Rows of a text file are compared as the text that they are."""

_READ_AT_ONCE = 4 << 20


def rows_schema(options: ExportOptions) -> pa.Schema:
    """The columns in which rows of the log and of files are compared."""
    return options.schema if options.format == "parquet" else _LINES


def expected_rows(reader: SplitReader, batch: pa.RecordBatch, options: ExportOptions, store: str) -> pa.RecordBatch:
    """The messages of a batch of a store as rows of `rows_schema`."""
    messages = reader.to_messages(batch)
    if options.format == "parquet":
        return _with_nulls(messages, batch.column(OFFSET), options, store)
    lines = TextRows(options).rows(messages).cast(pa.binary())
    return pa.RecordBatch.from_arrays([batch.column(OFFSET), lines], schema=_LINES)


def _with_nulls(messages: pa.RecordBatch, offsets: pa.Int64Array, options: ExportOptions, store: str) -> pa.RecordBatch:
    """The messages with null where a column came later."""
    if not options.null_before:
        return messages
    columns = {name: messages.column(name) for name in messages.schema.names}
    for name, before in options.null_before.items():
        is_there = pc.greater_equal(offsets, before.get(store, 0))
        columns[name] = pc.if_else(is_there, columns[name], pa.scalar(None, columns[name].type))
    return pa.RecordBatch.from_arrays([*columns.values()], schema=options.schema)


def stored_rows(path: Path, split: Split, options: ExportOptions) -> pa.Table:
    """The rows of a split in a file, as `rows_schema`; raises OSError, ValueError or ArrowException when it cannot."""
    if options.format == "parquet":
        return _parquet_rows(path, split, options)
    tables = [_within(table, split) for table in _text_rows(path, options)]
    return pa.concat_tables([_LINES.empty_table(), *tables])


def count_rows(path: Path, options: ExportOptions) -> int:
    """Rows in a file; raises as `stored_rows`."""
    if options.format == "parquet":
        with open_stored(path) as file:
            return int(pq.read_metadata(file).num_rows)
    return sum(len(ends) for _, ends in _records(path, options))


def _parquet_rows(path: Path, split: Split, options: ExportOptions) -> pa.Table:
    schema = options.schema
    wanted = (ds.field(OFFSET) >= split.start) & (ds.field(OFFSET) < split.stop)
    if STORE_COLUMN in schema.names:
        wanted &= ds.field(STORE_COLUMN) == split.store
    system, name = None, str(path)
    if isinstance(path, RemotePath):
        system, prefix = file_system(path.scheme, path.authority)
        name = f"{prefix}{path.key}"
    source = ds.dataset([name], schema=schema, format="parquet", partitioning=None, filesystem=system)
    return source.to_table(columns=list(schema.names), filter=wanted, use_threads=False)


def _within(table: pa.Table, split: Split) -> pa.Table:
    offsets = table.column(OFFSET)
    return table.filter(pc.and_(pc.greater_equal(offsets, split.start), pc.less(offsets, split.stop)))


def _text_rows(path: Path, options: ExportOptions) -> Iterator[pa.Table]:
    for data, ends in _records(path, options):
        starts = pa.py_buffer(np.concatenate(([0], ends)).astype(np.int32))
        lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, starts, pa.py_buffer(data)])
        offsets = _csv_offsets(data, options) if options.format == "csv" else _json_offsets(lines)
        if len(offsets) != len(ends):
            raise ValueError(f"{len(ends)} lines hold {len(offsets)} rows")
        yield pa.Table.from_arrays([offsets, lines], schema=_LINES)


def _records(path: Path, options: ExportOptions) -> Iterator[tuple[bytes, NDArray[np.intp]]]:
    """Whole rows of a text file after its header, a piece at a time, with the end of each."""
    quotes = options.format == "csv"
    rest = b""
    header = len(TextRows(options).header)
    with _opened(path) as file:
        if file.read(header) != TextRows(options).header:
            raise ValueError("the header line is not that of the columns")
        while piece := file.read(_READ_AT_ONCE):
            data = rest + piece
            ends = _line_ends(data, quotes=quotes)
            whole = int(ends[-1]) if len(ends) else 0
            rest = data[whole:]
            if whole:
                yield data[:whole], ends
    if rest:
        raise ValueError("the last line has no end")


def _opened(path: Path) -> pa.NativeFile:
    """The text of a file; runs into one output may compress in several ways."""
    file = open_stored(path)
    codec = next(codec for codec, suffix in TEXT_SUFFIXES.items() if path.name.endswith(suffix))
    return file if codec == "none" else pa.CompressedInputStream(file, codec)


def _line_ends(data: bytes, *, quotes: bool) -> NDArray[np.intp]:
    """Positions after the line ends; with `quotes` those inside of quotes are part of a value."""
    view = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(view == ord("\n"))
    if quotes and b'"' in data:
        before = np.searchsorted(np.flatnonzero(view == ord('"')), ends)
        ends = ends[before % 2 == 0]
    return ends + 1


def _csv_offsets(data: bytes, options: ExportOptions) -> pa.ChunkedArray:
    table = pyarrow.csv.read_csv(
        io.BytesIO(data),
        pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=list(TextRows(options).names)
        ),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(include_columns=[OFFSET], column_types={OFFSET: pa.int64()}),
    )
    return table.column(OFFSET)


def _json_offsets(lines: pa.BinaryArray) -> pa.ChunkedArray:
    # Line by line: Arrow's reader of JSON refuses numbers that it cannot hold, in bodies too.
    try:
        offsets = [int(json.loads(line.as_py(), parse_int=str, parse_float=str)[OFFSET]) for line in lines]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"a line has no {OFFSET}") from error
    return pa.chunked_array([offsets], pa.int64())
