"""The files of a converted log. Functions raise OSError for what cannot be written."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import ChangedError
from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.new_files import copy_file, create_file, set_time, write_all
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import PREFIX_DTYPE, build_blank
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.salvage.conversion import Conversion, ConversionPlan, Offsets, Taken, walk
from rmqtool.scan.frames import RecordRun

_POSITION = position_of(PREFIX_DTYPE, "physical_offset")  # in a message, bytes


def write_conversion(
    plan: ConversionPlan, directory: Path, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> None:
    """Write the new log into `directory`; modification times are the store times of the files' last messages.

    Raises ChangedError where the entries are not those of the plan any more.
    """
    conversion, done, messages = plan.conversion, 0, 0
    directory.mkdir(parents=True, exist_ok=True)
    for file in conversion.plain:
        copy_file(file.path, directory / file.path.name)
        done += file.size
        progress(done)
    writer = _LogWriter(directory, conversion)
    try:
        for found in walk(conversion, reading=reading):
            if isinstance(found, Taken):
                writer.add(found.run, found.offsets)
                messages += len(found.run)
                done += found.run.size
                progress(done)
    finally:
        writer.close()
    if (messages, writer.end) != (plan.messages, plan.end):
        raise ChangedError("the entries have changed while they were read", file=conversion.store.root)


class _LogWriter:
    """One file after the other, each ended by a blank but for the last; `end` is behind the last message."""

    def __init__(self, directory: Path, conversion: Conversion) -> None:
        self.end = conversion.start
        self._directory = directory
        self._base = conversion.start
        self._file_size = conversion.file_size
        self._file_start = -1
        self._descriptor = -1
        self._timestamp = 0

    def add(self, run: RecordRun, offsets: Offsets) -> None:
        """Write messages at their new physical offsets."""
        starts = offsets - (offsets - self._base) % self._file_size
        edges = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(starts)]
        for first, stop in pairwise(edges):
            if starts[first] != self._file_start:
                self._open(int(starts[first]))
            part = run[first:stop]
            data = _with_offsets(part, offsets[first:stop])
            write_all(self._descriptor, data, int(offsets[first]) - self._file_start)
            self.end = int(offsets[stop - 1] + part.message_sizes[-1])
            self._timestamp = int(part.headers.field("store_timestamp")[-1])

    def close(self) -> None:
        """Close the file, with the time of its last message."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                set_time(descriptor, self._timestamp)
            finally:
                os.close(descriptor)

    def _open(self, start: int) -> None:
        if self._descriptor >= 0:
            position = self.end - self._file_start
            write_all(self._descriptor, build_blank(self._file_size - position), position)
        self.close()
        self._file_start = start
        self._descriptor = create_file(self._directory / file_name(start), self._file_size)


def _with_offsets(run: RecordRun, offsets: Offsets) -> memoryview:
    """The messages one behind the other, each with its new physical offset."""
    data = run.block.slices(run.positions, run.message_sizes).buffers()[2]
    messages: NDArray[np.uint8] = np.frombuffer(data, np.uint8, int(run.message_sizes.sum())).copy()
    places = offsets[:, None] - offsets[0] + _POSITION + np.arange(8)
    messages[places] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    return messages.data
