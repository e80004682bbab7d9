"""The one door to bytes: files opened read-only, here or on another machine, read at a position.

Files that are read again and again stay open within a limit, and what was read last may stay in memory.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rmqtool.base.errors import NOT_THERE, RmqtoolError, UnreadableError, WrongKindError, noted, reason_of, shrunk
from rmqtool.base.limits import exhausted, memory_is_short, open_files_at_once
from rmqtool.base.paths import CircularLink, DirectoryEntry, Place
from rmqtool.base.remote_path import RemotePath, unread_there

if TYPE_CHECKING:
    from rmqtool.base.remote_path import RemoteFile

_C = TypeVar("_C", bound="Closing")
MOST = 1 << 20
"""So many bytes at most are compared at once."""

_ZEROS = bytes(MOST)


def is_zero(data: bytes | memoryview) -> bool:
    """Whether all of at most `MOST` bytes are zero: a comparison of memory is ten times faster than stripping."""
    return data == _ZEROS[: len(data)]


def length_without_zeros(data: bytes | memoryview) -> int:
    """The same as ``len(data.rstrip(bytes(1)))``, but by halves, which are compared as memory."""
    if is_zero(data):
        return 0
    length, step = len(data), len(data)
    while step > 1:
        step = (step + 1) // 2
        if is_zero(data[max(0, length - step) : length]):
            length = max(0, length - step)
    return length - 1 if data[max(0, length - 1) : length] == b"\0" else length


_NO_WAIT = getattr(os, "RWF_NOWAIT", None)
_NO_ATIME = getattr(os, "O_NOATIME", 0)
_SMALL_READ = 64 << 10  # up to here a read costs too little to be limited, and its pages may stay, bytes
PAGE = 4 << 10  # data is mostly near: so much is read first, and only where it is not there more at once, bytes
_NAP = 0.25  # Python does not hear a signal that comes just before it sleeps until it wakes, seconds
_SMALL_END = 16 << 10  # of a file, read at once to find where its data ends, bytes
_AHEAD = 16 << 20  # of a file that is read in order and not in the page cache, fetched meanwhile, bytes
_DIRECTORY = "a directory where a file should be"


Progress = Callable[[int], None]
"""Called with the number of bytes that are done: in all or, where a function says so, since the last call."""


def no_progress(done: int) -> None:
    """Report nothing."""


class RateLimit:
    """Sleeps so that no more than `bytes_per_second` are read on average."""

    def __init__(self, bytes_per_second: int) -> None:
        self.bytes_per_second = bytes_per_second
        self._due = time.monotonic()

    def spend(self, size: int) -> None:
        """Account for `size` bytes; sleep while the average is above the rate."""
        now = time.monotonic()
        self._due = max(self._due, now - 1.0) + size / self.bytes_per_second
        while self._due > now:
            time.sleep(min(self._due - now, _NAP))
            now = time.monotonic()


@dataclass(frozen=True)
class ReadPolicy:
    """How much is read: at most at `rate_limit`; with `drop_page_cache` the page cache is left as it was.

    `on_read` gets the size of each large reading, bytes, before it is done.

    A broker that runs lives on its page cache: pages that were not in there are dropped after they are read.
    """

    rate_limit: RateLimit | None = None
    drop_page_cache: bool = False
    on_read: Callable[[int], None] | None = None


UNLIMITED = ReadPolicy()
"""As fast as the disk gives, through the page cache."""


class Closing:
    """What a `with` block closes at its end."""

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        raise NotImplementedError


class _ReadAhead:
    """Fetches what follows of a file into the page cache while what was read is computed, in a thread of its own.

    The kernel's own read-ahead, 128 KiB unless somebody has set it, stands still meanwhile.
    """

    def __init__(self, fd: int, size: int, position: int) -> None:
        self._fd, self._size = fd, size
        self._read = self._asked = position  # up to where it is read, and asked for
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self._wanted.set()

    def read_to(self, position: int) -> None:
        """The file was read up to a position; one who goes back asks for nothing."""
        self._read = position
        self._wanted.set()

    def stop(self) -> None:
        """Before the descriptor is closed."""
        self._size = 0
        self._wanted.set()
        self._thread.join()

    def _work(self) -> None:
        while self._size:
            self._wanted.wait()
            self._wanted.clear()
            start, end = max(self._read, self._asked), min(self._read + _AHEAD, self._size)
            if start < end:
                self._asked = end
                with suppress(OSError):  # whoever reads there reports it
                    os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_WILLNEED)


class InputFile(Closing):
    """A regular file open for reading; `size` is its size when opened, bytes, at least `listed`, that of a listing.

    Raises UnreadableError and WrongKindError.
    """

    _fd = -1
    _remote: RemoteFile | None = None
    _ahead: _ReadAhead | None = None
    _no_hole = (0, 0)
    """From where to where the file is known to have no hole, bytes: a file system may look at each page for that."""

    def __init__(self, path: Place, reading: ReadPolicy = UNLIMITED, listed: int = 0) -> None:
        self.path = path
        self._reading = reading
        if isinstance(path, RemotePath):
            self._open_remote(path)
            return
        try:
            self._fd = open_read_only(path)
            self.size = self._check_kind()
            if self.size < listed:
                raise shrunk(path, self.size, listed)
            if reading.drop_page_cache:
                self._expect_random_reads()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise unreadable(path, None, error) from error
            raise

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._remote is not None:
            from rmqtool.base.remote_path import put_back

            put_back(self._remote)
            self._remote = None
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        """The descriptor, for `fcntl`."""
        return self._fd

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file, UnreadableError where it was cut."""
        if self._remote is not None or (size > _SMALL_READ and self._reading != UNLIMITED):
            target = memoryview(bytearray(size))
            return bytes(target[: self.read_into(target, position)])
        try:
            data = os.pread(self._fd, size, position)
            while len(data) < size and (more := os.pread(self._fd, size - len(data), position + len(data))):
                data += more
        except OSError as error:
            raise unreadable(self.path, position, error) from error
        if len(data) < size and position + len(data) < self.size:
            raise shrunk(self.path, position + len(data), self.size)
        return data

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from `position`; return the bytes read, fewer only at the end of the file."""
        if self._reading.rate_limit:
            self._reading.rate_limit.spend(len(target))
        if self._reading.on_read:
            self._reading.on_read(len(target))
        if self._remote is not None:
            with _Reported(self.path, position):
                return self._remote.read_into(target, position)
        with _Reported(self.path, position):
            done = cached = self._read_cached(target, position) if self._ahead is None else 0
            while done < len(target):
                count = os.preadv(self._fd, [target[done:]], position + done)
                if count == 0:
                    break
                done += count
            if self._reading.drop_page_cache:
                self._drop_from_cache(position + cached, done - cached)
            elif self._ahead is not None:
                self._ahead.read_to(position + done)
            elif cached < done > _SMALL_READ and self._may_read_ahead():
                with suppress(RuntimeError):  # no more threads are allowed
                    self._ahead = _ReadAhead(self._fd, self.size, position + done)
        if done < len(target) and position + done < self.size:
            raise shrunk(self.path, position + done, self.size)
        return done

    def next_data(self, position: int, end: int) -> int:
        """First position from `position` on whose byte is not zero; `end` when there is none before it."""
        size = PAGE
        while position < end:
            start = self._skip_hole(position, end)
            if start >= end:
                return end
            data = self.read(start, min(size, end - start))
            if not data:
                return end
            if not is_zero(data):
                return start + len(data) - len(data.lstrip(b"\0"))
            position = start + len(data)
            size = min(2 * size, MOST)
        return end

    def next_stored(self, position: int, end: int) -> int:
        """First position from `position` on that is not in a hole; `end` when there is none before it."""
        return min(self._skip_hole(position, end), end)

    def is_hole_from(self, position: int) -> bool:
        """Whether only a hole follows from `position` on; False where holes are not known."""
        return self._skip_hole(position, self.size) >= self.size

    def stored_end(self, position: int, end: int) -> int:
        """Where what is stored from `position` on ends, when nothing but a hole follows it up to `end`; else `end`."""
        hole = self._hole_from(position)
        return hole if hole < end and self._skip_hole(hole, end) >= end else end

    def stored_size(self, start: int, stop: int, enough: int) -> int:
        """Bytes that are stored from `start` to before `stop`, counted no further than to `enough`."""
        stored, stop = 0, min(stop, self.size)
        while stored < enough and (start := self._skip_hole(start, stop)) < stop:
            data, start = start, self._hole_from(start)
            stored += min(start, stop) - data
        return min(stored, enough)

    def data_end(self, start: int = 0) -> int:
        """Position after the last byte from `start` on that is not zero; `start` when there is none.

        The file is halved rather than read backwards: mapped files are allocated whole, and the rest is mostly a hole.
        """
        end = self.stored_end(start, self.size)
        while end - start > _SMALL_END:
            middle = (start + end) // 2
            if self.next_data(middle, end) < end:
                start = middle
            else:
                end = middle
        return start + length_without_zeros(self.read(start, max(0, end - start)))

    def _open_remote(self, path: RemotePath) -> None:
        from rmqtool.base.remote_path import open_remote

        try:
            with _Reported(path):
                self._remote = open_remote(path)
        except UnreadableError as error:
            if isinstance(error.__cause__, IsADirectoryError):
                raise WrongKindError(_DIRECTORY, file=path) from error
            raise
        self.size = self._remote.size

    def _check_kind(self) -> int:
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            is_directory = stat.S_ISDIR(status.st_mode)
            raise WrongKindError(_DIRECTORY if is_directory else "not a regular file", file=self.path)
        return status.st_size

    def _expect_random_reads(self) -> None:
        # Read-ahead by the kernel would bring in pages that _read_cached then takes for the broker's.
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def _read_cached(self, target: memoryview, position: int) -> int:
        """Read what the page cache holds; where the file system does not say, read and leave the cache alone."""
        if _NO_WAIT is None:
            return os.preadv(self._fd, [target], position)
        try:
            return os.preadv(self._fd, [target], position, _NO_WAIT)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return 0
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL):
                return os.preadv(self._fd, [target], position)
            raise

    def _may_read_ahead(self) -> bool:
        """Not where somebody wants less to be read at once."""
        return not self._reading.rate_limit and hasattr(os, "posix_fadvise") and not memory_is_short()

    def _drop_from_cache(self, position: int, size: int) -> None:
        if size > 0 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_DONTNEED)

    def _skip_hole(self, position: int, end: int) -> int:
        if self._remote is not None or not hasattr(os, "SEEK_DATA"):
            return position
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            # ENXIO: nothing but a hole after the position. Others: it knows no holes, or the read shows them.
            return end if error.errno == errno.ENXIO else position

    def _hole_from(self, position: int) -> int:
        """Where the next hole begins; the file's size without one, past the end, and where holes are not known."""
        if self._remote is not None or not hasattr(os, "SEEK_HOLE"):
            return self.size
        start, hole = self._no_hole
        if not start <= position < hole:
            try:
                hole = os.lseek(self._fd, position, os.SEEK_HOLE)
            except OSError:
                return self.size
            self._no_hole = position, hole
        return hole


