"""The files of the new log: records copied, dummy records and blanks between them. Functions raise OSError."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.base.errors import ChangedError, WrongKindError
from rmqtool.base.files import Closing, InputFile, Progress, RateLimit, no_progress
from rmqtool.base.new_files import (
    COPY_SIZE,
    DirectCopy,
    copy_range,
    create_file,
    exceeds_page_cache,
    new_file,
    set_time,
    write_all,
)
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import (
    BLANK_SIZE,
    CRC32_PROPERTY_SIZE,
    CRC_MASK,
    PREFIX_DTYPE,
    build_blank,
    build_crc32_property,
)
from rmqtool.salvage.carve import Sources
from rmqtool.salvage.layout import MOST_LISTED, LogFile
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.inert_records import SMALLEST_INERT, filling, inert_record

_PAGE = 4096


def write_log(
    plan: SalvagePlan, directory: Path, limit: RateLimit | None = None, progress: Progress = no_progress
) -> None:
    """Write the files into `directory`; their modification times are the store times of their last messages.

    Raises ChangedError where a source has become shorter than it was.
    """
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(done)

    directory.mkdir(parents=True, exist_ok=True)
    is_direct = exceeds_page_cache(plan.size)
    with Sources(plan.inputs.files, plan.layout.file_size) as sources:
        for file in plan.layout.files:
            path = directory / file_name(file.start_offset)
            with new_file(path, plan.layout.file_size) as descriptor:
                with DirectCopy(path) if is_direct else nullcontext() as direct:
                    _write(file, descriptor, sources, direct, limit, add)
                _fill(file, descriptor, plan.layout.file_size)
                set_time(descriptor, file.timestamp)


def _write(
    file: LogFile,
    descriptor: int,
    sources: Sources,
    direct: DirectCopy | None,
    limit: RateLimit | None,
    progress: Progress,
) -> None:
    """Copy the records of a file, with `direct` as far as that can be done."""
    for extent in file.copies:
        source, start = sources.file(int(extent["input"])), int(extent["position"])
        shift = int(extent["physical_offset"]) - file.start_offset - start
        for position, size in _pieces(start, start + int(extent["size"])):
            if limit:
                limit.spend(size)
            done = direct.copy(source, position, size, position + shift) if direct else 0
            _copy(source, position + done, size - done, descriptor, position + done + shift)
            progress(size)


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Position and size of the pieces in which an extent is copied: whole pages, but for the first and the last one."""
    borders = sorted(
        {start, end, *(at for at in (-(-start // _PAGE) * _PAGE, end // _PAGE * _PAGE) if start < at < end)}
    )
    for low, high in pairwise(borders):
        for position in range(low, high, COPY_SIZE):
            yield position, min(COPY_SIZE, high - position)


def _copy(source: InputFile, position: int, size: int, descriptor: int, to: int) -> None:
    done = copy_range(source, position, size, descriptor, to)
    if done < size:
        rest = source.read(position + done, size - done)
        if len(rest) < size - done:
            raise ChangedError("the file became shorter while it was read", file=source.path)
        write_all(descriptor, rest, to + done)


def _fill(file: LogFile, descriptor: int, file_size: int) -> None:
    for gap in file.gaps:
        for offset, data in filling(gap.physical_offset, gap.size, gap.timestamp, ends_file=False):
            _write_sparse(descriptor, data, offset - file.start_offset)
    if file.blank is not None:
        position = file.blank - file.start_offset
        write_all(descriptor, build_blank(file_size - position), position)


def _write_sparse(descriptor: int, data: bytes, position: int) -> None:
    """Write what is not zero: whole pages of a dummy record's body stay holes."""
    view = memoryview(data)
    for start in range(0, len(data), _PAGE):
        page = view[start : start + _PAGE]
        if any(page):
            write_all(descriptor, page, position + start)


_PHYSICAL_OFFSET = position_of(PREFIX_DTYPE, "physical_offset")
_QUEUE_OFFSET = position_of(PREFIX_DTYPE, "queue_offset")
_LONG = np.arange(8)
_LARGEST_INERT = 1 << 20  # bytes

Offsets = NDArray[np.int64]


class Filling(NamedTuple):
    """Dummy records in place of what is lost: physical offsets, sizes, and the store time of the message before."""

    offsets: Offsets
    sizes: Offsets
    timestamp: int

    def listed(self, most: int) -> list[tuple[int, int]]:
        """Physical offsets and sizes of the first ones."""
        return list(zip(self.offsets[:most].tolist(), self.sizes[:most].tolist(), strict=True))


class Taken(NamedTuple):
    """Messages, the physical offset of each in the new log, and their queue offsets there, where these change."""

    run: RecordRun
    offsets: Offsets
    queue_offsets: Offsets | None = None


class Placement:
    """Where records stand one after the other: room for a blank stays at the end of each file (`CommitLog`)."""

    def __init__(self, start: int, file_size: int) -> None:
        self.start = self.end = start
        self._file_size = file_size

    @property
    def files(self) -> int:
        """How many files there are."""
        return -(-(self.end - self.start) // self._file_size)

    def place(self, sizes: NDArray[np.intp]) -> Offsets:
        """The physical offsets of records; raises WrongKindError for one that no file can hold."""
        offsets, done = np.empty(len(sizes), np.int64), 0
        while done < len(sizes):
            file_end = self.start + ((self.end - self.start) // self._file_size + 1) * self._file_size
            ends = self.end + np.cumsum(sizes[done:])
            count = int(np.searchsorted(ends, file_end - BLANK_SIZE, "right"))
            if count:
                offsets[done : done + count] = ends[:count] - sizes[done : done + count]
                self.end = int(ends[count - 1])
                done += count
            elif sizes[done] > self._file_size - BLANK_SIZE:
                raise WrongKindError(f"a message of {sizes[done]} bytes is larger than a log file")
            else:
                self.end = file_end
        return offsets

    def next_file(self) -> None:
        """Go on in the next file, unless one begins here."""
        self.end += (self.start - self.end) % self._file_size

    def fill(self, size: int, timestamp: int) -> Filling:
        """Dummy records of about `size` bytes."""
        largest = min(_LARGEST_INERT, self._file_size - BLANK_SIZE)
        whole, rest = divmod(size, largest)
        sizes = np.array([largest] * whole + [max(rest, SMALLEST_INERT)] * (rest > 0), np.int64)
        return Filling(self.place(sizes), sizes, timestamp)


@dataclass
class MovedLog:
    """A log of moved messages, as it was written: `end` is past the last record, `filled` are its dummy records."""

    start: int
    end: int
    messages: int = 0
    filled: list[tuple[int, int]] = field(default_factory=list)  # the first ones: physical offsets and sizes


def write_moved(
    pieces: Iterable[Taken | Filling], directory: Path, start: int, file_size: int, progress: Progress = no_progress
) -> MovedLog:
    """Write messages and dummy records at their new places into files of `file_size` bytes, the first at `start`.

    `progress` gets the bytes of the sources that are done.
    """
    directory.mkdir(parents=True, exist_ok=True)
    moved, done = MovedLog(start, start), 0
    with _MovedFiles(directory, start, file_size) as files:
        for piece in pieces:
            if isinstance(piece, Filling):
                files.fill(piece)
                moved.filled += piece.listed(MOST_LISTED - len(moved.filled))
                continue
            files.add(piece)
            moved.messages += len(piece.run)
            done += piece.run.size
            progress(done)
    moved.end = files.end
    return moved


class _MovedFiles(Closing):
    """One file after the other, each ended by a blank but for the last; `end` is past the last record."""

    def __init__(self, directory: Path, start: int, file_size: int) -> None:
        self.end = start
        self._directory = directory
        self._start = start
        self._file_size = file_size
        self._file_start = -1
        self._descriptor = -1
        self._timestamp = 0  # of the last record in the open file

    def add(self, piece: Taken) -> None:
        """Write messages with their new offsets."""
        run, offsets = piece.run, piece.offsets
        ends = np.cumsum(run.message_sizes, dtype=np.int64)
        starts = ends - run.message_sizes
        data = _bytes_of(run)
        _put(data, starts + _PHYSICAL_OFFSET, offsets)
        if piece.queue_offsets is not None:
            _put(data, starts + _QUEUE_OFFSET, piece.queue_offsets)
        _renew_crcs(data, run, starts, ends)
        times = run.headers.field("store_timestamp")
        edges = np.flatnonzero(np.diff((offsets - self._start) // self._file_size)) + 1
        for first, stop in pairwise([0, *edges.tolist(), len(run)]):
            position = self._begin(int(offsets[first]))
            of_file = data[starts[first] : ends[stop - 1]].data
            write_all(self._descriptor, of_file, position)
            self.end, self._timestamp = int(offsets[first]) + len(of_file), max(int(times[stop - 1]), 1)

    def fill(self, piece: Filling) -> None:
        """Write dummy records."""
        for offset, size in zip(piece.offsets.tolist(), piece.sizes.tolist(), strict=True):
            position = self._begin(offset)
            _write_sparse(self._descriptor, inert_record(size, offset, piece.timestamp), position)
            self.end, self._timestamp = offset + size, piece.timestamp

    def close(self) -> None:
        """Close the file, with the time of its last record."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                set_time(descriptor, self._timestamp)
            finally:
                os.close(descriptor)

    def _begin(self, offset: int) -> int:
        """Open the file of an offset, where it is not open; the position in it."""
        position = (offset - self._start) % self._file_size
        if offset - position != self._file_start:
            if self._descriptor >= 0:
                end = self.end - self._file_start
                write_all(self._descriptor, build_blank(self._file_size - end), end)
            self.close()
            self._file_start = offset - position
            self._descriptor = create_file(self._directory / file_name(self._file_start), self._file_size)
        return position


def _bytes_of(frames: RecordRun) -> NDArray[np.uint8]:
    """The records as they are stored, one after the other, to be changed."""
    _, _, values = frames.block.slices(frames.positions, frames.message_sizes).buffers()
    data: NDArray[np.uint8] = np.frombuffer(values, np.uint8, int(frames.message_sizes.sum())).copy()
    return data


def _put(data: NDArray[np.uint8], positions: Offsets, values: Offsets) -> None:
    """Write 64-bit numbers at `positions`."""
    data[positions[:, None] + _LONG] = values.astype(">i8").view(np.uint8).reshape(-1, len(_LONG))


def _renew_crcs(data: NDArray[np.uint8], frames: RecordRun, starts: Offsets, ends: Offsets) -> None:
    """Compute the CRCs again of records that hold their own: both offsets count in it."""
    view = data.data
    rows = frames.property_crcs.rows
    for start, end in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True):
        crc = zlib_ng.crc32(view[start : end - CRC32_PROPERTY_SIZE]) & CRC_MASK
        view[end - CRC32_PROPERTY_SIZE : end] = build_crc32_property(crc)
