"""Consume queues: which there are, and each one's minimum and maximum offset (`ConsumeQueue`, `BatchConsumeQueue`)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile, list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles, list_mapped_files
from rmqtool.base.tolerant import ReadScope
from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import Version
from rmqtool.store.queue_minimum import Offsets, SimpleQueue, batch_min_offset, end_of_batch
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, Store

Kind = Literal["simple", "batch"]

_QUEUE_ID = re.compile(r"\d{1,9}", re.ASCII)
_RECOVERED_FILES = 3  # ConsumeQueue#recover looks at the last three
_READ_UNITS = 200  # so many take no longer to read than one: they are a page
_READ_WHOLE = 1 << 16  # a file up to this size is read as the broker reads it, a larger one searched, bytes


class UnitFormat(NamedTuple):
    """How queues of one kind are stored: below which directory of the store, and the broker's own test of each unit."""

    directory: str
    dtype: np.dtype[np.void]
    is_written: Callable[[NDArray[np.void]], NDArray[np.bool_]]

    def decode(self, data: bytes) -> NDArray[np.void]:
        """View `data` as whole units; a partial last unit is left out."""
        return np.frombuffer(data, self.dtype, count=len(data) // self.dtype.itemsize)


UNIT_FORMATS: dict[Kind, UnitFormat] = {
    "simple": UnitFormat(CONSUME_QUEUE, consume_queue.UNIT_DTYPE, consume_queue.is_written),
    "batch": UnitFormat(BATCH_CONSUME_QUEUE, batch_consume_queue.UNIT_DTYPE, batch_consume_queue.is_written),
}


@dataclass(frozen=True)
class Queue:
    """One consume queue on disk."""

    topic: str
    queue_id: int
    kind: Kind
    files: MappedFiles

    @property
    def format(self) -> UnitFormat:
        """How its units are stored."""
        return UNIT_FORMATS[self.kind]

    @property
    def unit_size(self) -> int:
        """Size of a unit, bytes."""
        return self.format.dtype.itemsize


@dataclass(frozen=True)
class QueueRange:
    """What a broker reports for a queue: offsets (the maximum exclusive), and where its last unit points, bytes.

    `expired` is set when every unit points below the commit log: the minimum is then the broker's choice.
    """

    min_offset: int
    max_offset: int
    last_physical_offset: int | None = None
    expired: bool = False


def list_queues(store: Store, part: ReadScope = nullcontext) -> Iterator[Queue]:
    """Every queue directory, by topic and number; names that are no number are skipped, as the broker does.

    Each directory and each file is a `part`.
    """
    for kind, units in UNIT_FORMATS.items():
        for topic in _directories_in(store.root / units.directory, part):
            numbered = [entry for entry in _directories_in(Path(topic.path), part) if _QUEUE_ID.fullmatch(entry.name)]
            for entry in sorted(numbered, key=lambda entry: int(entry.name)):
                yield Queue(topic.name, int(entry.name), kind, list_mapped_files(Path(entry.path), part=part))


def has_light_queues(store: Store, part: ReadScope = nullcontext) -> bool:
    """Whether some topic's directory is one of light queues; the directory above them is a `part`."""
    entries: list[os.DirEntry[str]] = []
    with part():
        entries = list_directory(store.root / CONSUME_QUEUE)
    return any(entry.name.startswith(LMQ_PREFIX) for entry in entries)


def _directories_in(path: Path, part: ReadScope) -> list[os.DirEntry[str]]:
    entries: list[os.DirEntry[str]] = []
    with part():
        entries = list_directory(path)
    found = []
    for entry in entries:
        with part():
            if entry.is_dir():
                found.append(entry)
    return found


def queue_range(queue: Queue, log_min_offset: int, version: Version, min_offset: int = 0) -> QueueRange:
    """The range of a queue's files as they stand; `log_min_offset` is the commit log's minimum, -1 without a file.

    `min_offset` is the queue's minimum so far, which stays when no unit is found; a broker that starts begins with 0.
    """
    files = queue.files.files
    if not files:
        return QueueRange(0 if queue.kind == "simple" else -1, 0)
    number, last = _recovered(queue)
    first = last if number == 0 else _WrittenFile(queue, files[0], whole=True)
    if queue.kind == "simple":
        max_offset = last.start_offset // queue.unit_size + last.count
        last_physical_offset = None if last.last is None else int(last.last["physical_offset"])
        return _simple_range(first, QueueRange(min_offset, max_offset, last_physical_offset), log_min_offset, version)
    if last.count == 0 and number > 0:  # BatchConsumeQueue#reviseMaxOffsetInQueue
        last = _WrittenFile(queue, files[number - 1], whole=True)
    return _batch_range(first, last, log_min_offset)


def written_end(queue: Queue) -> tuple[int, int]:
    """Where the units end that a start keeps: number of the last file kept and units in it; (-1, 0) without a file."""
    if not queue.files.files:
        return -1, 0
    number, last = _recovered(queue)
    return number, last.count


def moved_range(queue: Queue, known: QueueRange, log_min_offset: int, version: Version) -> QueueRange:
    """The range of a queue of which leading files are gone since it was `known`, or whose log begins later."""
    files = queue.files.files
    written = 0
    if queue.kind == "simple" and files and known.last_physical_offset is not None:
        units = known.max_offset - files[0].start_offset // queue.unit_size
        written = min(files[0].size // queue.unit_size, units)
    if written <= 0:
        return queue_range(queue, log_min_offset, version, known.min_offset)
    return _simple_range(_WrittenFile(queue, files[0], count=written), known, log_min_offset, version)


class _WrittenFile:
    """The written units at the head of one file; a file before the last one is taken to be written as a `whole`.

    `count` says how many are written where that is known already.
    """

    def __init__(self, queue: Queue, mapped: MappedFile, *, whole: bool = False, count: int | None = None) -> None:
        self.start_offset = mapped.start_offset
        self._format = queue.format
        self._unit_size = queue.unit_size
        self._path = mapped.path
        self.room = mapped.size // queue.unit_size
        with InputFile(mapped.path) as file:
            known = self.room if whole else count
            self.count = self._count_written(file) if known is None else known
            self.last = self.read(file, self.count - 1) if self.count else None

    @contextmanager
    def offsets(self) -> Iterator[Offsets]:
        """The physical offsets of the units, those of a large file read as they are asked for."""
        with InputFile(self._path) as file:
            if file.size > _READ_WHOLE:
                yield _StoredOffsets(self, file)
            else:
                yield self._format.decode(file.read(0, self.count * self._unit_size))["physical_offset"]

    def unit(self, number: int) -> np.void:
        """One unit."""
        with InputFile(self._path) as file:
            return self.read(file, number)

    def read(self, file: InputFile, number: int) -> np.void:
        """The same, of the file that is open."""
        size = self._unit_size
        unit: np.void = self._format.decode(file.read(number * size, size))[0]
        return unit

    def _count_written(self, file: InputFile) -> int:
        """Units before the first that is not written; in a large file they are taken to be in one piece."""
        if file.size <= _READ_WHOLE:
            written = self._format.is_written(self._format.decode(file.read(0, file.size)))
            return len(written) if written.all() else int(np.argmin(written))
        if self.room and self._is_written(file, self.room - 1):
            return self.room
        low, high = 0, self.room
        while high - low > _READ_UNITS:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._is_written(file, middle) else (low, middle)
        written = self._format.is_written(
            self._format.decode(file.read(low * self._unit_size, (high - low) * self._unit_size))
        )
        return low + (len(written) if written.all() else int(np.argmin(written)))

    def _is_written(self, file: InputFile, number: int) -> bool:
        size = self._unit_size
        return bool(self._format.is_written(self._format.decode(file.read(number * size, size)))[0])


class _StoredOffsets:
    def __init__(self, units: _WrittenFile, file: InputFile) -> None:
        self._units = units
        self._file = file

    def __len__(self) -> int:
        return self._units.count

    def __getitem__(self, number: int) -> np.int64:
        offset: np.int64 = self._units.read(self._file, number)["physical_offset"]
        return offset


def _recovered(queue: Queue) -> tuple[int, _WrittenFile]:
    """The last file that a start keeps, and its number: that of the last three where the written units end."""
    files = queue.files.files
    number = max(0, len(files) - _RECOVERED_FILES)
    found = _WrittenFile(queue, files[number])
    while found.count == found.room and number + 1 < len(files):
        number += 1
        found = _WrittenFile(queue, files[number])
    return number, found


def _simple_range(first: _WrittenFile, known: QueueRange, log_min_offset: int, version: Version) -> QueueRange:
    """`known` with the minimum that it has when the queue begins with the file `first`."""
    last, size = known.last_physical_offset, consume_queue.UNIT_SIZE
    with first.offsets() as offsets:
        units = SimpleQueue(first.start_offset, offsets, known.max_offset * size, last, known.min_offset * size)
        min_offset = units.min_offset(log_min_offset, version)
    return QueueRange(min_offset, known.max_offset, last, units.is_expired(log_min_offset))


def _batch_range(first: _WrittenFile, last: _WrittenFile, log_min_offset: int) -> QueueRange:
    with first.offsets() as offsets:
        min_offset = batch_min_offset(offsets, first.unit, log_min_offset)
    if last.last is None:
        return QueueRange(min_offset, 0)
    return QueueRange(min_offset, end_of_batch(last.last), int(last.last["physical_offset"]))
