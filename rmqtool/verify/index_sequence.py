"""All units of the index over its files, in the order in which they were put."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import OpenFiles
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.formats.index_file import UNIT_DTYPE, UNIT_SIZE, unit_position
from rmqtool.formats.layout import decode_units
from rmqtool.rules.versions import INDEX_OF_TAGS
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.snapshot import Snapshot


@dataclass(frozen=True)
class FileUnits:
    """An index file whose geometry is known; its units have the numbers from `start` on among all units."""

    file: IndexFile
    geometry: Geometry
    start: int
    units: int


def readable_files(files: Sequence[tuple[IndexFile, Geometry | None]]) -> list[FileUnits]:
    """The files whose geometry is known, with at most the units that fit into them, in the order of their keys.

    That is the order of their names, unless files have each other's content, of which queries find all.
    """
    by_offset = sorted(files, key=lambda each: each[0].begin_physical_offset)
    is_proven = all(
        before.end_physical_offset <= after.begin_physical_offset <= after.end_physical_offset
        for (before, _), (after, _) in pairwise(by_offset)
    )
    readable: list[FileUnits] = []
    start = 0
    for file, geometry in by_offset if is_proven else files:
        if geometry is None:
            continue
        units = file.units(geometry)
        readable.append(FileUnits(file, geometry, start, units))
        start += units
    return readable


def tags_expected(snapshot: Snapshot) -> bool:
    """Whether the index holds tags, by the named release (since 5.4.0) or the newest index units."""
    if snapshot.version is not None:
        return snapshot.version >= INDEX_OF_TAGS
    with skip_unreadable():
        return bool(snapshot.index_holds_tags)
    return False


class IndexUnits:
    """Reads units by their number among all units, from 0 on.

    `on_read`, where set, gets the file of units that were read, the number of the first among all units, and the units.
    """

    def __init__(self, files: Sequence[FileUnits], open_files: OpenFiles) -> None:
        self.files = files
        self.total = sum(file.units for file in files)
        self.on_read: Callable[[FileUnits, int, NDArray[np.void]], None] | None = None
        self._open = open_files
        self._latest: tuple[int, NDArray[np.void]] = 0, np.empty(0, UNIT_DTYPE)

    def read(self, first: int, count: int) -> NDArray[np.void]:
        """Units `first` to before ``first + count``, fewer at the end; those of the last reading are still there."""
        begin, latest = self._latest
        if begin <= first and first + count <= begin + len(latest):
            return latest[first - begin : first - begin + count]
        units = self._read(first, count)
        self._latest = first, units
        return units

    def _read(self, first: int, count: int) -> NDArray[np.void]:
        pieces = [
            self._read_file(file, max(first, file.start), min(first + count, file.start + file.units))
            for file in self.files
            if file.start < first + count and first < file.start + file.units
        ]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, UNIT_DTYPE)

    def _read_file(self, file: FileUnits, first: int, stop: int) -> NDArray[np.void]:
        position = unit_position(file.geometry.slots, first - file.start + 1)
        opened = self._open.get(file.file.path, file.file.size)
        units = decode_units(UNIT_DTYPE, opened.read(position, (stop - first) * UNIT_SIZE))
        if self.on_read is not None:
            self.on_read(file, first, units)
        return units

    def file_of(self, unit_number: int) -> FileUnits:
        """The file that holds a unit."""
        return next(file for file in reversed(self.files) if file.start <= unit_number)

    def begin_timestamps(self, first: int, count: int) -> NDArray[np.int64]:
        """For each unit the timestamp from which its seconds count, epoch ms; -1 where the file does not store it.

        The first unit of a file counts from the end of the file before, which is not stored (`IndexFile#putKey`).
        """
        begins = np.full(count, -1, dtype=np.int64)
        for file in self.files:
            low, high = max(file.start + 1, first), min(file.start + file.units, first + count)
            if low < high:
                begins[low - first : high - first] = file.file.begin_timestamp
        return begins

    def first_from(self, physical_offset: int) -> int:
        """Number of the first unit that points to `physical_offset` or after it, for units that ascend."""
        numbers = range(self.total)
        return bisect_left(numbers, physical_offset, key=lambda at: int(self.read(at, 1)["physical_offset"][0]))
