"""A disk that answers with an I/O error: for one path, whichever way it is asked."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

BY_PATH = ("open", "scandir", "listdir", "stat", "lstat")
BY_DESCRIPTOR = ("pread", "preadv", "read", "fstat", "lseek")
SECTORS = ("scandir", "listdir", "pread", "preadv", "read")
CALLS = (*BY_PATH, *BY_DESCRIPTOR)


@contextmanager
def broken(path: Path, calls: tuple[str, ...] = SECTORS, start: int = 0, number: int = errno.EIO) -> Iterator[None]:
    """Let these calls of `os` fail for `path`: reads from byte `start` on for a bad sector, more for a worse one."""
    wanted = os.path.realpath(path)
    system = {name: getattr(os, name) for name in CALLS}

    def is_wanted(place: Any) -> bool:
        if isinstance(place, int):
            return os.readlink(f"/proc/self/fd/{place}") == wanted
        return os.path.abspath(os.fspath(place)) in (wanted, str(path))

    def failing(name: str) -> Callable[..., Any]:
        def call(place: Any = ".", *arguments: Any, **options: Any) -> Any:
            good = name in ("pread", "preadv") and arguments[1] + _size(arguments[0]) <= start
            if is_wanted(place) and not good:
                by_path = not isinstance(place, int)
                raise OSError(number, os.strerror(number), *([os.fspath(place)] if by_path else []))
            return system[name](place, *arguments, **options)

        return call

    with ExitStack() as stack:
        for name in calls:
            stack.enter_context(patch.object(os, name, failing(name)))
        yield


def _size(wanted: Any) -> int:
    """How much a read asks for: a number of bytes, or buffers to fill."""
    return wanted if isinstance(wanted, int) else sum(map(len, wanted))
