"""A directory of mapped files: which belong, which do not, and their size (`MappedFileQueue#load`)."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rmqtool.errors import UnreadableError
from rmqtool.files import InputFile, list_directory
from rmqtool.formats.file_name import start_offset_of

_NEAR = 1 << 20  # how close to the end of a file's data is searched before the rest is read, bytes

StrayKind = Literal["directory", "name", "special"]


@dataclass(frozen=True)
class MappedFile:
    """One file of a queue of files; `size` as found, bytes."""

    path: Path
    start_offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """Offset behind the file's last byte, bytes."""
        return self.start_offset + self.size


@dataclass(frozen=True)
class Stray:
    """An entry that is no mapped file: a sub-directory, another name, or neither file nor directory."""

    path: Path
    kind: StrayKind


@dataclass(frozen=True)
class MappedFiles:
    """The mapped files of one queue in offset order; `file_size` is the size that most of them have, bytes.

    Without a file `file_size` is 0.
    """

    files: tuple[MappedFile, ...] = ()
    strays: tuple[Stray, ...] = field(default=(), compare=False)

    @property
    def file_size(self) -> int:
        """The size that most files have, the larger one of two that are as frequent; bytes."""
        sizes = Counter(file.size for file in self.files if file.size)
        return max(sizes, key=lambda size: (sizes[size], size), default=0)

    @property
    def size(self) -> int:
        """All files' sizes together, bytes."""
        return sum(file.size for file in self.files)


def list_mapped_files(*directories: Path) -> MappedFiles:
    """List the mapped files of one queue, which may be spread over several directories; a missing one is empty."""
    files: list[MappedFile] = []
    strays: list[Stray] = []
    for directory in directories:
        for entry in list_directory(directory):
            found = _classify(entry)
            if isinstance(found, MappedFile):
                files.append(found)
            elif found:
                strays.append(found)
    return MappedFiles(tuple(sorted(files, key=lambda file: file.start_offset)), tuple(strays))


def data_end(file: InputFile) -> int:
    """Position behind the last byte that is not zero, bytes.

    The file is halved rather than read backwards: mapped files are allocated whole, and the rest is mostly a hole.
    """
    start, end = 0, file.size
    while end - start > _NEAR:
        middle = (start + end) // 2
        if file.next_data(middle, end) < end:
            start = middle
        else:
            end = middle
    return start + len(file.read(start, end - start).rstrip(b"\0"))


def _classify(entry: os.DirEntry[str]) -> MappedFile | Stray | None:
    """What an entry is; None when it has vanished, as the files that a running broker deletes do."""
    path = Path(entry.path)
    start_offset = start_offset_of(entry.name)
    try:
        status = entry.stat()
    except OSError as error:
        if start_offset is None:
            return Stray(path, "name")
        if isinstance(error, FileNotFoundError) and not entry.is_symlink():
            return None
        raise UnreadableError(f"cannot read: {(error.strerror or '').lower()}", file=path) from error
    if stat.S_ISDIR(status.st_mode):
        return Stray(path, "directory")
    if start_offset is None:
        return Stray(path, "name")
    if not stat.S_ISREG(status.st_mode):
        return Stray(path, "special")
    return MappedFile(path, start_offset, status.st_size)
