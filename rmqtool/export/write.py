"""One split of a log to hidden files: the work of each worker of every engine."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile
from rmqtool.base.limits import sized
from rmqtool.base.mapped_files import file_at
from rmqtool.base.parallel import keep_arrow_to_one_thread
from rmqtool.base.times import rfc3339
from rmqtool.export.options import ExportOptions, PartitionKey, Target
from rmqtool.export.results import SUMMED_COLUMNS, SplitResult, Summing
from rmqtool.export.sink import DataFile, ParquetFile, TextFile, open_data_file
from rmqtool.scan.block import Damage
from rmqtool.store.message_reader import SplitReader
from rmqtool.store.splits import Split

DAMAGED_FOLDER = "_damaged"
TAIL_MARK = "tail"
"""In the name of a file that holds a torn end of a log: the next run, which reads it again, replaces it."""

PIECE_BYTES = 8 << 20
"""A longer extent becomes several rows, bytes; as many zeros or more, one row without data."""

_BUFFERED_BYTES = 8 << 20
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
        self._target = target.file(self._temporary, self._path)
        self._file: ParquetFile | None = None
        self._rows: list[dict[str, object]] = []
        self._bytes = 0

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
        if self._file is None:
            return []
        return [DataFile(self._temporary, self._path, self._file.rows, *self._file.close(), self._split.store)]

    def abandon(self) -> None:
        """Let go of the file after an error."""
        if self._file is not None:
            self._file.abandon()

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
        self._file = self._file or ParquetFile(self._target, _SCHEMA, ExportOptions())
        self._file.add(pa.RecordBatch.from_pylist(self._rows, _SCHEMA))
        self._rows, self._bytes = [], 0


PARTITION_COLUMNS: dict[PartitionKey, str] = {
    "topic": "topic",
    "date": "store_timestamp",
    "hour": "store_timestamp",
    "queue": "queue_id",
}
"""The column that gives a partition; date and hour are those of the store timestamp in UTC."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_UNSAFE = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')  # as Spark, whose readers and others decode %25
_MAX_BYTES = 180  # of a name in UTF-8; file systems take 255


def directory_value(value: str) -> str:
    """A value as part of a directory's name; a long one is cut and gets its digest, which keeps it distinct."""
    if not value:
        return NO_VALUE
    escaped = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", value)
    encoded = escaped.encode()
    if len(encoded) <= _MAX_BYTES:
        return escaped
    digest = hashlib.blake2b(value.encode(), digest_size=8).hexdigest()
    start = encoded[: _MAX_BYTES - 2 * 8 - 1].decode(errors="ignore")
    return f"{re.sub('%[0-9A-F]?$', '', start)}~{digest}"


