"""Brokers that begin to recover while a command holds the store: it is started again and again, and nobody stopped it.

A broker takes `lock` only after its recovery (`DefaultMessageStore#start`). Where it finds the lock taken it ends, but
has cut and deleted files of the log by then, put index units again, and writes its tables when it ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rmqtool.base.paths import DirectoryEntry, entry_path
from rmqtool.store.lock import LOCK_FILE, ROCKSDB_LOCK_FILE, Holder
from rmqtool.store.store import COMMIT_LOG, CONFIG, INDEX
from rmqtool.store.which_log import entries_of

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
