"""Paths on other machines, written as URIs and used like other paths, to read only; and files there, read in ranges."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rmqtool.base.errors import (
    ChangedError,
    RmqtoolError,
    UnreachableError,
    UnreadableError,
    UnsupportedError,
    reason_of,
)
from rmqtool.base.filesystems import (
    Status,
    answer_of,
    entries_of,
    file_system,
    forget,
    in_background,
    listing_of,
    patiently,
    status_now,
    status_of,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Self

NO_AUTHORITY = "@"
"""Of hdfs:///path: a name cannot be empty."""

_LEAST_PARTS = 3
_BLOCK = 512  # bytes, the unit of st_blocks
_OF_THIS_ALONE = (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError)

_Answer = TypeVar("_Answer")


class RemotePath(PosixPath):
    """A path on another machine; made by `paths.path_of`. Its status may be that of a listing: see `remote_listing`."""

    def __str__(self) -> str:
        """The URI without the secrets that it may have been given with, and without its options."""
        if len(self.parts) < _LEAST_PARTS:  # what is above a bucket has no meaning, and is shown nevertheless
            return "/".join(self.parts)
        _, scheme, authority, *names = self.parts
        user, at, place = authority.partition("?")[0].rpartition("@")
        user = "" if scheme.startswith("s3") else user.partition(":")[0]  # of Azure it is the container
        authority = f"{user}{at}{place}" if user else place
        return "/".join((f"{scheme}//{authority}", *names))

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __fspath__(self) -> NoReturn:
        raise UnsupportedError(
            "this works with files of this machine only",
            file=str(self),
            hint="copy the store, or the part that you need, to this machine first",
        )

    @property
    def parent(self) -> Self:
        """The directory above; of the topmost one itself."""
        return self if len(self.parts) <= _LEAST_PARTS else super().parent

    @property
    def scheme(self) -> str:
        """Such as ``s3``."""
        return self.parts[1].rstrip(":")

    @property
    def authority(self) -> str:
        """Bucket, or host and port, with a user before and options after it as the URI had them."""
        authority = self.parts[2]
        is_empty = authority.partition("?")[0] == NO_AUTHORITY
        return authority[len(NO_AUTHORITY) :] if is_empty else authority

    @property
    def key(self) -> str:
        """The names after the authority, with slashes between them."""
        return "/".join(self.parts[3:])

    @property
    def uri(self) -> str:
        """The whole URI, with its secrets and options: not to be shown."""
        place, _, options = self.authority.partition("?")
        return f"{self.scheme}://{place}/{self.key}{f'?{options}' if options else ''}"

    @property
    def address(self) -> tuple[str, str, str]:
        """Scheme, authority and key."""
        return self.scheme, self.authority, self.key

    def exists(self, **_: Any) -> bool:
        """Whether there is anything."""
        return self._status() is not None

    def is_dir(self, **_: Any) -> bool:
        """Whether it is a directory, or the beginning of keys."""
        status = self._status()
        return status is not None and status.is_directory

    def is_file(self, **_: Any) -> bool:
        """Whether it is a file."""
        status = self._status()
        return status is not None and not status.is_directory

    def is_symlink(self) -> bool:
        """Links are not known there."""
        return False

    def stat(self, **_: Any) -> os.stat_result:
        """Type, size and the modification time there, which is not that of the broker's file."""
        return self._status_result(self._status())

    def listing(self) -> int | None:
        """The number of the listing of a tree that answers for it, None without one."""
        return listing_of(*self.address)

    def stat_now(self) -> os.stat_result:
        """As `stat`, whatever was listed before."""
        return self._status_result(self._answer_of(status_now))

    def _status(self) -> Status | None:
        return self._answer_of(status_of)

    def _answer_of(self, question: Callable[[str, str, str], _Answer]) -> _Answer:
        """What is said of this path; raises RmqtoolError."""
        try:
            return question(*self.address)
        except OSError as error:
            raise unread_there(self, None, error) from error

    def _status_result(self, status: Status | None) -> os.stat_result:
        if status is None:
            raise FileNotFoundError(2, os.strerror(2), str(self))
        return _stat_result(status)

    def resolve(self, strict: bool = False) -> RemotePath:  # noqa: ARG002, FBT001 - the signature of Path
        """Itself: there are no links."""
        return self

    def absolute(self) -> RemotePath:
        """Itself."""
        return self

    def entries(self) -> list[RemoteEntry]:
        """What is in a directory, by name; raises FileNotFoundError, NotADirectoryError and RmqtoolError."""
        listed = self._answer_of(entries_of)
        if listed is None:
            status = self._status()
            number = 2 if status is None else 20
            raise (FileNotFoundError if status is None else NotADirectoryError)(number, os.strerror(number), str(self))
        return [RemoteEntry(self / name, status) for name, status in sorted(listed.items())]

    def matches(self) -> Iterator[RemotePath]:
        """The directories that a path with the wildcards ``*``, ``?`` and ``[...]`` names."""
        found = [RemotePath(*self.parts[:3])]
        for name in self.parts[3:]:
            if not any(sign in name for sign in "*?["):
                found = [path / name for path in found]
                continue
            found = [
                entry.path
                for path in found
                if path.is_dir()
                for entry in path.entries()
                if entry.is_dir() and fnmatch.fnmatchcase(entry.name, name)
            ]
        return (path for path in found if path.exists())

    def list_anew(self) -> None:
        """From now on answer from a new listing of the tree below this path, made when it is first needed."""
        forget(*self.address)


