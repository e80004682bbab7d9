"""Whether a broker runs on a store: its record locks are queried and never taken (`DefaultMessageStore#start`)."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import StoreInUseError, UnreadableError, WrongKindError, note_failure
from rmqtool.base.files import InputFile, read_all
from rmqtool.base.paths import is_remote

LOCK_FILE = "lock"
ROCKSDB_LOCK_FILE = "rocksdbstore/LOCK"  # since 5.4.0, held from before the recovery on
ABORT_FILE = "abort"

HELD_HERE: set[tuple[int, int]] = set()
"""Device and inode of the lock files that this process holds itself: opening and closing one could release it."""

# struct flock: type, whence, start, length, process id; on macOS start, length, process id, type, whence.
_ON_MACOS = sys.platform == "darwin"
_FLOCK = struct.Struct("@qqihh" if _ON_MACOS else "@hhqqi4x")
_MAX_PROCESS_ID_SIZE = 20


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock of the store; `pid` is None where the system does not give it."""

    pid: int | None
    file: str

    @property
    def who(self) -> str:
        """The process, for people."""
        return f"process {self.pid}" if self.pid else "another process"

    def refusal(
        self,
        root: Path,
        *,
        effect: str = "nothing is written",
        hint: str = "stop the broker, or work on a copy of the store",
    ) -> StoreInUseError:
        """The error of a command that needs the store at `root` for itself."""
        return StoreInUseError(f"in use by {self.who} (seen in {self.file}): {effect}", file=root, hint=hint)


def lock_holder(root: Path) -> Holder | None:
    """The broker that runs on the store at `root`, or None.

    POSIX record locks are queried with F_GETLK, which needs no right to write. Before 5.4.0 a broker that is still
    recovering holds no lock: the process whose id is in `abort` is checked for maps of the store's files.
    A lock that this process holds itself, see `HELD_HERE`, does not count. On another machine no lock can be seen.
    """
    if is_remote(root):
        return None
    for name in (LOCK_FILE, ROCKSDB_LOCK_FILE):
        is_locked, pid = _record_lock(root / name)
        if is_locked:
            return Holder(pid, name)
    pid = _abort_process_id(root)
    if pid is not None and _maps_files_of(pid, root):
        return Holder(pid, ABORT_FILE)
    return None


def _record_lock(path: Path) -> tuple[bool, int | None]:
    try:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in HELD_HERE:
            return False, None
        with InputFile(path) as file:
            answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, _question())
    except OSError as error:
        if error.errno in (errno.EIO, errno.ESTALE):
            note_failure(path, error)
        return False, None  # no such file, or a file system without locks: nobody can hold it
    except (UnreadableError, WrongKindError):
        return False, None
    fields = _FLOCK.unpack(answer)
    kind, pid = (fields[3], fields[2]) if _ON_MACOS else (fields[0], fields[4])
    return kind != fcntl.F_UNLCK, pid if pid > 0 else None


def _question() -> bytes:
    """Byte 0, as Java locks it: ``tryLock(0, 1, false)``; RocksDB's lock of the whole file covers it too."""
    if _ON_MACOS:
        return _FLOCK.pack(0, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


def _abort_process_id(root: Path) -> int | None:
    """The process id that brokers since 5.0.0 leave in `abort`."""
    try:
        text = read_all(root / ABORT_FILE, _MAX_PROCESS_ID_SIZE)
    except (UnreadableError, WrongKindError):
        return None
    return int(text) if text.isdigit() else None


def _maps_files_of(pid: int, root: Path) -> bool:
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False
    return b" " + os.fsencode(root.resolve()) + b"/" in maps  # the path is a line's last field, behind spaces
