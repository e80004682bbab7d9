"""The bytes of the sources, read again where the records of two of them meet."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import numpy as np

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.formats.message import PREFIX_DTYPE, SIZE_AND_MAGIC
from rmqtool.salvage.carve import Carver, Progress, no_progress
from rmqtool.salvage.extents import NO_EXTENTS, Extents, of_records, shifts
from rmqtool.salvage.inputs import Input, SalvagedFiles
from rmqtool.scan.block import Block


class Sources:
    """All files, opened when they are needed; `file_size` is that of a file of the log, bytes."""

    def __init__(self, files: Sequence[Input], file_size: int, reading: ReadPolicy = UNLIMITED) -> None:
        self.files = files
        self.file_size = file_size
        self._open = SalvagedFiles(reading)
        self.block = Block()  # for whoever reads next

    def __enter__(self) -> Sources:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def file(self, number: int) -> InputFile:
        """An open file."""
        return self._open.get(self.files[number].path)

    def unread(self, number: int) -> set[int]:
        """Positions of the pages of a file that could not be read, bytes."""
        return self._open.unread[self.files[number].path]

    def add_unread(self, number: int, positions: set[int]) -> None:
        """Note pages of a file that another process could not read."""
        self._open.unread[self.files[number].path] |= positions

    def carve(self, number: int, progress: Progress = no_progress, topics: frozenset[str] | None = None) -> Extents:
        """All that proves itself in a file, by position; with `topics` odd records are told apart."""
        return self._carver(number, topics).carve(progress=progress)

    def carve_between(self, extent: np.void, start: int, end: int) -> Extents:
        """The whole records of an extent between two physical offsets."""
        if start >= end:
            return NO_EXTENTS
        shift = int(extent["physical_offset"] - extent["position"])
        found = of_records(self._carver(int(extent["input"])).carve(start - shift, end - shift))
        within: Extents = found[shifts(found) == shift]
        return within

    def first_of(self, extent: np.void) -> Extents:
        """The first record of an extent."""
        start = int(extent["physical_offset"])
        return self.carve_between(extent, start, start + self.record_size(extent, start))

    def record_size(self, extent: np.void, physical_offset: int) -> int:
        """The size of the record of an extent that begins at an offset, with its header, bytes."""
        header_size = int(extent["header_size"])
        size, _ = SIZE_AND_MAGIC.unpack(self._read(extent, physical_offset + header_size, SIZE_AND_MAGIC.size))
        return int(size) + header_size

    def have_same_record(self, one: np.void, other: np.void, physical_offset: int) -> bool:
        """Whether two extents hold the same message at an offset, as its fixed fields show."""
        return self.equal(one, other, physical_offset + int(one["header_size"]), PREFIX_DTYPE.itemsize)

    def equal(self, one: np.void, other: np.void, physical_offset: int, size: int) -> bool:
        """Whether two extents hold the same bytes from an offset on."""
        return self._read(one, physical_offset, size) == self._read(other, physical_offset, size)

    def _carver(self, number: int, topics: frozenset[str] | None = None) -> Carver:
        return Carver(self.files[number], self.file(number), self.block, self.file_size, topics)

    def _read(self, extent: np.void, physical_offset: int, size: int) -> bytes:
        position = physical_offset - int(extent["physical_offset"]) + int(extent["position"])
        return self.file(int(extent["input"])).read(position, size)
