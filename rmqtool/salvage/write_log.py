"""The files of the new log: records copied, dummy records and blanks between them. Functions raise OSError."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.base.errors import ChangedError
from rmqtool.base.files import Closing, InputFile, RateLimit
from rmqtool.base.new_files import (
    COPY_SIZE,
    DirectCopy,
    copy_range,
    create_file,
    exceeds_page_cache,
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
from rmqtool.salvage.carve import Progress, Sources, no_progress
from rmqtool.salvage.inputs import Inputs
from rmqtool.salvage.layout import Layout, LogFile
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.inert_records import filling

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
            descriptor = create_file(path, plan.layout.file_size)
            try:
                with DirectCopy(path) if is_direct else nullcontext() as direct:
                    _write(file, descriptor, sources, direct, limit, add)
                _fill(file, descriptor, plan.layout.file_size)
                set_time(descriptor, file.timestamp)
            finally:
                os.close(descriptor)


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
            write_sparse(descriptor, data, offset - file.start_offset)
    if file.blank is not None:
        position = file.blank - file.start_offset
        write_all(descriptor, build_blank(file_size - position), position)


def write_sparse(descriptor: int, data: bytes, position: int) -> None:
    """Write what is not zero: whole pages of a dummy record's body stay holes. Raises OSError."""
    view = memoryview(data)
    for start in range(0, len(data), _PAGE):
        page = view[start : start + _PAGE]
        if any(page):
            write_all(descriptor, page, position + start)


_PHYSICAL_OFFSET = position_of(PREFIX_DTYPE, "physical_offset")
_QUEUE_OFFSET = position_of(PREFIX_DTYPE, "queue_offset")
_LONG = np.arange(8)

Offsets = NDArray[np.int64]


def begin_of(layout: Layout, inputs: Inputs) -> int:
    """Where the new log begins, bytes: with the first file after all that the sources have."""
    size = layout.file_size
    last = max([file.start_offset for file in layout.files], default=-size)
    named = (file.start_offset for file in inputs.files if file.start_offset is not None)
    return (max([last, *named]) // size + 1) * size


def places(sizes: Offsets, end: int, file_end: int, file_size: int) -> Iterator[tuple[slice, int]]:
    """Rows of records that follow each other in one file, and where the first of them begins in the log, bytes.

    The log ends at `end`, its last file at `file_end`. A record that leaves no room for a blank goes to the next file.
    """
    ends, row = np.cumsum(sizes), 0
    while row < len(sizes):
        done = int(ends[row - 1]) if row else 0
        stop = int(np.searchsorted(ends, done + file_end - end - BLANK_SIZE, "right"))
        if stop > row:
            yield slice(row, stop), end
            end, row = end + int(ends[stop - 1]) - done, stop
        if row < len(sizes):
            end, file_end = file_end, file_end + file_size


class CompactLog(Closing):
    """The files of the log in `directory`, from physical offset `start_offset` on, each of `file_size` bytes."""

    def __init__(self, directory: Path, start_offset: int, file_size: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.end = start_offset
        self._directory = directory
        self._file_size = file_size
        self._file_end = start_offset  # no file is open yet
        self._descriptor = -1
        self._timestamp = 0  # of the last record in the open file

    def add(self, frames: RecordRun, queue_offsets: Offsets | None) -> Offsets:
        """Append the records of a run, with other `queue_offsets` where they are given; their physical offsets."""
        sizes = frames.message_sizes.astype(np.int64)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        pieces = list(places(sizes, self.end, self._file_end, self._file_size))
        offsets = np.concatenate([first + starts[rows] - starts[rows][0] for rows, first in pieces])
        data = _bytes_of(frames)
        _put(data, starts + _PHYSICAL_OFFSET, offsets)
        if queue_offsets is not None:
            _put(data, starts + _QUEUE_OFFSET, queue_offsets)
        _renew_crcs(data, frames, starts, ends)
        times = frames.headers.field("store_timestamp")
        for rows, first in pieces:
            self._write(data[starts[rows.start] : ends[rows.stop - 1]], first, int(times[rows.stop - 1]))
        return offsets

    def _write(self, data: NDArray[np.uint8], offset: int, timestamp: int) -> None:
        if offset >= self._file_end:
            if self._descriptor >= 0:
                blank = build_blank(self._file_end - self.end)
                write_all(self._descriptor, blank, self.end - self._file_end + self._file_size)
            self.close()
            self._descriptor = create_file(self._directory / file_name(offset), self._file_size)
            self._file_end = offset + self._file_size
        write_all(self._descriptor, data.data, offset - self._file_end + self._file_size)
        self.end, self._timestamp = offset + len(data), max(timestamp, 1)

    def close(self) -> None:
        """Close the open file, whose time is that of its last record."""
        if self._descriptor >= 0:
            try:
                set_time(self._descriptor, self._timestamp)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


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
