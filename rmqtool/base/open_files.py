"""Files that are read again and again: only some of them are kept open, and of those the first page is kept, too."""

from __future__ import annotations

from collections import OrderedDict

from rmqtool.base.files import PAGE, InputFile, ReadPolicy
from rmqtool.base.limits import open_files_at_once
from rmqtool.base.paths import Place

_MAX_OPEN = 128  # open at once; a process may have 256 on macOS


class OpenFiles:
    """Opens files when they are asked for and closes the one that was not used for the longest time.

    What a broker does not write to meanwhile has its first page read once: of many queues that is all there is.
    """

    def __init__(self, reading: ReadPolicy) -> None:
        self._reading = reading
        self._limit = open_files_at_once(_MAX_OPEN)
        self._files: OrderedDict[Place, InputFile] = OrderedDict()

    def get(self, path: Place, listed: int = 0) -> InputFile:
        """The open file, of at least `listed` bytes; raises UnreadableError."""
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= self._limit:
                self._files.popitem(last=False)[1].close()
            file = self._files[path] = self.opened(path, listed)
        else:
            self._files.move_to_end(path)
        return file

    def opened(self, path: Place, listed: int = 0) -> InputFile:
        """A file, opened."""
        return (InputFile if self._reading.drop_page_cache else _WithHead)(path, self._reading, listed)

    def close(self) -> None:
        """Close all of them."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class _WithHead(InputFile):
    """A file whose first page is read once."""

    _head: bytes | None = None

    def read(self, position: int, size: int) -> bytes:
        """As the base."""
        if position + size > PAGE or self._remote is not None:
            return super().read(position, size)
        if self._head is None:
            self._head = super().read(0, PAGE)
        return self._head[position : position + size]
