"""One CSV or NDJSON file of messages, compressed as a whole where that is wanted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rmqtool.export.file_sink import new_sink
from rmqtool.export.options import ExportOptions
from rmqtool.export.sink import output_errors
from rmqtool.export.text_rows import TextRows
from rmqtool.scan.json_lines import text_of

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
