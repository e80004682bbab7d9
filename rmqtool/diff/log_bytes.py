"""Which bytes of two logs differ: one pass over both at once, a block of each in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.base.open_files import OpenFiles
from rmqtool.diff.side import Side

_BLOCK_SIZE = 4 << 20
_SMALL_BLOCK = 64 << 10
_PAGE_SIZE = 4 << 10
_NEAR = 64 << 10  # differing bytes no farther apart than this are one extent

Progress = Callable[[int], None]
"""Called with the number of bytes of each log that are compared."""


@dataclass(frozen=True)
class DifferingExtent:
    """Physical offsets of the first differing byte and behind the last one."""

    start: int
    end: int


def differing_extents(a: Side, b: Side, ranges: Sequence[tuple[int, int]], progress: Progress) -> list[DifferingExtent]:
    """The extents of some ranges in which the logs differ; files that cannot be read are left out."""
    extents: list[DifferingExtent] = []
    done = 0
    with closing(_Pair(a, b)) as pair:
        for start, end in ranges:
            for low, high in pair.blocks(start, end, _BLOCK_SIZE):
                for extent in pair.differing(low, high):
                    near = bool(extents) and extent.start - extents[-1].end <= _NEAR
                    extents.append(DifferingExtent(extents.pop().start, extent.end) if near else extent)
                progress(done + high - start)
            done += end - start
    return extents


def samples(a: Side, b: Side, start: int, end: int) -> list[tuple[int, int]]:
    """The first page of each file from `start` to before `end`, and the last page before it."""
    begins = {start, *(file.start_offset for side in (a, b) for file in side.files if start < file.start_offset < end)}
    begins.add(max(start, end - _PAGE_SIZE))
    return [(begin, min(begin + _PAGE_SIZE, end)) for begin in sorted(begins)]


def first_difference(a: Side, b: Side, start: int, end: int) -> int | None:
    """Physical offset of the first byte from `start` to before `end` that differs."""
    with closing(_Pair(a, b)) as pair:
        for low, high in pair.blocks(start, end, _SMALL_BLOCK):
            for extent in pair.differing(low, high):
                return extent.start
    return None


class _Pair:
    """Reads the same range of both logs, each in a thread of its own: two disks are read at once."""

    def __init__(self, a: Side, b: Side) -> None:
        self._sides = (a, b)
        self._open = tuple(OpenFiles(side.snapshot.reading) for side in self._sides)
        self._buffers = tuple(np.zeros(_BLOCK_SIZE, np.uint8) for _ in self._sides)
        self._pool = ThreadPoolExecutor(1)
        self._unreadable: set[MappedFile] = set()

    def close(self) -> None:
        """Close all files."""
        self._pool.shutdown()
        for files in self._open:
            files.close()

    def blocks(self, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
        """Ranges that lie within one file of each log, or in a gap of it, of at most `size` bytes."""
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
            for position in range(low, high, size):
                yield position, min(position + size, high)

    def differing(self, low: int, high: int) -> Iterator[DifferingExtent]:
        """The extents of one block that differ."""
        files = [file_at(side.files, low) for side in self._sides]
        if self._unreadable.intersection(files):
            return
        first, second = files
        if first is None or second is None:
            yield DifferingExtent(low, high)
            return
        other = self._pool.submit(self._read, 1, second, low, high)
        data, other_data = self._read(0, first, low, high), other.result()
        if data is None or other_data is None or np.array_equal(data.view(np.uint64), other_data.view(np.uint64)):
            return
        positions = np.flatnonzero(data != other_data)
        breaks = np.flatnonzero(np.diff(positions) > _NEAR)
        starts, ends = positions[[0, *(breaks + 1).tolist()]], positions[[*breaks.tolist(), -1]]
        for begin, last in zip(starts.tolist(), ends.tolist(), strict=True):
            yield DifferingExtent(low + begin, low + last + 1)

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
