"""Paths of this machine and of others, as they are written and used alike."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from rmqtool.base.errors import UsageError, note_failure
from rmqtool.base.filesystems import SCHEMES
from rmqtool.base.remote_path import NO_AUTHORITY, RemoteEntry, RemotePath

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?]*)(\?[^/]*)?(/.*)?", re.DOTALL)


class CircularLink:
    """An entry that is a symbolic link round in a circle: neither file nor directory, as one that leads nowhere.

    The functions of `os.DirEntry` raise an error for it.
    """

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name = entry.name
        self.path = entry.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - the signature of DirEntry
        """It is none."""
        return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """It is none."""
        return False

    def is_symlink(self) -> bool:
        """It is one."""
        return True

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As that of `os.DirEntry`."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)


DirectoryEntry = os.DirEntry[str] | RemoteEntry | CircularLink
"""An entry of a directory; `entry_path` is its path."""


Place = Path | str
"""A path, or the text of one of this machine, where making a path for each of many files would cost too much."""


def is_remote(path: Place) -> bool:
    """Whether a path is on another machine."""
    return isinstance(path, RemotePath)


def path_of(text: str | os.PathLike[str]) -> Path:
    """The path that a text means: a URI such as ``s3://bucket/store``, or a path of this machine.

    A query after the URI has options of pyarrow's file system. Nothing in the path itself is decoded: a topic may be
    called ``%RETRY%group``. Raises UsageError, which shows no credentials, for a scheme or a name that cannot be.
    """
    if isinstance(text, Path):
        return text
    text = os.fspath(text)
    match = _URI.fullmatch(text)
    if match is None:
        return Path(text)
    scheme, authority, query, path = match[1].lower(), match[2], match[3] or "", match[4] or ""
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise UsageError(f"{text}: the host in a file:// URI can only be this machine", hint="file:///path")
        return Path(path)
    if scheme not in SCHEMES:
        raise UsageError(f"{scheme}:// is not supported", hint=f"one of file://, {'://, '.join(SCHEMES)}://")
    if not query:
        path, _, options = path.partition("?")
        query = f"?{options}" if options else ""
    if scheme.startswith("s3") and ":" in authority.rpartition("@")[2]:  # what is shown of it may be a secret's half
        hint = "write a / in the secret as %2F, and an address as ?endpoint_override=HOST:PORT"
        raise UsageError("the name of a bucket has no ':'", hint=hint)
    names = [name for name in path.split("/") if name not in ("", ".")]
    found = RemotePath("/", f"{scheme}:", (authority or NO_AUTHORITY) + query.replace("/", "%2F"), *names)
    if ".." in names:
        raise UsageError("'..' is not allowed in a URI", file=found)
    return found


def entry_path(entry: DirectoryEntry) -> Path:
    """The path of an entry, on the machine of its directory."""
    return entry.path if isinstance(entry, RemoteEntry) else Path(entry.path)


def entry_place(entry: DirectoryEntry) -> Place:
    """The same without making a path of it on this machine."""
    return entry.path


def place_of(path: Place) -> Place:
    """The place at `path`, as entries of directories give it."""
    return path if isinstance(path, RemotePath) else os.fspath(path)


def absolute(path: Path) -> Path:
    """The absolute path without ``..``, by its own names: links are not followed."""
    return path if is_remote(path) else Path(os.path.abspath(path))


def modified_ms(path: Path) -> int | None:
    """When a broker has last written a file, epoch ms; None on another machine, where it says when it was copied.

    Raises OSError.
    """
    return None if is_remote(path) else path.stat().st_mtime_ns // 1_000_000


def has_directory(path: Path) -> bool:
    """Whether a directory is there, and can be seen."""
    return path.is_dir() if is_remote(path) else stat.S_ISDIR(_mode(path))


def has_file(path: Path) -> bool:
    """Whether a file is there, and can be seen."""
    return path.is_file() if is_remote(path) else stat.S_ISREG(_mode(path))


def has_pipe(path: Path) -> bool:
    """Whether a named pipe is there, and can be seen; no other machine has any."""
    return not is_remote(path) and stat.S_ISFIFO(_mode(path))


def has_entry(path: Path) -> bool:
    """Whether anything is there, be it a link that leads nowhere."""
    return path.exists() if is_remote(path) else bool(_mode(path, follows=False))


def _mode(path: Path, *, follows: bool = True) -> int:
    """The mode of what is there, 0 of what is not, or cannot be seen; a disk that fails is noted."""
    try:
        return (os.stat if follows else os.lstat)(path).st_mode
    except OSError as error:
        note_failure(path, error)
    except ValueError:
        pass  # a name with a zero byte
    return 0
