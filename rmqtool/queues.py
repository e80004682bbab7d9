"""Consume queues: which there are, and each one's minimum and maximum offset (`ConsumeQueue`, `BatchConsumeQueue`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rmqtool.files import InputFile, list_directory
from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.mapped_files import MappedFile, MappedFiles, list_mapped_files
from rmqtool.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, Store
from rmqtool.versions import EXPIRED_QUEUE_MIN_IS_MAX, Version

Kind = Literal["simple", "batch"]

_QUEUE_ID = re.compile(r"\d{1,9}", re.ASCII)
_DIRECTORIES: dict[Kind, str] = {"simple": CONSUME_QUEUE, "batch": BATCH_CONSUME_QUEUE}
_FORMATS = {"simple": consume_queue, "batch": batch_consume_queue}
_UNIT_SIZES: dict[Kind, int] = {"simple": consume_queue.UNIT_SIZE, "batch": batch_consume_queue.UNIT_SIZE}
_RECOVERED_FILES = 3  # ConsumeQueue#recover looks at the last three
_READ_WHOLE = 1 << 16  # a file up to this size is read as the broker reads it, a larger one searched, bytes


@dataclass(frozen=True)
class Queue:
    """One consume queue on disk."""

    topic: str
    queue_id: int
    kind: Kind
    files: MappedFiles

    @property
    def unit_size(self) -> int:
        """Size of a unit, bytes."""
        return _UNIT_SIZES[self.kind]


@dataclass(frozen=True)
class QueueRange:
    """What a broker reports for a queue: offsets (the maximum exclusive), and where its last unit points, bytes.

    `expired` is set when every unit points below the commit log: the minimum is then the broker's choice.
    """

    min_offset: int
    max_offset: int
    last_physical_offset: int | None = None
    expired: bool = False


def list_queues(store: Store) -> Iterator[Queue]:
    """Every queue directory, by topic and number; names that are no number are skipped, as the broker does."""
    for kind, directory in _DIRECTORIES.items():
        for topic in list_directory(store.root / directory):
            if not topic.is_dir():
                continue
            numbered = [entry for entry in list_directory(Path(topic.path)) if _QUEUE_ID.fullmatch(entry.name)]
            for entry in sorted(numbered, key=lambda entry: int(entry.name)):
                if entry.is_dir():
                    yield Queue(topic.name, int(entry.name), kind, list_mapped_files(Path(entry.path)))


def queue_range(queue: Queue, log_min_offset: int, version: Version) -> QueueRange:
    """The range of a queue's files as they stand; `log_min_offset` is the commit log's minimum, -1 without a file."""
    files = _written_files(queue)
    if not files:
        return QueueRange(0 if queue.kind == "simple" else -1, 0)
    if queue.kind == "batch":
        return _batch_range(files, log_min_offset)
    return _simple_range(files, log_min_offset, version)


class _WrittenFile:
    """The written units at the head of one file."""

    def __init__(self, queue: Queue, mapped: MappedFile) -> None:
        self.start_offset = mapped.start_offset
        self._format = _FORMATS[queue.kind]
        self._unit_size = queue.unit_size
        self._path = mapped.path
        self.room = mapped.size // queue.unit_size
        with InputFile(mapped.path) as file:
            self.count = self._count_written(file)
            self.first = self._unit(file, 0) if self.count else None
            self.last = self._unit(file, self.count - 1) if self.count else None

    def first_at(self, physical_offset: int) -> int | None:
        """Number of the first unit that points at `physical_offset` or behind it; offsets ascend."""
        if self.last is None or self.last["physical_offset"] < physical_offset:
            return None
        low, high = 0, self.count - 1
        with InputFile(self._path) as file:
            while low < high:
                middle = (low + high) // 2
                if self._unit(file, middle)["physical_offset"] < physical_offset:
                    low = middle + 1
                else:
                    high = middle
        return low

    def unit(self, number: int) -> np.void:
        """One unit."""
        with InputFile(self._path) as file:
            return self._unit(file, number)

    def _unit(self, file: InputFile, number: int) -> np.void:
        size = self._unit_size
        unit: np.void = self._format.decode_units(file.read(number * size, size))[0]
        return unit

    def _count_written(self, file: InputFile) -> int:
        """Units before the first that is not written; in a large file they are taken to be in one piece."""
        if file.size <= _READ_WHOLE:
            written = self._format.is_written(self._format.decode_units(file.read(0, file.size)))
            return len(written) if written.all() else int(np.argmin(written))
        if self.room and self._is_written(file, self.room - 1):
            return self.room
        low, high = 0, max(0, self.room - 1)
        while low < high:
            middle = (low + high) // 2
            if self._is_written(file, middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_written(self, file: InputFile, number: int) -> bool:
        size = self._unit_size
        return bool(self._format.is_written(self._format.decode_units(file.read(number * size, size)))[0])


def _written_files(queue: Queue) -> list[_WrittenFile]:
    """The first file and those that a start looks at, up to the one where the written units end."""
    recovered = queue.files.files[-_RECOVERED_FILES:]
    files = [_WrittenFile(queue, mapped) for mapped in queue.files.files[:1] if mapped not in recovered]
    for mapped in recovered:
        files.append(_WrittenFile(queue, mapped))
        if files[-1].count < files[-1].room:
            break
    return files


def _simple_range(files: list[_WrittenFile], log_min_offset: int, version: Version) -> QueueRange:
    first, last = files[0], files[-1]
    size = consume_queue.UNIT_SIZE
    max_offset = last.start_offset // size + last.count
    last_physical_offset = None if last.last is None else int(last.last["physical_offset"])
    if last_physical_offset is not None and last_physical_offset < log_min_offset:
        min_offset = max_offset if version >= EXPIRED_QUEUE_MIN_IS_MAX else 0
        return QueueRange(min_offset, max_offset, last_physical_offset, expired=True)
    number = first.first_at(log_min_offset)
    min_offset = 0 if number is None else first.start_offset // size + number
    return QueueRange(min_offset, max_offset, last_physical_offset)


def _batch_range(files: list[_WrittenFile], log_min_offset: int) -> QueueRange:
    last = files[-1]
    if last.last is None and len(files) > 1:  # BatchConsumeQueue#reviseMaxOffsetInQueue
        last = files[-2]
    if files[0].first is None or last.last is None:
        return QueueRange(-1, 0)
    max_offset = int(last.last["base_queue_offset"]) + int(last.last["batch_size"])
    number = files[0].first_at(log_min_offset)
    expired = files[0].unit(files[0].count - 1 if number is None else number)
    min_offset = int(expired["base_queue_offset"])
    if number is None:
        min_offset += int(expired["batch_size"])
    return QueueRange(min_offset, max_offset, int(last.last["physical_offset"]))
