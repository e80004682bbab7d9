"""The files of a converted log. Functions raise OSError for what cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import ChangedError
from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.new_files import copy_file, create_file, set_time, write_all
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import BLANK_SIZE, PREFIX_DTYPE, build_blank
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.salvage.conversion import MAX_LISTED, ConversionPlan
from rmqtool.salvage.entry_walk import Filling, LeftOut, Offsets, Taken
from rmqtool.salvage.write_log import write_sparse
from rmqtool.scan.events import Blank, Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.inert_records import filling, inert_record
from rmqtool.scan.reader import scan_files
from rmqtool.store.commit_log import log_range

_POSITION = position_of(PREFIX_DTYPE, "physical_offset")  # in a message, bytes


def write_conversion(
    plan: ConversionPlan, directory: Path, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> None:
    """Write the new log into `directory`; modification times are the store times of the files' last messages.

    Raises ChangedError where the entries are not those of the plan any more.
    """
    conversion, done = plan.conversion, 0
    directory.mkdir(parents=True, exist_ok=True)
    for file in conversion.plain:
        _copy(file, directory / file.path.name, reading)
        done += file.size
        progress(done)
    if conversion.plain and conversion.entries:
        _end_plain(conversion.plain[-1], directory / conversion.plain[-1].path.name, reading)
    pieces = (piece for piece in conversion.walk().pieces(reading) if not isinstance(piece, LeftOut))
    moved = write_moved(
        pieces, directory, conversion.start, conversion.file_size, lambda entries: progress(done + entries)
    )
    if (moved.messages, moved.end) != (plan.messages, plan.end):
        raise ChangedError("the entries have changed while they were read", file=conversion.store.root)


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
    moved, done, writer = MovedLog(start, start), 0, _LogWriter(directory, start, file_size)
    try:
        for piece in pieces:
            if isinstance(piece, Filling):
                writer.fill(piece)
                moved.filled += _first(piece, MAX_LISTED - len(moved.filled))
                continue
            writer.add(piece.run, piece.offsets)
            moved.messages += len(piece.run)
            done += piece.run.size
            progress(done)
    finally:
        writer.close()
    moved.end = writer.end
    return moved


def _first(filling: Filling, count: int) -> list[tuple[int, int]]:
    return list(zip(filling.offsets[:count].tolist(), filling.sizes[:count].tolist(), strict=True))


def _copy(file: MappedFile, to: Path, reading: ReadPolicy) -> None:
    """Copy a plain log file; its modification time becomes the store time of its last message."""
    copy_file(file.path, to)
    timestamp = log_range([file], reading=reading).last_store_timestamp
    if timestamp:
        descriptor = create_file(to, file.size)
        try:
            set_time(descriptor, timestamp)
        finally:
            os.close(descriptor)


def _end_plain(file: MappedFile, to: Path, reading: ReadPolicy) -> None:
    """End the last plain file with a blank where it has none: a broker would never read on after it."""
    end, timestamp, is_ended, is_damaged = file.start_offset, 0, False, False
    for event in scan_files([file], reading=reading):
        is_ended = isinstance(event, Blank)
        is_damaged |= isinstance(event, Damage)
        if isinstance(event, RecordRun):
            end, is_damaged = event.physical_offset + event.size, False
            timestamp = int(event.headers.field("store_timestamp")[-1])
    rest = file.end_offset - end
    if is_ended or rest < BLANK_SIZE:
        return
    is_lost = is_damaged and timestamp
    parts = filling(end, rest, timestamp, ends_file=True) if is_lost else [(end, build_blank(rest))]
    descriptor = create_file(to, file.size)
    try:
        for offset, data in parts:
            write_all(descriptor, data, offset - file.start_offset)
        set_time(descriptor, timestamp or os.stat(file.path).st_mtime_ns // 1_000_000)
    finally:
        os.close(descriptor)


class _LogWriter:
    """One file after the other, each ended by a blank but for the last; `end` is past the last record."""

    def __init__(self, directory: Path, start: int, file_size: int) -> None:
        self.end = start
        self._directory = directory
        self._base = start
        self._file_size = file_size
        self._file_start = -1
        self._descriptor = -1
        self._timestamp = 0

    def add(self, run: RecordRun, offsets: Offsets) -> None:
        """Write messages at their new physical offsets."""
        starts = offsets - (offsets - self._base) % self._file_size
        edges = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(starts)]
        for first, stop in pairwise(edges):
            part = run[first:stop]
            self._write(int(offsets[first]), _with_offsets(part, offsets[first:stop]))
            self._timestamp = int(part.headers.field("store_timestamp")[-1])

    def fill(self, piece: Filling) -> None:
        """Write dummy records."""
        for offset, size in zip(piece.offsets.tolist(), piece.sizes.tolist(), strict=True):
            self._begin(offset)
            write_sparse(self._descriptor, inert_record(size, offset, piece.timestamp), offset - self._file_start)
            self.end, self._timestamp = offset + size, piece.timestamp

    def close(self) -> None:
        """Close the file, with the time of its last message."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                set_time(descriptor, self._timestamp)
            finally:
                os.close(descriptor)

    def _write(self, offset: int, data: memoryview | bytes) -> None:
        """Write records that are in one file."""
        self._begin(offset)
        write_all(self._descriptor, data, offset - self._file_start)
        self.end = offset + len(data)

    def _begin(self, offset: int) -> None:
        """Open the file of an offset, where it is not open."""
        start = offset - (offset - self._base) % self._file_size
        if start != self._file_start:
            self._open(start)

    def _open(self, start: int) -> None:
        if self._descriptor >= 0:
            position = self.end - self._file_start
            write_all(self._descriptor, build_blank(self._file_size - position), position)
        self.close()
        self._file_start = start
        self._descriptor = create_file(self._directory / file_name(start), self._file_size)


def _with_offsets(run: RecordRun, offsets: Offsets) -> memoryview:
    """The messages one after the other, each with its new physical offset."""
    data = run.block.slices(run.positions, run.message_sizes).buffers()[2]
    messages: NDArray[np.uint8] = np.frombuffer(data, np.uint8, int(run.message_sizes.sum())).copy()
    places = offsets[:, None] - offsets[0] + _POSITION + np.arange(8)
    messages[places] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    return messages.data
