"""The epochs of a broker under a controller, each from an offset of the log on (`EpochFileCache`)."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.store.store import Store

EPOCH_FILE = "epochFileCheckpoint"

_LARGEST = 1 << 20  # bytes
_POSITIVE = 0x7FFFFFFF  # UtilAll#crc32
_ENTRY = re.compile(r"(\d{1,10})-(\d{1,19})\r?\n?", re.ASCII)
_NUMBER = re.compile(r"\d{1,10}", re.ASCII)


@dataclass(frozen=True, order=True)
class Epoch:
    """A master's term: its number, and the physical offset at which its messages begin."""

    number: int
    start_offset: int


@dataclass(frozen=True)
class Epochs:
    """The epochs that a start of the broker would load, ascending; `problem` says what is wrong with the file."""

    entries: tuple[Epoch, ...] = ()
    problem: str | None = None

    def ends(self, log_end: int) -> dict[Epoch, int]:
        """Where each epoch ends: with the next one's start, the last with the log."""
        following = [*(epoch.start_offset for epoch in self.entries[1:]), log_end]
        return dict(zip(self.entries, following, strict=False))


def load_epochs(store: Store) -> Epochs:
    """Read the file, or its ``.bak`` where it is empty or broken; without either there are no epochs."""
    path = store.root / EPOCH_FILE
    try:
        return Epochs(_entries_in(path))
    except (RmqtoolError, ValueError) as error:
        missing = isinstance(error.__cause__, FileNotFoundError)
        problem = None if missing else str(error)
    try:
        return Epochs(_entries_in(path.with_name(f"{EPOCH_FILE}.bak")), problem)
    except (RmqtoolError, ValueError):
        return Epochs((), problem)


def _entries_in(path: Path) -> tuple[Epoch, ...]:
    """The entries of one file; raise RmqtoolError or ValueError."""
    lines = read_all(path, _LARGEST).decode("latin-1").splitlines(keepends=True)
    head, body = [line.strip() for line in lines[:2]], lines[2:]
    matches = [_ENTRY.fullmatch(line) for line in body]
    if len(head) < 2 or not all(map(_NUMBER.fullmatch, head)) or not all(matches):
        raise ValueError(f"{EPOCH_FILE}: not a list of epochs")
    if int(head[0]) != len(body):
        raise ValueError(f"{EPOCH_FILE}: {head[0]} entries announced, {len(body)} found")
    if int(head[1]) and int(head[1]) != zlib.crc32("".join(body).encode()) & _POSITIVE:
        raise ValueError(f"{EPOCH_FILE}: wrong CRC")
    return tuple(Epoch(int(match[1]), int(match[2])) for match in matches if match)
