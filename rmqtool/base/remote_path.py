"""Paths on other machines: written as URIs, and used like other paths, to read only.

A `RemotePath` keeps scheme and authority as its first two names, so that all that is derived from it keeps them. What
would ask this machine's system for such a path fails with one sentence, instead of finding another file.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import PosixPath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rmqtool.base.errors import RmqtoolError, UnreachableError, UnreadableError, UnsupportedError, reason_of
from rmqtool.base.remote_listing import Status, entries_of, forget, listing_of, status_now, status_of

if TYPE_CHECKING:
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
            "this is possible with files of this machine only",
            file=str(self),
            hint="copy the store, or what of it is needed, to this machine first",
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
        return listing_of(self.scheme, self.authority, self.key)

    def stat_now(self) -> os.stat_result:
        """As `stat`, whatever was listed before."""
        return self._status_result(self._answer_of(status_now))

    def _status(self) -> Status | None:
        return self._answer_of(status_of)

    def _answer_of(self, question: Callable[[str, str, str], _Answer]) -> _Answer:
        """What is said of this path; raises RmqtoolError."""
        try:
            return question(self.scheme, self.authority, self.key)
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
        forget(self.scheme, self.authority, self.key)


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
    hint = "check the credentials, and what they may read there" if isinstance(error, PermissionError) else None
    return UnreadableError(message, file=path, offset=position, hint=hint)


def _stat_result(status: Status) -> os.stat_result:
    mode = stat.S_IFDIR | 0o755 if status.is_directory else stat.S_IFREG | 0o644
    seconds = status.modified_ns // 10**9
    times = {"st_mtime_ns": status.modified_ns, "st_blocks": -(-status.size // _BLOCK)}
    return os.stat_result((mode, 0, 0, 1, 0, 0, status.size, seconds, seconds, seconds), times)