def located(path: RemotePath) -> tuple[Any, str]:
    """The file system of a path, and its name in there; raises RmqtoolError."""
    system, prefix = file_system(path.scheme, path.authority)
    return system, f"{prefix}{path.key}"


class RemoteEntry:
    """An entry of a directory on another machine, to be used as `os.DirEntry` is; `path` is a `RemotePath`."""

    def __init__(self, path: RemotePath, status: Status) -> None:
        self.name = path.name
        self.path = path
        self._status = status

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - the signature of DirEntry
        """Whether it is a directory."""
        return self._status.is_directory

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Whether it is a file."""
        return not self._status.is_directory

    def is_symlink(self) -> bool:
        """Links are not known there."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002
        """As `RemotePath.stat`."""
        return _stat_result(self._status)


def unread_there(path: RemotePath, position: int | None, error: OSError) -> RmqtoolError:
    """The error for what cannot be read there: an UnreachableError unless it is one of this file or directory alone."""
    message = f"cannot read: {reason_of(error)}"
    if not isinstance(error, _OF_THIS_ALONE):
        return UnreachableError(message, file=path, offset=position, hint="run it again when that machine answers")
    hint = "check the credentials and their permission to read" if isinstance(error, PermissionError) else None
    return UnreadableError(message, file=path, offset=position, hint=hint)


