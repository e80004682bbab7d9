"""Files that are made: at their whole length with holes, copied by pages, or as a whole or not at all.

Files and directories that only their process uses are locked while it lives: the next one removes what it left, killed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import shutil
import stat
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import IO

from rmqtool.base.files import Closing, InputFile, open_read_only
from rmqtool.base.paths import Place
from rmqtool.base.signals import deferred_signals
from rmqtool.base.times import file_time

_COPY_SIZE = 1 << 20
_FICLONE = 0x40049409  # linux/fs.h


def create_file(path: Path, size: int) -> int:
    """Open a file for writing, made with its directories and at its whole length when it is not there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o644)
    if os.fstat(descriptor).st_size != size:
        os.ftruncate(descriptor, size)
    return descriptor


@contextmanager
def new_file(path: Path, size: int) -> Iterator[int]:
    """A descriptor of a file that `create_file` opens, to write to in the block."""
    descriptor = create_file(path, size)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: memoryview | bytes, position: int) -> None:
    """Write all of `data` at `position`; the system may take less at once."""
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, position)
        view, position = view[done:], position + done


def copy_range(source: InputFile, position: int, size: int, descriptor: int, to: int) -> int:
    """Copy bytes of a file inside the system, which costs a fifth of reading and writing them.

    Returns how many were copied from `position` on: fewer at the end of the source, and 0 where the system cannot do it
    or an error is met, which reading then shows.
    """
    done = 0
    while done < size and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source.fileno(), descriptor, size - done, position + done, to + done)
        except OSError:
            break
        if count == 0:
            break
        done += count
    return done


def share(source: InputFile, descriptor: int) -> bool:
    """Let a new file share all data of another one; False where the file system cannot (XFS and Btrfs can)."""
    try:
        fcntl.ioctl(descriptor, _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def set_time(descriptor: int, timestamp: int) -> None:
    """Set access and modification time, epoch ms."""
    nanoseconds = file_time(timestamp)
    os.utime(descriptor, ns=(nanoseconds, nanoseconds))


def copy_file(path: Path, to: Path) -> None:
    """Copy a file, holes as holes, with its modification time; raises UnreadableError and WrongKindError."""
    with InputFile(path) as source, new_file(to, source.size) as descriptor:
        position = 0
        while (position := source.next_data(position, source.size)) < source.size:
            data = source.read(position, _COPY_SIZE)
            write_all(descriptor, data, position)
            position += len(data)
        set_time(descriptor, os.fstat(source.fileno()).st_mtime_ns // 1_000_000)


COPY_SIZE = 4 << 20
"""The most that is copied at once, bytes."""

_PAGE = 4096  # positions and sizes of direct input and output are multiples of a disk's block, at most this
_DIRECT = getattr(os, "O_DIRECT", 0)
_SHARE = 0x4020940D  # FICLONERANGE of Linux


def exceeds_page_cache(size: int) -> bool:
    """Whether two copies of `size` bytes take more than half of the memory that is there for the page cache."""
    available = available_memory()
    return bool(_DIRECT) and available is not None and 2 * size > available // 2


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory that programs and the page cache can have, bytes; None where the system does not say."""
    with suppress(OSError):
        found = re.search(r"^MemAvailable: +(\d+) kB$", meminfo.read_text(), re.MULTILINE)
        return int(found[1]) << 10 if found else None
    return None


class DirectCopy(Closing):
    """Copies into the file at `target`, which is there, as long as both file systems can do it."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._source: Place | None = None
        self._descriptors: list[int] = []  # of the source and of the target
        self._can = self._can_share = True
        self._buffer = mmap.mmap(-1, COPY_SIZE)  # begins with a page

    def copy(self, source: InputFile, position: int, size: int, to: int) -> int:
        """Copy up to COPY_SIZE bytes; return how many were copied from `position` on.

        They are none for what are not whole pages, and where an error is met, which copying in another way then shows.
        """
        if not self._can or size > COPY_SIZE or (position | size | to) % _PAGE:
            return 0
        try:
            self._open(source.path)
            if self._shares(position, size, to):
                return size
            with memoryview(self._buffer) as view:
                count = os.preadv(self._descriptors[0], [view[:size]], position)
                return os.pwrite(self._descriptors[1], view[: count - count % _PAGE], to)
        except OSError:
            self._can = False
            return 0

    def _shares(self, position: int, size: int, to: int) -> bool:
        """Let the target share pages of the source, where the file system can do it."""
        if self._can_share:
            source, target = self._descriptors
            try:
                fcntl.ioctl(target, _SHARE, struct.pack("qQQQ", source, position, size, to))
            except OSError:
                self._can_share = False
        return self._can_share

    def _open(self, path: Place) -> None:
        if path == self._source:
            return
        self.close()
        self._descriptors.append(open_read_only(path, _DIRECT))
        self._descriptors.append(os.open(self._target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | _DIRECT))
        self._source = path

    def close(self) -> None:
        """Close both files."""
        self._source = None
        while self._descriptors:
            os.close(self._descriptors.pop())


_UNFINISHED = "rmqtool-new"


@contextmanager
def own_directory(prefix: str, parent: Path | None = None) -> Iterator[str]:
    """A directory whose name begins with `prefix`, among the temporary files or in `parent`; it goes with the block."""
    _remove_left(parent or Path(gettempdir()), re.compile(rf"{re.escape(prefix)}\w{{8}}"))

    def make() -> tuple[str, int]:
        while True:
            path = mkdtemp(prefix=prefix, dir=parent)
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
