"""Directories of mapped files: the files, their size, and stray entries (`MappedFileQueue#load`)."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy, list_directory, status_now, unreadable
from rmqtool.base.paths import DirectoryEntry, Place, entry_path, entry_place, is_remote, place_of
from rmqtool.base.tolerant import ReadScope
from rmqtool.formats.file_name import MAX_OFFSET, start_offset_of

if TYPE_CHECKING:
    from typing_extensions import Self

_SECOND = 10**9  # ns

StrayKind = Literal["directory", "name", "special"]


class _Found(NamedTuple):
    place: Place
    start_offset: int
    size: int
    header_size: int
    modified_ns: int | None


class MappedFile(_Found):
    """One file of a queue of files; `size` as found, bytes.

    A header of `header_size` bytes that is not part of it stands before each record, or none.
    `modified_ns` is given on another machine, where it shows whether the file was replaced, ns since the epoch.
    A tuple with its path as text, for a store may have several hundred thousand of them.
    """

    __slots__ = ()

    def __new__(
        cls, path: Place, start_offset: int, size: int, header_size: int = 0, modified_ns: int | None = None
    ) -> Self:
        """A file at `path`."""
        return cls._make((place_of(path), start_offset, size, header_size, modified_ns))

    def at(self, path: Path) -> Self:
        """The same file by another path."""
        return self._replace(place=place_of(path))

    def with_size(self, size: int) -> Self:
        """The first `size` bytes of it."""
        return self._replace(size=size)

    def with_header(self, size: int) -> Self:
        """The same with headers of `size` bytes."""
        return self._replace(header_size=size)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.place if isinstance(self.place, Path) else _path_of(self.place)

    @property
    def end_offset(self) -> int:
        """Offset after the file's last byte, bytes; at most MAX_OFFSET, whatever the file's name says."""
        return min(self.start_offset + self.size, MAX_OFFSET)

    def holds(self, offset: int) -> bool:
        """Whether the byte at `offset` of the queue is in the file."""
        return 0 <= offset - self.start_offset < self.size


_path_of = lru_cache(1024)(Path)  # most files are asked for theirs many times in a row

made = partial(tuple.__new__, MappedFile)
"""A file of its place and its other fields, all of them, as a tuple: in half the time."""


@dataclass(frozen=True)
class Stray:
    """An entry that is no mapped file: a sub-directory, another name, or neither file nor directory."""

    path: Path
    kind: StrayKind


@dataclass(frozen=True, slots=True)
class MappedFiles:
    """The mapped files of one queue in offset order; `file_size` is the size that most of them have, bytes.

    Without a file `file_size` is 0.
    """

    files: tuple[MappedFile, ...] = ()
    strays: tuple[Stray, ...] = field(default=(), compare=False)

    @property
    def file_size(self) -> int:
        """The size that most files have; of two as frequent that of which more names are multiples, or the larger."""
        if len(self.files) == 1:
            return self.files[0].size
        sizes = Counter(file.size for file in self.files if file.size)
        if len(sizes) == 1:
            return next(iter(sizes))
        return max(sizes, key=lambda size: (sizes[size], self._aligned(size), size), default=0)

    def _aligned(self, size: int) -> int:
        """How many files have a name that is a multiple of `size`."""
        return sum(file.start_offset % size == 0 for file in self.files)

    @property
    def size(self) -> int:
        """All files' sizes together, bytes."""
        return sum(file.size for file in self.files)

    def followed_by(self, later: MappedFiles) -> MappedFiles:
        """These files and those of another queue, in offset order."""
        files = sorted((*self.files, *later.files), key=lambda file: file.start_offset)
        return MappedFiles(tuple(files), (*self.strays, *later.strays))


def check_unchanged(mapped: MappedFile) -> None:
    """Raise ChangedError where a file on another machine was replaced since it was listed; here nobody does that.

    Times are compared in whole seconds, as some of those systems tell them. Raises UnreadableError.
    """
    if mapped.modified_ns is None:
        return
    status = status_now(mapped.path)
    before = (mapped.size, mapped.modified_ns // _SECOND)
    if status is None or (status.st_size, status.st_mtime_ns // _SECOND) != before:
        from rmqtool.base.remote_path import replaced

        raise replaced(mapped.path)


def file_at(files: Iterable[MappedFile], offset: int) -> MappedFile | None:
    """The file that holds the byte at `offset`, of files that overlap the first (`#findMappedFileByOffset`)."""
    return next((file for file in files if file.holds(offset)), None)


def read_at(files: Iterable[MappedFile], offset: int, size: int, reading: ReadPolicy = UNLIMITED) -> bytes:
    """At most `size` bytes of the file that holds `offset`, none without one; raises UnreadableError."""
    file = file_at(files, offset)
    if file is None:
        return b""
    with InputFile(file.path, reading) as opened:
        return opened.read(offset - file.start_offset, size)


def list_mapped_files(*directories: Place, scope: ReadScope = nullcontext, header_size: int = 0) -> MappedFiles:
    """List the mapped files of one queue, which may be spread over several directories; a missing one is empty.

    `header_size` is what stands before each record in them, bytes. Each directory and each entry is read in a `scope`
    of its own.
    """
    files: list[MappedFile] = []
    strays: list[Stray] = []
    for directory in directories:
        entries: list[DirectoryEntry] = []
        with scope():
            entries = list_directory(directory)
        for entry in entries:
            with scope():
                classified = _classify(entry)
                if isinstance(classified, MappedFile):
                    files.append(classified.with_header(header_size) if header_size else classified)
                elif classified:
                    strays.append(classified)
    if len(files) > 1:
        files.sort(key=lambda file: file.start_offset)
    return MappedFiles(tuple(files), tuple(strays))


def _classify(entry: DirectoryEntry) -> MappedFile | Stray | None:
    """The mapped file or stray that an entry is; None when it has vanished: a running broker deletes files."""
    start_offset = start_offset_of(entry.name)
    try:
        status = entry.stat()
    except OSError as error:
        if start_offset is None:
            return Stray(entry_path(entry), "name")
        if isinstance(error, FileNotFoundError) and not entry.is_symlink():
            return None
        raise unreadable(entry_path(entry), None, error) from error
    if start_offset is None or not stat.S_ISREG(status.st_mode):
        kind: StrayKind = "special" if start_offset is not None else "name"
        return Stray(entry_path(entry), "directory" if stat.S_ISDIR(status.st_mode) else kind)
    place = entry_place(entry)
    modified_ns = status.st_mtime_ns if is_remote(place) else None
    return made((place, start_offset, _one_number(status.st_size), 0, modified_ns))


@lru_cache(16)
def _one_number(size: int) -> int:
    """The same number, as one object for all files of a size."""
    return size