def read_all(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a small file."""
    with InputFile(path) as file:
        return file.read(0, min(limit, file.size))  # memory for what is there, however high the limit


def list_directory(path: Place) -> list[DirectoryEntry]:
    """Entries of a directory sorted by name; an empty list when it does not exist."""
    try:
        if isinstance(path, RemotePath):
            return [*path.entries()]
        with os.scandir(path) as entries:
            listed = [_usable(entry) if entry.is_symlink() else entry for entry in entries]
        return listed if len(listed) < 2 else sorted(listed, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        if isinstance(error, NotADirectoryError) and not isinstance(path, RemotePath) and not os.path.lexists(path):
            return []  # below a file there is nothing
        raise unreadable(path, None, error) from error


def names_in(path: Path) -> list[str]:
    """The names in a directory of this machine, in no order: for many, and for little time; empty without it."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(path, None, error) from error


def _usable(link: os.DirEntry[str]) -> DirectoryEntry:
    try:
        link.is_file()
    except OSError as error:
        return CircularLink(link) if error.errno == errno.ELOOP else link
    return link


def status_now(path: Path) -> os.stat_result | None:
    """The status of a file as it is now, None when it is gone; raises UnreadableError."""
    try:
        return path.stat_now() if isinstance(path, RemotePath) else path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, None, error) from error


