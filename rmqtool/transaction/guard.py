"""Writers keep brokers out: refuse a store that somebody runs on, and hold the broker's own lock while writing.

A broker takes `lock` only after its recovery (`DefaultMessageStore#start`). One that still recovers shows in
``rocksdbstore/LOCK`` (from 5.4.0), by the process id in `abort` (from 5.0.0), or by its maps of the store's files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from rmqtool.base.errors import UnwritableError
from rmqtool.store.lock import HELD_HERE, LOCK_FILE, Holder, lock_holder
from rmqtool.transaction.attributes import Neighbours, set_attributes
from rmqtool.transaction.paths import StorePaths
from rmqtool.transaction.system import System

_PROC = Path("/proc")
_COMMIT_LOG = "commitlog"
# struct flock of Linux: type, whence, start, length, process id (0 for a lock of an open file description).
_BYTE_0 = struct.Struct("@hhqqi4x").pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", None)


class StoreGuard:
    """Byte 0 of `lock`, held from `acquire` to `release`.

    Where the system has them, the lock is one of the open file description: it meets Java's as any record lock does,
    yet closing another descriptor of the file does not release it. Elsewhere `HELD_HERE` keeps `lock_holder` from
    opening the file a second time.
    """

    def __init__(self, paths: StorePaths, neighbours: Neighbours, system: System) -> None:
        self._paths = paths
        self._neighbours = neighbours
        self._system = system
        self._descriptor = -1
        self._key: tuple[int, int] | None = None

    def acquire(self) -> None:
        """Take the lock; raise StoreInUseError while anybody runs on the store."""
        self.refuse_holder()
        self._descriptor = self._open()
        try:
            _lock(self._descriptor, self._paths.path(LOCK_FILE))
            status = os.fstat(self._descriptor)
            self._key = (status.st_dev, status.st_ino)
            HELD_HERE.add(self._key)
            self.refuse_holder()  # one that began to recover between the first check and the lock
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let go; the file stays, as after a broker: removing it could part two that wait for it."""
        if self._key:
            HELD_HERE.discard(self._key)
            self._key = None
        if self._descriptor >= 0:
            self._system.release(self._descriptor)
            self._descriptor = -1

    def refuse_holder(self) -> None:
        """Raise StoreInUseError while anybody else runs on the store, or recovers, and asks for the lock only then."""
        root = Path(self._paths.root)
        holder = lock_holder(root) or _process_with_maps(root)
        if holder:
            raise holder.refusal(root)

    def _open(self) -> int:
        path = self._paths.path(LOCK_FILE)
        if self._system.lstat(path):
            return self._system.open_to_write(path, create=False)
        wanted = self._neighbours.attributes_for(LOCK_FILE, directory=False)
        descriptor = self._system.open_to_write(path, create=True)
        try:
            set_attributes(self._system, path, wanted)
        except BaseException:
            self._system.close(descriptor)
            self._system.unlink(path)  # a broker of another user could not open it
            raise
        return descriptor


def _lock(descriptor: int, path: str) -> None:
    try:
        if _SET_LOCK is None:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            return
        try:
            fcntl.fcntl(descriptor, _SET_LOCK, _BYTE_0)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise Holder(None, LOCK_FILE).refusal(Path(path).parent) from error
        raise UnwritableError(
            f"cannot be locked: {(error.strerror or str(error)).lower()}",
            file=path,
            hint="copy the store to a local file system: without locks a broker can't be kept out",
        ) from error


def _process_with_maps(root: Path) -> Holder | None:
    """A process that maps files of the store: a broker that recovers and holds no lock yet."""
    files = _files_of(root / _COMMIT_LOG)
    below = b" " + os.fsencode(root.resolve()) + b"/"
    own = os.getpid()
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        pid = int(entry.name)
        if pid != own and _maps(entry / "maps", below, files):
            return Holder(pid, f"/proc/{pid}/maps")
    return None


def _maps(path: Path, below: bytes, files: set[tuple[bytes, bytes]]) -> bool:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:  # it has ended, or belongs to somebody else
        return False
    return any(below in line or _file_of(line) in files for line in lines)


def _file_of(line: bytes) -> tuple[bytes, bytes]:
    """Device and inode of a mapped file: a broker in a container has another path for it."""
    fields = line.split(None, 5)
    return (fields[3], fields[4]) if len(fields) > 4 else (b"", b"")


def _files_of(directory: Path) -> set[tuple[bytes, bytes]]:
    device_and_inodes = set()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat()
                device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
                device_and_inodes.add((device.encode(), b"%d" % status.st_ino))
    except OSError:
        pass  # no such directory, or a file that vanished: the locks were asked already
    return device_and_inodes