def partitions(batch: pa.RecordBatch, keys: Sequence[PartitionKey]) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Directory and rows, ascending, of each partition in a batch; no key: all rows in ``""``."""
    if not keys:
        yield "", np.arange(batch.num_rows)
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    names = [""]
    for key in keys:
        values, inverse = _coded(batch, key)
        combined = codes * len(values) + inverse
        present, codes = np.unique(combined, return_inverse=True)
        texts = [_directory(key, value) for value in values]
        names = [f"{names[code // len(values)]}{texts[code % len(values)]}/" for code in present.tolist()]
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for partition, name in enumerate(names):
        yield name, order[bounds[partition] : bounds[partition + 1]]


def _coded(batch: pa.RecordBatch, key: PartitionKey) -> tuple[list[Any], NDArray[np.int64]]:
    """The distinct values of a key, and which of them each row has."""
    column = batch.column(PARTITION_COLUMNS[key])
    if key == "topic":
        dictionary_encoded = column.dictionary_encode()
        return dictionary_encoded.dictionary.to_pylist(), np.asarray(dictionary_encoded.indices).astype(np.int64)
    values = np.asarray(column).astype(np.int64)
    if key == "date":
        values = values // _DAY_MS
    elif key == "hour":
        values = values // _HOUR_MS % 24
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct.tolist(), inverse.astype(np.int64)


def _directory(key: PartitionKey, value: str | int) -> str:
    match key:
        case "topic":
            text = directory_value(str(value))
        case "date":
            time = rfc3339(int(value) * _DAY_MS)
            text = time[:10] if time else NO_VALUE
        case "hour":
            text = f"{value:02d}"
        case "queue":
            text = str(value)
    return f"by_{key}={text}"


_ATTEMPT = 8  # characters that tell an attempt from others


@dataclass(frozen=True)
class SplitTask:
    """One split to write; `split_number` and `store_number` count splits and stores of the plan, from 0."""

    split_number: int
    store_number: int
    split: Split
    options: ExportOptions
    target: Target


def write_split(task: SplitTask) -> SplitResult:
    """Write one split; raises UnreadableError, and RmqtoolError when the output cannot be written."""
    if not task.target.is_direct and not os.path.isdir(task.target.folder):
        raise RmqtoolError(
            "the output is not visible here",
            file=task.target.folder,
            hint="every worker needs the stores and the output under the same paths: mount them everywhere",
        )
    keep_arrow_to_one_thread()
    return _SplitWriter(task).write()


_PARTITIONED_BYTES = 128 << 20  # of all partitions together: what a split of usual size has, so each is one file
_LEAST_PARTITIONED = 16 << 20


@dataclass
class _Partition:
    """Rows of one directory, held until those of all are too many, and the physical offsets of the first and last."""

    batches: list[pa.RecordBatch]
    first: int
    last: int


class _SplitWriter:
    def __init__(self, task: SplitTask) -> None:
        self._task = task
        self._options = task.options
        keys = (PARTITION_COLUMNS[key] for key in self._options.partition_by)
        extra = (*SUMMED_COLUMNS, "physical_offset", *keys)
        is_parquet = self._options.format == "parquet"
        # Another attempt at the same split must not meet this one's files.
        attempt = uuid.uuid4().hex
        self._name = f"{task.split_number:08d}-{attempt}"
        self._run = task.target.run + (f"-{attempt[:_ATTEMPT]}" if task.target.is_direct else "")
        of_log = f"-{task.split.other.place}-{task.split_number:06d}" if task.split.other else ""
        self._final = f"part-{task.store_number:05d}{of_log}-{task.split.start:020d}"
        self._file_numbers = itertools.count()
        self._result = SplitResult(task.split_number, task.split.store)
        self._totals = self._result.totals
        self._reader = SplitReader(task.split, self._options.query, extra, self._totals, dictionary_encoded=is_parquet)
        self._summing = Summing(task.split.store)
        self._file: ParquetFile | TextFile | None = None
        self._span = (0, 0)  # physical offsets of the file's first and last rows
        self._partitions: dict[str, _Partition] = {}
        self._held = 0  # bytes of all partitions
        raw = self._options.query.redaction is None  # bytes that are no message may hold anything
        self._damaged = {
            tail: DamagedTable(task.split, task.target, (self._name, self._final, self._run), tail=tail, raw=raw)
            for tail in (False, True)
        }

    def write(self) -> SplitResult:
        """Read the split once, and write its messages and damage."""
        try:
            with closing(self._reader.events()) as events:  # a decoder ends with them
                for event in events:
                    if isinstance(event, Damage):
                        self._totals.add_damage(event)
                        self._damaged[event.tail and not self._task.split.other].add(event)
                    else:
                        self._add(event)
            self._close()
        except BaseException:
            if self._file is not None:
                self._file.abandon()
            for damaged in self._damaged.values():
                damaged.abandon()
            raise
        return self._result

    def _add(self, batch: pa.RecordBatch) -> None:
        self._summing.add(batch)
        self._totals.rows += batch.num_rows
        messages = self._reader.to_messages(batch)
        offsets = np.asarray(batch.column("physical_offset"))
        if not self._options.partition_by:
            self._add_plain(messages, int(offsets[0]), int(offsets[-1]))
            return
        for directory, rows in partitions(batch, self._options.partition_by):
            first, last = int(offsets[rows[0]]), int(offsets[rows[-1]])
            partition = self._partitions.setdefault(directory, _Partition([], first, last))
            partition.batches.append(messages.take(pa.array(rows)))
            partition.last = last
            self._held += partition.batches[-1].nbytes
        if self._held >= sized(_PARTITIONED_BYTES, _LEAST_PARTITIONED):
            self._write_partitions()

    def _add_plain(self, messages: pa.RecordBatch, first: int, last: int) -> None:
        if self._file is None:
            self._file = self._open(self._name, self._path())
            self._span = (first, last)
        self._span = (self._span[0], last)
        self._file.add(messages)

    def _write_partitions(self) -> None:
        held, self._partitions, self._held = self._partitions, {}, 0
        for directory, partition in sorted(held.items()):
            file_number = next(self._file_numbers)
            self._file = self._open(f"{self._name}-{file_number}", self._path(directory, file_number))
            for batch in partition.batches:
                self._file.add(batch)
            self._span = (partition.first, partition.last)
            self._close_file(directory, file_number)

    def _open(self, hidden: str, final: str) -> ParquetFile | TextFile:
        path = self._task.target.file(f"{hidden}{self._options.suffix}", final)
        return open_data_file(path, self._reader.schema, self._options)

    def _path(self, directory: str = "", file_number: int = 0) -> str:
        """The path of a file below the output."""
        return f"{directory}{self._final}-{file_number:05d}-{self._run}{self._options.suffix}"

    def _close_file(self, directory: str = "", file_number: int = 0) -> None:
        if self._file is None:
            return
        file, path, store = self._file, self._path(directory, file_number), self._task.split.store
        log = self._task.split.other.name if self._task.split.other else None
        self._result.files.append(DataFile(file.path.name, path, file.rows, *file.close(), store, *self._span, log))
        self._file = None

    def _close(self) -> None:
        self._close_file()
        self._write_partitions()
        for damaged in self._damaged.values():
            self._result.damaged += damaged.close()
        self._result.sums = self._summing.sums()
