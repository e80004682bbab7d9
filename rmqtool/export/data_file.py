"""A file of messages that is being written, in the format of the export."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rmqtool.export.options import ExportOptions
from rmqtool.export.parquet_file import ParquetFile
from rmqtool.export.text_file import TextFile


def open_data_file(path: Path, schema: pa.Schema, options: ExportOptions) -> ParquetFile | TextFile:
    """A new file for batches of `schema`, the columns of the query."""
    return ParquetFile(path, schema, options) if options.format == "parquet" else TextFile(path, options)
