"""Metadata of Iceberg tables on this machine, which are on the disk before the catalog names them.

pyiceberg loads this module by its name (its setting `py-io-impl`).
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from rmqtool.base.new_files import sync

SCHEMES = ("", "file")


class SyncedFiles(PyArrowFileIO):
    """Files as pyarrow reads and writes them, but that those on this machine are synced."""

    def new_output(self, location: str) -> PyArrowFile:
        """The place of a file that is written."""
        scheme, host, path = self.parse_location(location, self.properties)
        if scheme in SCHEMES:
            return _SyncedOutput(location, path, self.fs_by_scheme(scheme, host))
        return super().new_output(location)


class _SyncedOutput(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001 - as pyiceberg calls it
        path = Path(self._path)
        made = [parent for parent in path.parents if not parent.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        return io.BufferedWriter(_SyncedFile(path, "w" if overwrite else "x", made))


class _SyncedFile(io.FileIO):
    """A file that is on the disk once it is closed, with its name and those of the directories that were made."""

    def __init__(self, path: Path, mode: str, made: list[Path]) -> None:
        super().__init__(path, mode)
        self._directories = {path.parent, *(directory.parent for directory in made)}

    def close(self) -> None:
        if self.closed:
            return
        try:
            os.fsync(self.fileno())
        finally:
            super().close()
        for directory in self._directories:
            sync(directory)