def _stat_result(status: Status) -> os.stat_result:
    mode = stat.S_IFDIR | 0o755 if status.is_directory else stat.S_IFREG | 0o644
    seconds = status.modified_ns // 10**9
    times = {"st_mtime_ns": status.modified_ns, "st_blocks": -(-status.size // _BLOCK)}
    return os.stat_result((mode, 0, 0, 1, 0, 0, status.size, seconds, seconds, seconds), times)


_FIRST_RANGE = 64 << 10  # bytes: a request costs as much as reading a few more
_LARGEST_RANGE = 8 << 20  # bytes, of which two are held: the one that is read, and the next
_NOWHERE = -1
_AT_ONCE = 10  # seconds
_IDLE_FILES = 512
_IDLE_DATA = 64 << 10  # bytes that a file keeps while nobody reads it

_idle: OrderedDict[tuple[int, RemotePath, int], RemoteFile] = OrderedDict()


def open_remote(path: RemotePath) -> RemoteFile:
    """A file, open; raises OSError, IsADirectoryError for a directory."""
    listing = path.listing()
    file = None if listing is None else _idle.pop((os.getpid(), path, listing), None)
    return RemoteFile(path, listing) if file is None else file


def put_back(file: RemoteFile) -> None:
    """Let go of a file, which may stay open for the next who reads it."""
    if file.listing is None:
        file.close()
        return
    file.rest()
    _idle[os.getpid(), file.path, file.listing] = file
    if len(_idle) > _IDLE_FILES:
        _idle.popitem(last=False)[1].close()


def replaced(path: Path) -> ChangedError:
    """The error for a file that is not the one that was listed."""
    hint = "run it again: it starts with the present files"
    return ChangedError("the file was replaced or removed while it was read", file=path, hint=hint)


class RemoteFile:
    """A file that is open, `size` in bytes; `listing` is the listing of its tree, None without one."""

    def __init__(self, path: RemotePath, listing: int | None = None) -> None:
        self.path = path
        self.listing = listing
        self._ahead: Future[bytes] | None = None
        self._ahead_at = _NOWHERE
        self._data = memoryview(b"")
        self._position = 0  # of the data in the file
        self._range = _FIRST_RANGE
        self._file = self._open()
        self.size: int = patiently(self._file.size)
        listed = self._listed()
        if listed is not None and listed.size != self.size:
            self._file.close()
            raise replaced(path)

    def _listed(self) -> Status | None:
        """What the listing of the tree says of the file; None without one."""
        return None if self.listing is None else status_of(*self.path.address)

    def _open(self) -> Any:
        system, name = located(self.path)
        try:
            return patiently(lambda: system.open_input_file(name))
        except OSError:
            status = status_now(*self.path.address)
            if status is None and self._listed() is not None:
                raise replaced(self.path) from None
            if status is None:
                raise FileNotFoundError(2, os.strerror(2), str(self.path)) from None
            if status.is_directory:
                raise IsADirectoryError(21, os.strerror(21), str(self.path)) from None
            raise

    def close(self) -> None:
        """Close it; where a range is on its way, the thread that waits for it does."""
        self.rest()
        if self._ahead is None:
            self._file.close()

    def rest(self) -> None:
        """Let go of what was read ahead, and of all but a little data."""
        if self._ahead is not None and (self._ahead.cancel() or self._ahead.done()):
            self._ahead = None
        self._ahead_at = _NOWHERE
        if len(self._data) > _IDLE_DATA:
            self._data = memoryview(b"")

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from `position`; the bytes read, fewer only at the end of the file."""
        done, end = 0, min(len(target), self.size - position)
        while done < end:
            data = self._data_at(position + done, end - done)
            count = min(len(data), end - done)
            target[done : done + count] = data[:count]
            done += count
        return max(0, done)

    def _data_at(self, position: int, wanted: int) -> memoryview:
        """Some bytes from `position` on, at least one."""
        end = self._position + len(self._data)
        if self._position <= position < end:
            return self._data[position - self._position :]
        in_order = position == end and end > 0
        self._range = min(max(2 * self._range, wanted), _LARGEST_RANGE) if in_order else _FIRST_RANGE
        if self._ahead is not None and position == self._ahead_at:
            data, self._ahead = self._ahead.result(), None
        else:
            data = self._read(position, min(max(wanted, self._range), _LARGEST_RANGE))
        self._data, self._position = memoryview(data), position
        behind = position + len(data)
        is_waiting = self._ahead is not None and not self._ahead.done()  # for a range that nobody wants any more
        if in_order and behind < self.size and not is_waiting:
            size = self._range
            self._ahead, self._ahead_at = in_background(lambda: self._read(behind, size)), behind
        return self._data

    def _read(self, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        try:
            data: bytes = patiently(lambda: self._read_once(position, size))
        except OSError as error:
            if self._is_replaced():
                raise replaced(self.path) from error
            raise
        return data

    def _is_replaced(self) -> bool:
        """Whether it is gone, or has another size; False where that machine does not answer at once."""
        try:
            status = answer_of(lambda: status_now(*self.path.address), _AT_ONCE)
        except OSError:
            return False
        return status is None or status.size != self.size

    def _read_once(self, position: int, size: int) -> bytes:
        data: bytes = self._file.read_at(size, position)
        if len(data) != size:
            raise replaced(self.path)
        return data
