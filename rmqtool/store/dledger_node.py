"""What a node of a DLedger group keeps beside its entries (`DLedgerMmapFileStore`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile, read_all
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.dledger import ENTRY_DTYPE
from rmqtool.formats.java import decode_text

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
