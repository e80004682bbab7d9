"""Index files: compared with those that are there, or written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.append.file_tree import create_file, set_time, write_all
from rmqtool.files import InputFile
from rmqtool.formats.index_file import file_size
from rmqtool.index import Geometry, IndexFile


@dataclass
class IndexComparison:
    """A sink that compares each file with the one that stands at its place in the order of names."""

    existing: Sequence[IndexFile]
    geometry: Geometry
    names: list[str] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)  # whether a file's bytes are those that are there
    _open: InputFile | None = None

    @property
    def is_same(self) -> bool:
        """Whether all files are as they should be."""
        return all(self.same) and len(self.same) == len(self.existing)

    def begin(self, number: int, name: str) -> None:
        """Look at the file that is there."""
        self.names.append(name)
        found = self.existing[number] if number < len(self.existing) else None
        sound = found is not None and found.size == file_size(self.geometry.slots, self.geometry.units)
        self.same.append(sound)
        self._open = InputFile(found.path) if found and sound else None

    def put(self, number: int, position: int, data: bytes | memoryview) -> None:
        """Compare bytes."""
        if self._open and self._open.read(position, len(data)) != data:
            self.same[number] = False
            self.close()

    def finish(self, number: int, timestamp: int) -> None:
        """The rest of the file must be zero behind its last unit; what is there is not looked at by a broker."""
        self.close()

    def close(self) -> None:
        """Close the file that was read."""
        if self._open:
            self._open.close()
            self._open = None


class IndexTree:
    """A sink that writes index files below a directory. Raises OSError."""

    def __init__(self, directory: Path, geometry: Geometry) -> None:
        self._directory = directory
        self._size = file_size(geometry.slots, geometry.units)
        self._descriptor = -1

    def begin(self, number: int, name: str) -> None:
        """Create a file."""
        self._descriptor = create_file(self._directory / name, self._size)

    def put(self, number: int, position: int, data: bytes | memoryview) -> None:
        """Write bytes."""
        write_all(self._descriptor, data, position)

    def finish(self, number: int, timestamp: int) -> None:
        """Complete a file."""
        set_time(self._descriptor, timestamp)
        self.close()

    def close(self) -> None:
        """Close the file that is written."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
