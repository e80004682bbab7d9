"""Files that are built aside: written at any position, synced together, read back from the disk."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.limits import open_files_at_once
from rmqtool.transaction.system import NO_LINKS, System, copy_data, is_directory, reported, sync_path, write_all

MAX_OPEN = 32  # descriptors that stay open between writes
_MANY = 8  # from here on the file system is asked to write all at once

Check = Callable[[Path], None]


@dataclass(slots=True)
class StagedFile:
    """A file that is built at `place`, the text of a path: there may be one for each of many queues.

    `mtime_ns` None: it gets that of the file it replaces.
    """

    name: str
    place: str
    mtime_ns: int | None
    check: Check | None
    _pool: DescriptorPool

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write `data` at `position`, bytes; raise UnwritableError."""
        with reported(self.place):
            write_all(self._pool.system, self._pool.descriptor(self.place), data, position)

    def copy(self, source: Path) -> None:
        """Begin with the bytes of another file, which keep their holes."""
        with reported(self.place), self._pool.system.open_input(str(source)) as file:
            copy_data(self._pool.system, file, self._pool.descriptor(self.place))

    def set_size(self, size: int) -> None:
        """Cut or extend the file to `size` bytes; added bytes are zero and take no space."""
        with reported(self.place):
            self._pool.system.set_size(self._pool.descriptor(self.place), size)


class DescriptorPool:
    """The last `MAX_OPEN` files that were written stay open: one may write to 40,000 queues in any order."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._open: OrderedDict[str, int] = OrderedDict()
        self._limit = open_files_at_once(MAX_OPEN)

    def descriptor(self, path: str) -> int:
        """A descriptor of a staged file, opened again where it was closed meanwhile."""
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        return self._add(path, create=False)

    def create(self, path: str) -> None:
        """Make a new, empty file."""
        self._add(path, create=True)

    def _add(self, path: str, *, create: bool) -> int:
        while len(self._open) >= self._limit:
            self.system.close(self._open.popitem(last=False)[1])
        self._open[path] = self.system.open_to_write(path, create=create)
        return self._open[path]

    def close(self) -> None:
        """Close all descriptors."""
        while self._open:
            self.system.close(self._open.popitem()[1])


class Staging:
    """The tree below ``.rmqtool/staging/new`` that mirrors the store."""

    def __init__(self, root: str, system: System) -> None:
        self.root = root
        self.files: dict[str, StagedFile] = {}
        self._system = system
        self._pool = DescriptorPool(system)
        self._directories = {""}

    def path(self, name: str) -> str:
        """Where `name` is built."""
        return os.path.join(self.root, name)

    def add_file(self, name: str, mtime_ns: int | None, check: Check | None) -> StagedFile:
        """Begin a new, empty file."""
        self.add_directory(os.path.dirname(name))
        place = self.path(name)
        self._pool.create(place)
        self.files[name] = StagedFile(name, place, mtime_ns, check, self._pool)
        return self.files[name]

    def add_link(self, name: str, source: str) -> None:
        """Give a file of the store a second name, or copy it where the file system has no links."""
        self.add_directory(os.path.dirname(name))
        try:
            self._system.link(source, self.path(name))
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.add_file(name, os.lstat(source).st_mtime_ns, None).copy(Path(source))

    def add_directory(self, name: str) -> None:
        """Make a directory and those above it."""
        if name not in self._directories:
            self.add_directory(os.path.dirname(name))
            self._system.make_directory(self.path(name))
            self._directories.add(name)

    def close(self) -> None:
        """Close all files; nothing is written after this."""
        self._pool.close()

    def sync_files(self) -> None:
        """All files are on the disk when this returns, and out of the page cache."""
        all_synced = len(self.files) > _MANY and self._system.sync_all(self.root)
        for name in self.files:
            descriptor = self._system.open_to_sync(self.path(name))
            try:
                if not all_synced:
                    self._system.sync(descriptor)
                self._system.forget(descriptor)
            finally:
                self._system.close(descriptor)

    def check_files(self) -> None:
        """Let each file's check read it back."""
        for file in self.files.values():
            if file.check:
                file.check(Path(file.place))

    def sync_directories(self, path: str | None = None) -> None:
        """All names are on the disk when this returns, those of the innermost directories first."""
        path = self.root if path is None else path
        if len(self._directories) > _MANY and self._system.sync_all(path):
            return
        self._sync_directories(path)

    def _sync_directories(self, path: str) -> None:
        for entry in self._system.list(path):
            if is_directory(self._system, entry.path):
                self._sync_directories(entry.path)
        sync_path(self._system, path)
