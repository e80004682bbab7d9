"""Files and directories that only their process uses, locked while it lives: the next one removes what it left, killed.

Functions raise OSError.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import IO

from rmqtool.base.signals import deferred_signals

_UNFINISHED = "rmqtool-new"


@contextmanager
def own_directory(prefix: str) -> Iterator[str]:
    """A temporary directory whose name begins with `prefix`; it goes with the block."""
    _remove_left(Path(gettempdir()), re.compile(rf"{re.escape(prefix)}\w{{8}}"))

    def make() -> tuple[str, int]:
        while True:
            path = mkdtemp(prefix=prefix)
            with suppress(FileNotFoundError):  # another process took it for left
                return path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    with ExitStack() as stack:
        with deferred_signals():
            path, descriptor = _locked(make)
            stack.callback(os.close, descriptor)
            stack.callback(shutil.rmtree, path, ignore_errors=True)
        yield path


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file beside `path`, to write to; it takes that place, on the disk as a whole, when the block ends."""
    _remove_left(path.parent, re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.{_UNFINISHED}"))

    def make() -> tuple[str, int]:
        name = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.{_UNFINISHED}")
        return str(name), os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    with ExitStack() as stack:
        with deferred_signals():
            unfinished, descriptor = _locked(make)
            file = stack.enter_context(open(descriptor, "wb"))
            stack.callback(_remove, unfinished)
        yield file
        file.flush()
        os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync(path.parent)


def sync(path: Path) -> int:
    """Have a file, or the names in a directory, on the disk itself; return its size, bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    """Remove a file that did not take its place."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def _locked(make: Callable[[], tuple[str, int]]) -> tuple[str, int]:
    """What `make` has made, and a descriptor that holds its lock, where the file system has locks."""
    while True:
        path, descriptor = make()
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_there(path, descriptor):
            return path, descriptor
        os.close(descriptor)  # before it was locked another process took it for left


def _remove_left(directory: Path, name: re.Pattern[str]) -> None:
    """Remove what has such a name, is ours, and is locked by no process."""
    with suppress(OSError), os.scandir(directory) as entries:
        for path in [entry.path for entry in entries if name.fullmatch(entry.name)]:
            with suppress(OSError):  # a process has locked it, or another one removes it
                _remove_unlocked(path)


def _remove_unlocked(path: str) -> None:
    status = os.lstat(path)
    is_directory = stat.S_ISDIR(status.st_mode)
    if status.st_uid != os.geteuid() or not (is_directory or stat.S_ISREG(status.st_mode)):
        return
    access = os.O_RDONLY if is_directory else os.O_RDWR  # NFS locks only what is open for writing
    descriptor = os.open(path, access | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_there(path, descriptor):
            shutil.rmtree(path) if is_directory else os.unlink(path)
    finally:
        os.close(descriptor)


def _is_there(path: str, descriptor: int) -> bool:
    """Whether a path still names what a descriptor was opened for."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
