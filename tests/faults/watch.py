"""What happens to the calls of a command that change something below a directory, and what they were."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.shim import shim
from tests.transaction.disk import Disk
from tests.transaction.faults import TAKES_SPACE

CALLS = ("open_to_write", "reopen", "write", "set_size", "sync", "set_owner", "set_mode", "set_mtime",
         "make_directory", "link", "rename", "exchange", "unlink", "remove_directory", "close", "sync_all")  # fmt: skip
"""The calls that bad_writes.c knows, by the names that `System` gives them; `reopen` opens a file that is there."""

_CHANGES = frozenset(CALLS) - {"reopen", "close"}
_DENIED = frozenset(CALLS) - {"write", "set_size", "sync", "sync_all", "close"}
_HEAD = struct.Struct("=qIIII")
_EMPTIED = 2


@dataclass(frozen=True)
class Fault:
    """One of the faults of bad_writes.c, and the calls that it is for; with `goes_on` it stays."""

    how: str
    calls: frozenset[str]
    error: int = 0
    goes_on: bool = False


_HOW = ("nothing", "kill-before", "kill-after", "stop", "fail", "short")
_WRITES, _SPACE = frozenset({"write"}), frozenset(TAKES_SPACE) & frozenset(CALLS)
FAULTS = {
    "kill-before": Fault("kill-before", _CHANGES),
    "kill-after": Fault("kill-after", _CHANGES),
    "fail-once": Fault("fail", frozenset(CALLS), errno.EIO),
    "fail-on": Fault("fail", frozenset(CALLS), errno.EIO, goes_on=True),
    "full-once": Fault("fail", _SPACE, errno.ENOSPC),
    "full-on": Fault("fail", _SPACE, errno.ENOSPC, goes_on=True),
    "short-once": Fault("short", _WRITES),
    "short-full": Fault("short", _SPACE, errno.ENOSPC, goes_on=True),
    "denied-once": Fault("fail", _DENIED, errno.EACCES),
    "denied-on": Fault("fail", _DENIED, errno.EACCES, goes_on=True),
}
"""What may happen to a call: those of tests/transaction/faults.py, a disk that is full in a write, lost rights."""

STOP = Fault("stop", _CHANGES)
"""The process stops, and another one may do what it likes."""


def watch(root: Path, fault: Fault | None = None, at: int = 0, log: int = -1) -> None:
    """Let a fault come at call number `at` below a directory, and write down the calls in a file that is open."""
    how = fault or Fault("nothing", frozenset())
    kinds = sum(1 << number for number, name in enumerate(CALLS) if name in how.calls)
    path = os.fsencode(f"{os.path.realpath(root)}/")
    shim().bad_watch(path, _HOW.index(how.how), how.error, how.goes_on, kinds, at, log)


def unwatch() -> int:
    """Let all calls be as they are; how many had the fault."""
    hits = shim().bad_hits()
    shim().bad_watch(b"", 0, 0, 0, 0, 0, -1)
    return int(hits)


def places(names: list[str], fault: Fault) -> list[int]:
    """The calls at which a fault makes a difference."""
    return [number for number, name in enumerate(names) if name in fault.calls]


@dataclass(frozen=True)
class Call:
    """A call that was made: its name and paths, a number (flags, position, size or time), and what was written."""

    name: str
    path: str
    other: str
    number: int
    data: bytes

    def play(self, disk: Disk, root: str) -> None:
        """Let it happen on the model of a disk that has the directory `root`."""
        if not self.path.startswith(f"{root}/") or self.path.endswith(" (deleted)"):
            return
        if self.name == "open_to_write":
            disk.play("create", (self.path,))
        elif self.name == "reopen" and self.number & _EMPTIED:
            disk.play("set_size", (self.path, 0))
        elif self.name == "write":
            disk.play("write", (self.path, self.data, self.number))
        elif self.name in ("set_size", "set_mtime"):
            disk.play(self.name, (self.path, self.number))
        elif self.name in ("link", "rename", "exchange"):
            disk.play(self.name, (self.path, self.other))
        elif self.name in ("sync", "make_directory", "unlink", "remove_directory"):
            disk.play(self.name, (self.path,))
        elif self.name == "sync_all":
            disk.play(self.name, ())


def calls_in(log: bytes) -> Iterator[Call]:
    """What was written down."""
    at = 0
    while at < len(log):
        number, kind, *sizes = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        parts = []
        for size in sizes:
            parts.append(log[at : at + size])
            at += size
        path, other, data = parts
        yield Call(CALLS[kind], os.fsdecode(path), os.fsdecode(other), number, data)
