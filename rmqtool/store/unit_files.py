"""The units of one consume queue, over all of its files, by their number from the queue's offset 0 on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import OpenFiles
from rmqtool.base.mapped_files import file_at
from rmqtool.formats.consume_queue import is_pre_blank
from rmqtool.store.consume_queues import Queue


class UnitFiles:
    """Reads units by number; where no file holds one, zeros are read.

    `start` is the number of the first unit that there is a file for.
    """

    def __init__(self, queue: Queue, open_files: OpenFiles, *, live: bool = False) -> None:
        self.queue = queue
        self.size = queue.unit_size
        self.dtype = queue.format.dtype
        self.is_written = queue.format.is_written
        self._files = queue.files.files
        self._open = open_files
        self._live = live
        self.start = self._files[0].start_offset // self.size if self._files else 0

    def read(self, first: int, count: int) -> bytes:
        """Units `first` to before ``first + count`` as stored."""
        position, end = first * self.size, (first + count) * self.size
        for file in self._files:
            if file.start_offset <= position and end <= file.end_offset:
                data = self._open.get(file.path).read(position - file.start_offset, end - position)
                return data if len(data) == end - position else data.ljust(end - position, b"\0")
        return self._read_pieces(position, end)

    def _read_pieces(self, position: int, end: int) -> bytes:
        data = bytearray(end - position)
        for file in self._files:
            low, high = max(position, file.start_offset), min(end, file.end_offset)
            if low < high:
                piece = self._open.get(file.path).read(low - file.start_offset, high - low)
                data[low - position : low - position + len(piece)] = piece
        return bytes(data)

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int, bool]]:
        """Units from `first` to before `stop` in pieces: numbers of the first and behind the last, and if in a file.

        Names tell where files begin, and may tell anything: what lies between two must not be gone through.
        """
        for file in self._files:
            low, high = file.start_offset // self.size, min(stop, -(-file.end_offset // self.size))
            if first < min(low, stop):
                yield first, min(low, stop), False
            if max(first, low) < high:
                yield max(first, low), high, True
            first = max(first, high)

    def units(self, first: int, count: int) -> NDArray[np.void]:
        """The same, decoded."""
        return np.frombuffer(self.read(first, count), self.dtype)

    @cached_property
    def data_end(self) -> int:
        """Number behind the last unit that is not all zeros; where a broker writes, the last one may be half there."""
        for mapped in reversed(self._files):
            end = self._open.get(mapped.path).data_end()
            if end:
                stop = (mapped.start_offset + end + self.size - 1) // self.size
                return stop - 1 if self._live else stop
        return self.start

    def bisect(self, physical_offset: int) -> int:
        """Number of the first unit that points to `physical_offset` or behind it, for units that ascend."""
        return bisect_left(range(self.data_end), physical_offset, self.start, key=self._target)

    def find(self, physical_offset: int) -> int | None:
        """Number of the unit that points to `physical_offset`, for units that ascend; None when it is not found."""
        number = self.bisect(physical_offset)
        is_found = number < self.data_end and self._target(number) == physical_offset
        return number if is_found and self.is_written(self.units(number, 1))[0] else None

    def _target(self, number: int) -> int:
        """The physical offset that a unit points to; filler, which comes before all messages, points before the log."""
        unit = self.units(number, 1)
        is_filler = self.queue.kind == "simple" and is_pre_blank(unit)[0]
        return -1 if is_filler else int(unit["physical_offset"][0])

    def place_of(self, number: int) -> tuple[Path | None, int]:
        """Path of the file that holds a unit, None without one, and the unit's position in it, bytes."""
        position = number * self.size
        file = file_at(self._files, position)
        return (file.path, position - file.start_offset) if file else (None, position)
