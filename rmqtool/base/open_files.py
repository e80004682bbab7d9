"""Files that are read again and again: only some of them are kept open."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.limits import open_files_at_once

_MAX_OPEN = 128  # open at once; a process may have 256 on macOS


class OpenFiles:
    """Opens files when they are asked for and closes the one that was not used for the longest time."""

    def __init__(self, reading: ReadPolicy) -> None:
        self._reading = reading
        self._limit = open_files_at_once(_MAX_OPEN)
        self._files: OrderedDict[Path, InputFile] = OrderedDict()

    def get(self, path: Path) -> InputFile:
        """The open file; raises UnreadableError."""
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= self._limit:
                self._files.popitem(last=False)[1].close()
            file = self._files[path] = self.opened(path)
        else:
            self._files.move_to_end(path)
        return file

    def opened(self, path: Path) -> InputFile:
        """A file, opened."""
        return InputFile(path, self._reading)

    def close(self) -> None:
        """Close all of them."""
        for file in self._files.values():
            file.close()
        self._files.clear()
