"""A store that may be written: no broker is running on it, we hold its lock, and no interrupted run is left.

A broker takes `lock` only after its recovery (`DefaultMessageStore#start`). One that still recovers shows in
``rocksdbstore/LOCK`` (from 5.4.0), by the process id in `abort` (from 5.0.0), or by its maps of the store's files; one
that began after us, found the lock taken and has ended, by what it has written (`newcomers`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from rmqtool.base.errors import StoreInUseError, UnwritableError, notice
from rmqtool.base.paths import DirectoryEntry, entry_path
from rmqtool.base.signals import deferred_signals
from rmqtool.findings.finding import first_of
from rmqtool.store.lock import HELD_HERE, LOCK_FILE, ROCKSDB_LOCK_FILE, Holder, lock_holder
from rmqtool.store.store import COMMIT_LOG, CONFIG, INDEX, entries_of
from rmqtool.transaction.home import Home, Recovered
from rmqtool.transaction.mover import Settler
from rmqtool.transaction.paths import StorePaths, set_attributes
from rmqtool.transaction.staging import Assembler
from rmqtool.transaction.system import SYSTEM, System, reported

_S = TypeVar("_S", bound="Session")
_PROC = Path("/proc")

Traces = dict[str, tuple[int, int, int]]
"""Inode, size and time of modification of files, by path."""


def process_with_maps(root: Path) -> Holder | None:
    """A process that maps files of the store, or what was replaced: a broker that recovers and holds no lock yet."""
    files = _files_of(root / COMMIT_LOG)
    below = b" " + os.fsencode(root.resolve()) + b"/"
    own = os.getpid()
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        pid = int(entry.name)
        if pid != own and _maps(entry / "maps", below, files):
            return Holder(pid, f"/proc/{pid}/maps")
    return None


def traces(root: Path, logs: Sequence[Path]) -> Traces:
    """The files to which a broker may write before it asks for the lock, without those of queues.

    `logs` are the directories of the commit log.
    """
    config, rocksdb = root / CONFIG, (root / ROCKSDB_LOCK_FILE).parent
    databases = (entry_path(entry) for entry in entries_of(config) if entry.is_dir())
    places = {root, config, *databases, rocksdb, root / INDEX, root / COMMIT_LOG, *logs}
    return {
        os.fspath(entry.path): (status.st_ino, status.st_size, status.st_mtime_ns)
        for place in places
        for entry, status in _files(place)
        if os.fspath(entry.path) != str(root / LOCK_FILE)
    }


def changed(before: Traces, after: Traces) -> list[str]:
    """The paths of files that came, went or were written to."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _files(directory: Path) -> Iterator[tuple[DirectoryEntry, os.stat_result]]:
    for entry in entries_of(directory):
        status = None
        with suppress(OSError):  # of one that has vanished
            status = entry.stat() if entry.is_file() else None
        if status is not None:
            yield entry, status


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
    return {
        (f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}".encode(), b"%d" % status.st_ino)
        for _, status in _files(directory)
    }


_PAUSE = 0.2  # s
_PATIENCE = 600.0  # s; so long may a broker recover
_SHOWN = 3
# struct flock of Linux: type, whence, start, length, process id (0 for a lock of an open file description).
_BYTE_0 = struct.Struct("@hhqqi4x").pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", None)


