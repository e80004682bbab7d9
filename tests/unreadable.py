"""Files that give an error instead of their bytes: as without permission, or as on a disk with bad sectors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rmqtool.base import files


@contextmanager
def forbidden(*paths: Path) -> Iterator[None]:
    """None of the files can be opened."""
    names = {str(path) for path in paths}
    open_read_only = files.open_read_only

    def open_others(path: Path, more_flags: int = 0) -> int:
        if str(path) in names:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_read_only(path, more_flags)

    with patch.object(files, "open_read_only", open_others):
        yield


@contextmanager
def bad_sectors(path: Path, start: int, size: int = 512) -> Iterator[None]:
    """Reads of the file that reach into these bytes fail; what stands before them is given, as a kernel does."""
    preadv, pread = os.preadv, os.pread

    def room(number: int, length: int, position: int) -> int:
        if position + length <= start or position >= start + size:
            return length
        if os.readlink(f"/proc/self/fd/{number}") != str(path):
            return length
        if position >= start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return start - position

    def read_into(number: int, buffers: Any, position: int, flags: int = 0) -> int:
        length = room(number, len(buffers[0]), position)
        return preadv(number, [buffers[0][:length]], position, flags)

    def read(number: int, length: int, position: int) -> bytes:
        return pread(number, room(number, length, position), position)

    with patch.object(files, "os", _Replaced(os, preadv=read_into, pread=read)):
        yield


class _Replaced:
    """A module of which some functions are others: only for the module that is given it."""

    def __init__(self, module: Any, **functions: Any) -> None:
        self.__dict__.update(functions)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
