"""The side table `_damaged/`: the raw bytes of damaged extents."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import file_at
from rmqtool.export.file_sink import LocalSink, RemoteSink, new_sink
from rmqtool.export.options import Target
from rmqtool.export.sink import DataFile, abandon, output_errors
from rmqtool.scan.events import Damage
from rmqtool.store.splits import Split

DAMAGED_FOLDER = "_damaged"
TAIL_MARK = "tail"
"""In the name of a file that holds a torn end of a log: the next run, which reads it again, replaces it."""

PIECE_BYTES = 8 << 20
"""A longer extent becomes several rows, bytes; as many zeros or more, one row without data."""

_BUFFERED_BYTES = 32 << 20
_ROW_BYTES = 512  # that a row costs beside its data
_SCHEMA = pa.schema(
    [
        pa.field("store", pa.string(), nullable=False),
        pa.field("physical_offset", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("extent_offset", pa.int64(), nullable=False),
        pa.field("extent_size", pa.int64(), nullable=False),
        pa.field("data", pa.binary()),
    ]
)


class DamagedTable:
    """One file of the side table, made when the first extent comes."""

    def __init__(self, split: Split, target: Target, names: tuple[str, str, str], *, tail: bool, raw: bool) -> None:
        """`names` are how hidden and final names begin, and how final names end."""
        hidden, final, run = names
        self._split = split
        self._raw = raw
        suffix = f"-{TAIL_MARK}" if tail else ""
        self._temporary = f"{hidden}-damaged{suffix}.parquet"
        self._path = f"{DAMAGED_FOLDER}/{final}{suffix}-{run}.parquet"
        self._file = target.file(self._temporary, self._path)
        self._sink: LocalSink | RemoteSink | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[dict[str, object]] = []
        self._bytes = 0
        self._count = 0

    def add(self, damage: Damage) -> None:
        """Add an extent with its bytes, if they are wanted; of one that no file holds they are null.

        Of a long stretch of zeros, as in a file that a broker allocated and did not fill, they are empty.
        """
        start, end = damage.physical_offset, damage.physical_offset + damage.size
        if damage.reason == "missing" or not self._raw:
            self._add_piece(damage, start, damage.size, None)
            return
        while start < end:
            size = self._zeros(start, end)
            is_zero = size >= PIECE_BYTES
            if not is_zero:
                size = min(PIECE_BYTES, end - start)
            self._add_piece(damage, start, size, b"" if is_zero else self._read(start, size))
            start += size

    def _add_piece(self, damage: Damage, start: int, size: int, data: bytes | None) -> None:
        piece = {"store": self._split.store, "physical_offset": start, "size": size, "reason": damage.reason}
        extent = {"extent_offset": damage.physical_offset, "extent_size": damage.size}
        self._rows.append({**piece, **extent, "data": data})
        self._bytes += _ROW_BYTES + len(data or b"")
        if self._bytes >= _BUFFERED_BYTES:
            self._flush()

    def close(self) -> list[DataFile]:
        """Write the remaining rows; returns the file, or nothing when there was no damage."""
        self._flush()
        if self._writer is None or self._sink is None:
            return []
        with output_errors(self._file):
            self._writer.close()
            size, crc = self._sink.finish()
        return [DataFile(self._temporary, self._path, self._count, size, crc, self._split.store)]

    def abandon(self) -> None:
        """Let go of the file after an error."""
        if self._writer is not None and self._sink is not None:
            self._sink.abandon()
            abandon(self._writer)

    def _zeros(self, start: int, end: int) -> int:
        """How many bytes from physical offset `start` on are zeros, where a row of zeros is possible; else 0."""
        file = file_at(reversed(self._split.files), start) if end - start >= PIECE_BYTES else None
        if file is None:
            return 0
        position = start - file.start_offset
        with InputFile(file.path) as opened:
            return opened.next_data(position, position + end - start) - position

    def _read(self, start: int, size: int) -> bytes:
        file = file_at(reversed(self._split.files), start)
        if file is None:
            return b""
        with InputFile(file.path) as opened:
            return opened.read(start - file.start_offset, size)

    def _flush(self) -> None:
        if not self._rows:
            return
        with output_errors(self._file):
            if self._writer is None:
                self._sink = new_sink(self._file)
                dictionary = ["store", "reason"]
                self._writer = pq.ParquetWriter(
                    self._sink.target, _SCHEMA, compression="zstd", use_dictionary=dictionary
                )
            self._writer.write_table(pa.Table.from_pylist(self._rows, _SCHEMA))
        self._count += len(self._rows)
        self._rows, self._bytes = [], 0