class StoreGuard:
    """Byte 0 of `lock`, held from `acquire` to `release`.

    Where the system has them, the lock is one of the open file description: it meets Java's as any record lock does,
    yet closing another descriptor of the file does not release it. Elsewhere `HELD_HERE` keeps `lock_holder` from
    opening the file a second time.
    """

    def __init__(self, paths: StorePaths, logs: Sequence[Path] = ()) -> None:
        """`logs` are the directories of the commit log beside ``commitlog/``."""
        self._paths = paths
        self._logs = logs
        self._seen: Traces = {}
        self._system = paths.system
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
        holder = lock_holder(root) or process_with_maps(root)
        if holder:
            raise holder.refusal(root)

    def remember(self) -> None:
        """Remember the store as it is now, for `refuse_newcomers`."""
        self._seen = traces(Path(self._paths.root), self._logs)

    def refuse_newcomers(self) -> None:
        """Raise StoreInUseError when a broker recovers, or has written to the store since `remember`.

        One that recovers has its files open, and would go on with those that are replaced.
        """
        self.refuse_holder()
        root = Path(self._paths.root)
        names = [os.path.relpath(path, root) for path in changed(self._seen, traces(root, self._logs))]
        if names:
            raise StoreInUseError(
                f"changed by another process since this command began ({first_of(names, _SHOWN)}): nothing is written",
                file=root,
                hint="a broker that is started again and again recovers each time before it finds the store in use: "
                "stop what starts it (systemctl stop), and run this again",
            )

    def outlast_newcomers(self) -> None:
        """Keep the lock while a broker recovers that may have opened what was replaced: it ends without the lock."""
        root, until = Path(self._paths.root), time.monotonic() + _PATIENCE
        holder = process_with_maps(root)
        if holder:
            notice(f"a broker, {holder.who}, began to start meanwhile: the store stays locked until it has ended")
        while holder:
            if time.monotonic() > until:
                effect = "the store is written, but this process may still have replaced files open"
                raise holder.refusal(root, effect=effect, hint="end it, and verify the store before a broker starts")
            time.sleep(_PAUSE)
            holder = process_with_maps(root)

    def _open(self) -> int:
        path = self._paths.path(LOCK_FILE)
        if self._system.lstat(path):
            return self._system.open_to_write(path, create=False)
        wanted = self._paths.attributes_for(LOCK_FILE, directory=False)
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


_ROOT = 0


class Session:
    """Holds the store from `__enter__` to `__exit__`; `recovered` are the interrupted runs that were ended."""

    def __init__(self, root: Path, system: System = SYSTEM, logs: Sequence[Path] = ()) -> None:
        """`logs` are the directories of the commit log beside ``commitlog/``."""
        self._system = system
        self._paths = StorePaths(root, system)
        self._home = Home(self._paths)
        self._assembler = Assembler(self._paths)
        self._settler = Settler(self._home, self._assembler)
        self._guard = StoreGuard(self._paths, logs)
        self._root_mtime_ns = 0
        self.recovered: tuple[Recovered, ...] = ()

    def __enter__(self: _S) -> _S:
        with reported(self._paths.root):
            self._check_rights()
            status = self._system.lstat(str(self._paths.root))  # before `lock`, and our directory, are made
            self._root_mtime_ns = status.st_mtime_ns if status else 0
            self._guard.acquire()
        try:
            self._recover()
            self._guard.remember()
        except BaseException:
            self._guard.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.release()

    def _check_rights(self) -> None:
        """Whoever writes must be able to give new files the owner of the others."""
        owner = self._paths.attributes_for("checkpoint", directory=False).uid
        if os.geteuid() not in (_ROOT, owner):
            raise UnwritableError(
                f"belongs to user {_user_name(owner)}: new files could not be given that owner",
                file=self._paths.root,
                hint=f"run as {_user_name(owner)} or as root",
            )
        if not os.access(self._paths.root, os.W_OK | os.X_OK):
            is_mounted_so = os.statvfs(self._paths.root).f_flag & os.ST_RDONLY
            code = errno.EROFS if is_mounted_so else errno.EACCES
            with reported(self._paths.root):
                raise OSError(code, os.strerror(code))

    def _recover(self) -> None:
        with reported(self._paths.home), deferred_signals():
            self._home.check()
            for name in self._home.names_by_number().values():
                recovered = self._settler.recover(name)
                self.recovered += (recovered,) if recovered else ()
            if self._system.lstat(self._home.path):
                was_staging = self._system.lstat(self._home.staging) is not None
                self._home.clear()
                self.recovered += (Recovered(None, None, "rolled_back"),) if was_staging else ()


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