def open_read_only(path: Place, more_flags: int = 0) -> int:
    """A descriptor of a file, whose access time stays where that is possible; raises OSError."""
    # O_NONBLOCK: a stray named pipe must not make us wait. It changes nothing for regular files.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | more_flags
    try:
        return os.open(path, flags | _NO_ATIME)
    except PermissionError:
        return os.open(path, flags)  # O_NOATIME is for the owner only


class _Reported:
    """Turns errors of the system into UnreadableError; a class, for it is entered several times for each small file."""

    __slots__ = ("_path", "_position")

    def __init__(self, path: Place, position: int | None = None) -> None:
        self._path = path
        self._position = position

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise unreadable(self._path, self._position, error) from error


def unreadable(path: Place, position: int | None, error: OSError) -> RmqtoolError:
    """The error for a file that cannot be read, with a hint what to do about it.

    An UnreadableError; an ExhaustedError where the system opens no more files, an UnreachableError where another
    machine fails: these are no properties of this file.
    """
    limit = exhausted(error)
    if limit is not None:
        limit.file = str(path)
        return limit
    if isinstance(path, RemotePath):
        return unread_there(path, position, error)
    hint = None
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = "run as the broker's user, or give this user read permission"
    elif error.errno == errno.EIO:
        hint = "the disk reports an error: copy the store with a tool that skips bad sectors (ddrescue) first"
    elif error.errno == errno.ENOTDIR:
        hint = "a directory belongs here, but something else is in its place"
    failed = UnreadableError(f"cannot read: {reason_of(error)}", file=path, offset=position, hint=hint)
    return failed if error.errno in NOT_THERE else noted(failed)


