"""The system calls of a transaction, in one place: a test fails, cuts or loses each of them here.

Paths are absolute. Nothing follows a symlink in the last part of a path. Every error is the `OSError` of the system.

A digest is the content of a file or directory as one comparable value, whatever its times and holes. A
manifest is None where nothing is, ``{"size": bytes, "digest": hex}`` for a file, ``{"entries": {name: manifest}}``
for a directory, ``{"other": text}`` for links and special files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.base.errors import UnwritableError
from rmqtool.base.files import InputFile

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # Linux 3.15: ext4, xfs, btrfs, tmpfs, f2fs, overlayfs
_RENAME_SWAP = 2  # macOS: APFS
_MOUNTS = Path("/proc/self/mountinfo")
_SYNCFS_REPORTS_ERRORS = (5, 8)  # of Linux
_SYNCED_WHOLE = frozenset({"ext4", "xfs", "btrfs"})
_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC

CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOTTY})
"""Errors of a system that does not have a call at all."""

NO_LINKS = CANNOT | {errno.EPERM, errno.EMLINK, errno.EXDEV}
"""Errors of a file system that cannot give this file a second name."""

_COPY_SIZE = 1 << 20  # bytes


class System:
    """The system calls of this machine; tests replace some of them."""

    def lstat(self, path: str) -> os.stat_result | None:
        """The status of a file, directory or link; None where nothing is."""
        try:
            return os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, path: str) -> list[os.DirEntry[str]]:
        """The entries of a directory, sorted by name."""
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def read_link(self, path: str) -> str:
        """Where a symlink leads."""
        return os.readlink(path)

    def open_input(self, path: str) -> InputFile:
        """A file to read, see `rmqtool.base.files`; raises UnreadableError."""
        return InputFile(Path(path))

    def free_bytes(self, path: str) -> int:
        """How much this process may still write to the file system of `path`, bytes."""
        status = os.statvfs(path)
        return status.f_frsize * (status.f_bfree if os.geteuid() == 0 else status.f_bavail)

    def open_to_write(self, path: str, *, create: bool) -> int:
        """A descriptor to write at any position; with `create` the file must be new.

        Those of root can be read by the store's owner, who alone may enter the directory that all are in.
        """
        flags = os.O_RDWR | _NO_FOLLOW | (os.O_CREAT | os.O_EXCL if create else 0)
        return os.open(path, flags, 0o644)

    def open_unnamed(self, path: str) -> int:
        """A descriptor of a new file that no directory shows, on the file system of the directory `path`."""
        flags = getattr(os, "O_TMPFILE", None)
        if flags is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)
        return os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def open_to_sync(self, path: str) -> int:
        """A descriptor of a file or directory for `sync` and for its attributes."""
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | _NO_FOLLOW)

    def close(self, descriptor: int) -> None:
        """Close; errors of writes show in `sync`."""
        os.close(descriptor)

    def release(self, descriptor: int) -> None:
        """Close a file that holds a lock; a process that dies does this as well. Nothing was written to it."""
        with suppress(OSError):
            os.close(descriptor)

    def write(self, descriptor: int, data: memoryview, position: int) -> int:
        """Write at `position`; return how many bytes were taken."""
        return os.pwrite(descriptor, data, position)

    def set_size(self, descriptor: int, size: int) -> None:
        """Cut or extend a file to `size` bytes; an extension is a hole."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Wait until a file or directory is on the disk."""
        os.fsync(descriptor)

    def sync_all(self, path: str) -> bool:
        """Let the whole file system of `path` be written: many calls of `sync` find little to do then.

        True when all is on the disk for certain: those calls are not needed.
        """
        return _sync_file_system()(path) and _reports_errors(os.lstat(path).st_dev)

    def forget(self, descriptor: int) -> None:
        """Drop a synced file from the page cache, so that it is read back from the disk."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def set_owner(self, descriptor: int, uid: int, gid: int) -> None:
        """Change owner and group."""
        os.fchown(descriptor, uid, gid)

    def set_mode(self, descriptor: int, mode: int) -> None:
        """Change the permission bits."""
        os.fchmod(descriptor, mode)

    def labels(self, path: str) -> dict[str, bytes]:
        """The extended attributes of a file or directory; empty where there are none."""
        if not hasattr(os, "listxattr"):
            return {}
        try:
            return {
                name: os.getxattr(path, name, follow_symlinks=False)
                for name in os.listxattr(path, follow_symlinks=False)
            }
        except OSError as error:
            if error.errno in CANNOT or error.errno == errno.ENODATA:
                return {}
            raise

    def set_label(self, descriptor: int, name: str, value: bytes) -> None:
        """Set one extended attribute."""
        if hasattr(os, "setxattr"):
            os.setxattr(descriptor, name, value)

    def remove_label(self, descriptor: int, name: str) -> None:
        """Remove one extended attribute."""
        if hasattr(os, "removexattr"):
            os.removexattr(descriptor, name)

    def set_mtime(self, path: str, mtime_ns: int) -> None:
        """Set the time of the last change."""
        os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)

    def make_directory(self, path: str) -> None:
        """Make one directory, to be read like the files of `open_to_write`."""
        os.mkdir(path, 0o755)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name."""
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: str, target: str) -> None:
        """Rename; a file at `target` gives way."""
        os.rename(source, target)

    def exchange(self, one: str, other: str) -> None:
        """Let two names change places in one step; an error of `CANNOT` where the file system can't."""
        _exchange()(one, other)

    def unlink(self, path: str) -> None:
        """Remove a name that is no directory."""
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)


