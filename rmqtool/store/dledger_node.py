"""What a node of a DLedger group keeps beside its entries (`DLedgerMmapFileStore`)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile, read_all
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.dledger import ENTRY_DTYPE
from rmqtool.formats.java import decode_text
from rmqtool.store.store import Store

NODE_CHECKPOINT = "checkpoint"
_LARGEST_CHECKPOINT = 4 << 10  # bytes; two lines
_CURRENT_TERM = "currterm"
_TERM = re.compile(r"^currTerm=(\d{1,18})\s*$", re.ASCII | re.MULTILINE)
_COMMITTED_TEXT = re.compile(r"^committedIndex=(.*)$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_COMMITTED = re.compile(r"^committedIndex=(-?\d{1,18})\s*$", re.ASCII | re.MULTILINE)


def committed_index(node: Path) -> int | None:
    """The Raft index up to which entries were committed when the checkpoint in a node's directory was last written.

    A node writes it every few seconds and at a clean stop: later entries may be committed too, and may be overwritten
    after a change of the leader. None without a checkpoint (`DLedgerMmapFileStore#persistCheckPoint`).
    """
    return _number(node / NODE_CHECKPOINT, _COMMITTED)


def unreadable_committed_index(node: Path) -> str | None:
    """What stands in a node's checkpoint in place of the number; None where the node starts with it.

    It does so without a checkpoint, without that line and with nothing in it (`DLedgerMmapFileStore#recover`).
    """
    match = _COMMITTED_TEXT.search(_text(node / NODE_CHECKPOINT) or "")
    text = match[1].strip() if match else ""
    return text if text and not _NUMBER.fullmatch(text) else None


def current_term(node: Path) -> int | None:
    """The Raft term that a node was in; it writes each before it votes in it, or takes an entry of it.

    None without that file (`MemberState#persistTerm`).
    """
    return _number(node / _CURRENT_TERM, _TERM)


def _number(path: Path, pattern: re.Pattern[str]) -> int | None:
    match = pattern.search(_text(path) or "")
    return int(match[1]) if match else None


def _text(path: Path) -> str | None:
    try:
        return decode_text(read_all(path, _LARGEST_CHECKPOINT))
    except RmqtoolError:
        return None


@dataclass(frozen=True)
class Entry:
    """The Raft index and term of an entry."""

    index: int
    term: int


def entry_of(files: Iterable[MappedFile], physical_offset: int) -> Entry | None:
    """The entry of the message at an offset; None for one of a plain log. Raises UnreadableError."""
    mapped = file_at(files, physical_offset)
    if mapped is None or not mapped.header_size:
        return None
    position = physical_offset - mapped.start_offset - mapped.header_size
    with InputFile(mapped.path) as file:
        header = np.frombuffer(file.read(position, ENTRY_DTYPE.itemsize), ENTRY_DTYPE)[0]
    return Entry(int(header["index"]), int(header["term"]))


EPOCH_FILE = "epochFileCheckpoint"

_LARGEST = 1 << 20  # bytes
_POSITIVE = 0x7FFFFFFF  # UtilAll#crc32
_ENTRY = re.compile(r"(\d{1,10})-(\d{1,19})\r?\n?", re.ASCII)
_EPOCH_NUMBER = re.compile(r"\d{1,10}", re.ASCII)


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
    if len(head) < 2 or not all(map(_EPOCH_NUMBER.fullmatch, head)) or not all(matches):
        raise ValueError(f"{EPOCH_FILE}: not a list of epochs")
    if int(head[0]) != len(body):
        raise ValueError(f"{EPOCH_FILE}: {head[0]} entries announced, {len(body)} found")
    if int(head[1]) and int(head[1]) != zlib.crc32("".join(body).encode()) & _POSITIVE:
        raise ValueError(f"{EPOCH_FILE}: wrong CRC")
    return tuple(Epoch(int(match[1]), int(match[2])) for match in matches if match)
