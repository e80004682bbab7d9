"""Index files below a directory."""

from __future__ import annotations

import os
from pathlib import Path

from rmqtool.broker.index_keys import IndexKeys
from rmqtool.formats.index_file import file_size
from rmqtool.rebuild.file_tree import create_file, set_time, write_all
from rmqtool.store.index_files import Geometry


class IndexTree:
    """A sink that writes index files below a directory. Raises OSError."""

    def __init__(self, directory: Path, geometry: Geometry) -> None:
        self._directory = directory
        self._size = file_size(geometry.slots, geometry.units)
        self._descriptor = -1

    def keys(self, keys: IndexKeys) -> None:
        """They come as bytes too."""

    def begin(self, number: int, name: str) -> None:
        """Create a file."""
        self._descriptor = create_file(self._directory / name, self._size)

    def wants_bytes(self) -> bool:
        """They are written."""
        return True

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