def is_directory(system: System, path: str) -> bool:
    """Whether a directory, not a link to one, is there."""
    status = system.lstat(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def write_all(system: System, descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write all of `data` however little each call takes."""
    rest = memoryview(data).cast("B")
    while rest:
        count = system.write(descriptor, rest, position)
        if count <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = rest[count:]
        position += count


def sync_path(system: System, path: str) -> None:
    """Wait until a file or a directory's list of names is on the disk."""
    descriptor = system.open_to_sync(path)
    try:
        system.sync(descriptor)
    finally:
        system.close(descriptor)


def copy_data(system: System, source: InputFile, descriptor: int) -> None:
    """Copy a file in blocks; holes, and blocks of zeros, become holes."""
    system.set_size(descriptor, source.size)
    position = 0
    while (position := source.next_data(position, source.size)) < source.size:
        data = source.read(position, _COPY_SIZE)
        write_all(system, descriptor, data, position)
        position += len(data)


def create_file(system: System, path: str, data: bytes) -> None:
    """Write a new file of our own; its bytes are on the disk when this returns, its name once the directory is."""
    descriptor = system.open_to_write(path, create=True)
    try:
        write_all(system, descriptor, data, 0)
        system.sync(descriptor)
    finally:
        system.close(descriptor)


def remove_tree(system: System, path: str) -> None:
    """Remove a file, or a directory with all in it; nothing there is no error."""
    if is_directory(system, path):
        for entry in system.list(path):
            remove_tree(system, entry.path)
        system.remove_directory(path)
    elif system.lstat(path):
        system.unlink(path)


@cache
def _exchange() -> Callable[[str, str], None]:
    library = ctypes.CDLL(None, use_errno=True)
    on_macos = sys.platform == "darwin"
    function = getattr(library, "renamex_np" if on_macos else "renameat2", None)

    def exchange(one: str, other: str) -> None:
        if function is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), one)
        names = os.fsencode(one), os.fsencode(other)
        if on_macos:
            failed = function(*names, ctypes.c_uint(_RENAME_SWAP))
        else:
            failed = function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE))
        if failed:
            error_number = ctypes.get_errno()
            raise OSError(error_number, os.strerror(error_number), one, None, other)

    return exchange