def stored_sizes(path: Place, ranges: Sequence[tuple[int, int]], enough: int) -> list[int]:
    """Bytes that are stored in each range of positions from and to, counted no further than to `enough`.

    All of a range is, as far as is known, in a file of another machine or one that cannot be opened.
    """
    if not isinstance(path, RemotePath) and hasattr(os, "SEEK_HOLE"):
        with suppress(UnreadableError), InputFile(path) as file:  # whoever reads it reports it
            return [file.stored_size(start, stop, enough) for start, stop in ranges]
    return [min(stop - start, enough) for start, stop in ranges]


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


BLOCK_SIZE = 1 << 20
"""Bytes that are read at once, from a multiple of it on."""

_KEPT = 12 if memory_is_short() else 40  # blocks


class RecentReads:
    """The blocks that were read last, of any files of one disk; for one thread at a time."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._blocks: OrderedDict[tuple[Place, int], memoryview] = OrderedDict()

    def get(self, path: Place, number: int) -> memoryview | None:
        """A block of a file; None where it is not kept."""
        block = self._blocks.get((path, number))
        if block is not None:
            self._blocks.move_to_end((path, number))
        return block

    def room(self) -> bytearray:
        """A buffer for another block, in place of the one that was not used for the longest time."""
        if len(self._blocks) < self._kept:
            return bytearray(BLOCK_SIZE)
        buffer = self._blocks.popitem(last=False)[1].obj
        return buffer if isinstance(buffer, bytearray) else bytearray(BLOCK_SIZE)

    def keep(self, path: Place, number: int, block: memoryview) -> None:
        """Keep what was read."""
        self._blocks[path, number] = block


class RecentFile(InputFile):
    """A file that is read block by block; what `recent` has of it is not read again."""

    def __init__(self, path: Place, reading: ReadPolicy = UNLIMITED, recent: RecentReads | None = None) -> None:
        super().__init__(path, reading)
        self._recent = recent or RecentReads()

    def read(self, position: int, size: int) -> bytes:
        """As the base."""
        target = memoryview(bytearray(max(0, min(size, self.size - position))))
        return bytes(target[: self.read_into(target, position)])

    def read_into(self, target: memoryview, position: int) -> int:
        """As the base."""
        done = 0
        while done < len(target):
            number, start = divmod(position + done, BLOCK_SIZE)
            part = self._block(number)[start : start + len(target) - done]
            if not part:
                break
            target[done : done + len(part)] = part
            done += len(part)
        return done

    def _block(self, number: int) -> memoryview:
        block = self._recent.get(self.path, number)
        if block is None:
            buffer = memoryview(self._recent.room())
            block = buffer[: super().read_into(buffer, number * BLOCK_SIZE)]
            self._recent.keep(self.path, number, block)
        return block
