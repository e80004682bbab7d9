"""Whether a broker runs on a store: its record locks are queried and never taken (`DefaultMessageStore#start`)."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from contextlib import suppress
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
_OF_DESCRIPTION = -1  # the process of a lock of an open file description, as writers of ours take it on Linux
_WRITERS = ("repair", "rebuild-cq", "rebuild-index", "undo", "clean", "convert", "salvage", "replay", "copy", "cut")


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock of the store; `pid` is None where the system does not give it.

    `program` is ``rmqtool COMMAND`` where it is a run of ours; None for another program, or one that cannot be seen.
    """

    pid: int | None
    file: str
    program: str | None = None

    @property
    def who(self) -> str:
        """The process, for people."""
        process = f"process {self.pid}" if self.pid else "another process"
        return f"{self.program} ({process})" if self.program else process

    def refusal(self, root: Path, *, effect: str = "nothing is written", hint: str | None = None) -> StoreInUseError:
        """The error of a command that needs the store at `root` for itself."""
        if hint is None:
            hint = "wait until it ends, or answer its question" if self.program else "stop the broker"
            hint += ", or work on a copy of the store"
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
            return Holder(pid, name, program_of(pid)) if pid != _OF_DESCRIPTION else _run_of_ours(root, name)
    pid = _abort_process_id(root)
    if pid is not None and _maps_files_of(pid, root):
        return Holder(pid, ABORT_FILE)
    return None


def unclean_stop(root: Path) -> dict[str, str]:
    """What is known of the file `abort` where no holder of a lock is seen: on another machine none can be seen."""
    return {"problem": "remote"} if is_remote(root) else {}


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
    return kind != fcntl.F_UNLCK, pid if pid > 0 or pid == _OF_DESCRIPTION else None


def _run_of_ours(root: Path, name: str) -> Holder:
    """The run of ours that holds a lock of an open file description, which no broker takes and which names no process.

    Its process is the one of ours that has the file open, where we may see that.
    """
    path = os.path.realpath(root / name)
    for entry in Path("/proc").glob("[0-9]*") if os.path.isdir("/proc") else ():
        pid = int(entry.name)
        program = program_of(pid)
        if program and pid != os.getpid() and _has_open(pid, path):
            return Holder(pid, name, program)
    return Holder(None, name, "rmqtool")


def _has_open(pid: int, path: str) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == path:
                    return True
    return False


def program_of(pid: int | None) -> str | None:
    """``rmqtool COMMAND`` where a process is a run of ours; None for others, and where its command line is hidden."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return None
    names = [Path(word).name for word in words]
    at = 0
    if names[0].startswith("python"):  # which is followed by its options, and the script, or -m and the module
        at = next((at for at, name in enumerate(names[1:], 1) if not name.startswith("-")), 0)
    if names[at] != "rmqtool":
        return None
    command = next((word for word in words[at + 1 :] if word in _WRITERS), None)
    return f"rmqtool {command}" if command else "rmqtool"


def _question() -> bytes:
    """Byte 0, as Java locks it: ``tryLock(0, 1, false)``; RocksDB's lock of the whole file covers it too."""
    if _ON_MACOS:
        return _FLOCK.pack(0, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


def has_abort(root: Path) -> bool:
    """Whether the file `abort` is there: a broker runs, or the last one was killed (`isTempFileExist` of its store)."""
    return (root / ABORT_FILE).exists()


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
