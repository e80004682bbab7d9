"""One Parquet file of messages, gathered into row groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.base.memory import sized
from rmqtool.export.file_sink import new_sink
from rmqtool.export.options import ExportOptions
from rmqtool.export.sink import abandon, output_errors

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
