"""One split of a log to hidden files: the work of each worker of every engine."""

from __future__ import annotations

import itertools
import os
import uuid
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.worker import keep_arrow_to_one_thread
from rmqtool.export.damaged import DamagedTable
from rmqtool.export.data_file import open_data_file
from rmqtool.export.options import ExportOptions, Target
from rmqtool.export.parquet_file import ParquetFile
from rmqtool.export.partitions import PARTITION_COLUMNS, partitions
from rmqtool.export.results import SUMMED_COLUMNS, SplitResult, Summing
from rmqtool.export.sink import DataFile, PartitionedRows
from rmqtool.export.text_file import TextFile
from rmqtool.scan.events import Damage
from rmqtool.store.message_reader import SplitReader
from rmqtool.store.splits import Split

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
            "the output is not to be seen here",
            file=task.target.folder,
            hint="every worker needs the stores and the output under the same paths: mount them everywhere",
        )
    keep_arrow_to_one_thread()
    return _SplitWriter(task).write()


class _SplitWriter:
    def __init__(self, task: SplitTask) -> None:
        self._task = task
        self._options = task.options
        keys = (PARTITION_COLUMNS[key] for key in self._options.partition_by)
        extra = (*SUMMED_COLUMNS, "physical_offset", *keys)
        is_parquet = self._options.format == "parquet"
        self._reader = SplitReader(task.split, self._options.query, extra, dictionary_encoded=is_parquet)
        # Another attempt at the same split must not meet this one's files.
        attempt = uuid.uuid4().hex
        self._name = f"{task.split_number:08d}-{attempt}"
        self._run = task.target.run + (f"-{attempt[:_ATTEMPT]}" if task.target.is_direct else "")
        self._final = f"part-{task.store_number:05d}-{task.split.start:020d}"
        self._file_numbers = itertools.count()
        self._result = SplitResult(task.split_number, task.split.store)
        self._summing = Summing(task.split.store)
        self._file: ParquetFile | TextFile | None = None
        self._span = (0, 0)  # physical offsets of the file's first and last rows
        self._rows = PartitionedRows()
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
                        self._result.totals.add_damage(event)
                        self._damaged[event.tail].add(event)
                    else:
                        self._add(event)
            self._close()
        except BaseException:
            self._abandon()
            raise
        return self._result

    def _add(self, batch: pa.RecordBatch) -> None:
        self._summing.add(batch)
        self._result.totals.rows += batch.num_rows
        messages = self._reader.to_messages(batch)
        offsets = np.asarray(batch.column("physical_offset"))
        if not self._options.partition_by:
            self._add_plain(messages, int(offsets[0]), int(offsets[-1]))
            return
        for directory, rows in partitions(batch, self._options.partition_by):
            rows_of_partition = messages.take(pa.array(rows))
            self._rows.add(directory, rows_of_partition, int(offsets[rows[0]]), int(offsets[rows[-1]]))
        if self._rows.is_full:
            self._write_partitions()

    def _add_plain(self, messages: pa.RecordBatch, first: int, last: int) -> None:
        if self._file is None:
            self._file = self._open(self._name, self._path())
            self._span = (first, last)
        self._span = (self._span[0], last)
        self._file.add(messages)

    def _write_partitions(self) -> None:
        for directory, partition in sorted(self._rows.take().items()):
            file_number = next(self._file_numbers)
            self._file = self._open(f"{self._name}-{file_number}", self._path(directory, file_number))
            for batch in partition.batches:
                self._file.add(batch)
            self._span = (partition.physical_offset_first, partition.physical_offset_last)
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
        path = self._path(directory, file_number)
        size, crc = self._file.close()
        store = self._task.split.store
        self._result.files.append(DataFile(self._file.path.name, path, self._file.rows, size, crc, store, *self._span))
        self._file = None

    def _close(self) -> None:
        self._close_file()
        self._write_partitions()
        for damaged in self._damaged.values():
            self._result.damaged += damaged.close()
        self._result.sums = self._summing.sums()
        reader = self._reader
        self._result.totals = replace(
            self._result.totals,
            messages=reader.messages,
            bytes=reader.bytes,
            excluded=reader.excluded,
            wrong_crc=reader.wrong_crc,
            not_decompressed=reader.not_decompressed,
            not_decoded=reader.not_decoded,
            decode_failures=reader.decode_failures,
            end=reader.end,
            last_record=reader.last_record,
        )

    def _abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
        for damaged in self._damaged.values():
            damaged.abandon()