@cache
def _sync_file_system() -> Callable[[str], bool]:
    """Linux's syncfs, as `sync` would wait for all other disks as well; returns whether it succeeded."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)

    def sync(path: str) -> bool:
        if function is None:
            os.sync()
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return bool(function(descriptor) == 0)
        finally:
            os.close(descriptor)

    return sync


@cache
def _reports_errors(device: int) -> bool:
    """Whether syncfs waits for the disk and reports writes that failed: Linux 5.8, local journalling file systems."""
    if sys.platform != "linux" or _kernel() < _SYNCFS_REPORTS_ERRORS:
        return False
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kinds = {line.partition(" - ")[2].split(" ")[0] for line in mounts if line.split(" ")[2:3] == [wanted]}
    return bool(kinds) and kinds <= _SYNCED_WHOLE


def _kernel() -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


SYSTEM = System()
"""The system calls that are not replaced by a test."""


_HINTS = {
    errno.EISDIR: "move it away, and run this again",
    errno.ENOSPC: "free space on the file system of the store and run the command again",
    errno.EDQUOT: "raise the quota of this user and run the command again",
    errno.EROFS: "mount it for writing, or work on a copy; after errors of the disk (dmesg) copy it first",
    errno.EACCES: "run as root or as the broker's user",
    errno.EPERM: "run as root or as the broker's user",
    errno.EIO: "the disk reports an error: copy the store to a good disk first",
    errno.EXDEV: "the file system can't rename this: work on a copy on ext4, xfs or another local file system",
}


@contextmanager
def reported(path: str, doing: str = "cannot write") -> Iterator[None]:
    """Turn an `OSError` into an UnwritableError that names the file, `path` where the system names none."""
    try:
        yield
    except OSError as error:
        file = error.filename if isinstance(error.filename, (str, bytes)) else path
        reason = (error.strerror or str(error)).lower()
        raise UnwritableError(
            f"{doing}: {reason}", file=os.fsdecode(file), hint=_HINTS.get(error.errno or 0)
        ) from error


Manifest = dict[str, Any] | None

_BLOCK = 4 << 10  # bytes; a mapped file is mostly a hole, and what it holds begins with a few blocks
_FIRST_READ, _LARGEST_READ = 16 << 10, 1 << 20  # bytes
_DIGEST_SIZE = 16


def manifest_of(system: System, path: str) -> Manifest:
    """The manifest of the file or directory at `path`; links are not followed."""
    status = system.lstat(path)
    if status is None:
        return None
    if stat.S_ISREG(status.st_mode):
        with system.open_input(path) as file:
            return {"size": file.size, "digest": file_digest(file)}
    if stat.S_ISDIR(status.st_mode):
        return {"entries": {entry.name: manifest_of(system, entry.path) for entry in system.list(path)}}
    if stat.S_ISLNK(status.st_mode):
        return {"other": f"link to {system.read_link(path)}"}
    return {"other": f"type {stat.S_IFMT(status.st_mode):o}"}


def file_digest(file: InputFile) -> str:
    """BLAKE2b-128 over the size and the data: each run of blocks of 4 KiB that are not all zero, after its position.

    Holes are not read, yet a file has the same digest with holes and without. Numbers are 8 bytes, big-endian.
    """
    digest = blake2b(file.size.to_bytes(8, "big"), digest_size=_DIGEST_SIZE)
    for position, data in _runs(file):
        if position is not None:
            digest.update(position.to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def _runs(file: InputFile) -> Iterator[tuple[int | None, memoryview]]:
    """Data in blocks, with the position where a run begins and None where it goes on; long runs in larger reads."""
    position, run_end, size = 0, -1, _FIRST_READ
    while position < file.size:
        if position != run_end:
            position, size = file.next_data(position, file.size) // _BLOCK * _BLOCK, _FIRST_READ
        data = memoryview(file.read(position, min(size, file.size - position)))
        if not data:
            return  # it has become shorter
        for start, stop in _filled(data):
            yield None if position + start == run_end else position + start, data[start:stop]
            run_end = position + stop
        position += len(data)
        size = min(2 * size, _LARGEST_READ)


def _filled(data: memoryview) -> list[tuple[int, int]]:
    """The runs of blocks that are not all zero, as start and stop."""
    whole = len(data) // _BLOCK * _BLOCK
    filled = np.frombuffer(data[:whole], np.uint64).reshape(-1, _BLOCK // 8).any(axis=1)
    if whole < len(data):
        filled = np.append(filled, any(data[whole:]))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], filled, [False])).astype(np.int8)))
    return [(int(start) * _BLOCK, min(int(stop) * _BLOCK, len(data))) for start, stop in edges.reshape(-1, 2)]


def text_digest(text: bytes) -> str:
    """BLAKE2b-128 of a text."""
    return blake2b(text, digest_size=_DIGEST_SIZE).hexdigest()


def size_of(manifest: Manifest) -> int:
    """All files' sizes together, bytes."""
    if manifest is None:
        return 0
    return int(manifest.get("size", 0)) + sum(map(size_of, manifest.get("entries", {}).values()))


def same_entry(system: System, one: str, other: str) -> bool:
    """Whether two paths are the same file, or two of the same content."""
    first, second = system.lstat(one), system.lstat(other)
    if first is None or second is None:
        return first is second
    return os.path.samestat(first, second) or manifest_of(system, one) == manifest_of(system, other)
