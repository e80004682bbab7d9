"""Which bytes of two logs differ: one pass over both at once, a block of each in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.base.open_files import OpenFiles
from rmqtool.base.paths import Place
from rmqtool.base.recent_reads import RecentFile, RecentReads
from rmqtool.diff.side import Side

_BLOCK_SIZE = 4 << 20
_PAGE_SIZE = 4 << 10

NEAR = 64 << 10
"""Differing bytes no farther apart than this are one extent."""

Progress = Callable[[int], None]
"""Called with the number of bytes of each log that are compared."""


@dataclass(frozen=True)
class DifferingExtent:
    """Physical offsets of the first differing byte, after the last one, and of all of them."""

    start: int
    end: int
    offsets: NDArray[np.int64]

    def next(self, offset: int) -> int | None:
        """The first differing byte from an offset on."""
        row = int(np.searchsorted(self.offsets, offset))
        return int(self.offsets[row]) if row < len(self.offsets) else None


def samples(a: Side, b: Side, start: int, end: int) -> list[tuple[int, int]]:
    """The first page of each file from `start` to before `end`, and the last page before it."""
    begins = {start, *(file.start_offset for side in (a, b) for file in side.files if start < file.start_offset < end)}
    begins.add(max(start, end - _PAGE_SIZE))
    return [(begin, min(begin + _PAGE_SIZE, end)) for begin in sorted(begins)]


class _RecentFiles(OpenFiles):
    """Open files of one log; others read the same bytes after and ahead of them."""

    def __init__(self, reading: ReadPolicy, recent: RecentReads) -> None:
        super().__init__(reading)
        self._recent = recent

    def opened(self, path: Place, listed: int = 0) -> InputFile:  # noqa: ARG002 - these are read as far as they go
        """A file, opened."""
        return RecentFile(path, self._reading, self._recent)


class LogPair:
    """Reads the same range of both logs, each in a thread of its own: two disks are read at once.

    What was read last of each log is in `recent`, for those who look at its records.
    """

    def __init__(self, a: Side, b: Side, recent: Sequence[RecentReads]) -> None:
        self._sides = (a, b)
        self._open = tuple(
            _RecentFiles(side.snapshot.reading, reads) for side, reads in zip(self._sides, recent, strict=True)
        )
        self._buffers = tuple(np.zeros(_BLOCK_SIZE, np.uint8) for _ in self._sides)
        self._pool = ThreadPoolExecutor(1)
        self._unreadable: set[MappedFile] = set()

    def close(self) -> None:
        """Close all files."""
        self._pool.shutdown()
        for files in self._open:
            files.close()

    def blocks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges that lie within one file of each log, or in a gap of it, and are not too large for memory."""
        borders = {
            offset for side in self._sides for file in side.files for offset in (file.start_offset, file.end_offset)
        }
        cuts = [start, *sorted(border for border in borders if start < border < end), end]
        for low, high in pairwise(cuts):
            held = [file_at(side.files, low) for side in self._sides]
            if held == [None, None] or self._unreadable.intersection(held):
                continue
            if None in held:  # a file that is missing differs as a whole
                yield low, high
                continue
            for position in range(low, high, _BLOCK_SIZE):
                yield position, min(position + _BLOCK_SIZE, high)

    def differing(self, low: int, high: int) -> list[DifferingExtent] | None:
        """The extents of one block that differ; None where one of the two cannot be read."""
        files = [file_at(side.files, low) for side in self._sides]
        if self._unreadable.intersection(files):
            return None
        first, second = files
        if first is None or second is None:
            return [DifferingExtent(low, high, np.array([low]))]
        other = self._pool.submit(self._read, 1, second, low, high)
        data, other_data = self._read(0, first, low, high), other.result()
        if data is None or other_data is None:
            return None
        if np.array_equal(data.view(np.uint64), other_data.view(np.uint64)):
            return []
        offsets = np.flatnonzero(data != other_data) + low
        parts = np.split(offsets, np.flatnonzero(np.diff(offsets) > NEAR) + 1)
        return [DifferingExtent(int(part[0]), int(part[-1]) + 1, part) for part in parts]

    def _read(self, number: int, mapped: MappedFile, low: int, high: int) -> NDArray[Any] | None:
        """The bytes of one log, with zeros up to a whole word; None where they cannot be read."""
        size = high - low
        data = self._buffers[number][: -(-size // 8) * 8]
        try:
            file = self._open[number].get(mapped.path)
            done = file.read_into(data.data[:size], low - mapped.start_offset)
        except UnreadableError as error:
            self._sides[number].unread.append(error)
            self._unreadable.add(mapped)
            return None
        data[done:] = 0
        return data
