"""A DLedger log: the messages in its entries, as a scan of a commit log gives them (`DLedgerCommitLog`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy, read_all
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats import dledger
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import struct_of
from rmqtool.scan.block import BLOCK_SIZE, Block
from rmqtool.scan.events import MAX_MESSAGE_SIZE, Blank, Damage, Reason
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.probe import find_next
from rmqtool.scan.reader import Event
from rmqtool.store.commit_log import LogRange

_HEADER = dledger.ENTRY_HEADER_SIZE
_PIECE_SIZE = 16 << 20  # of a file that is read from its end, bytes: its rows are kept at once
_CHECKPOINT = "checkpoint"
_LARGEST_CHECKPOINT = 4 << 10  # bytes; two lines
_COMMITTED = re.compile(r"^committedIndex=(-?\d{1,18})\s*$", re.ASCII | re.MULTILINE)
_START = struct_of(dledger.ENTRY_DTYPE, "magic", "size")


def scan_entries(files: Sequence[MappedFile], start: int = 0, reading: ReadPolicy = UNLIMITED) -> Iterator[Event]:
    """The messages of all entries, with blanks and damage between them; frames are for use before the next step.

    Only files that begin at `start` or behind it are read.
    The frames are those of the messages, so that they are not contiguous: an entry's header stands before each.
    """
    block, previous_end = Block(), None
    for mapped in files:
        if mapped.start_offset < start:
            continue
        if previous_end is not None and previous_end < mapped.start_offset:
            yield Damage(previous_end, mapped.start_offset - previous_end, "missing")
        previous_end = mapped.end_offset
        with InputFile(mapped.path, reading) as file:
            yield from _EntryScan(block, file, mapped.start_offset).events()


def scan_backwards(mapped: MappedFile, reading: ReadPolicy = UNLIMITED) -> Iterator[Iterator[Event]]:
    """The events of one file piece by piece, the last piece first; within a piece in the order of the log.

    A piece must be used before the next one. Sizes lead forwards only: the file is read once to find where the pieces
    begin, and then piece by piece.
    """
    borders = [mapped.start_offset]
    for event in scan_entries([mapped], reading=reading):
        end = event.physical_offset + event.size
        if end - borders[-1] >= _PIECE_SIZE:
            borders.append(end)
    borders.append(mapped.end_offset)
    block = Block()
    with InputFile(mapped.path, reading) as file:
        scan = _EntryScan(block, file, mapped.start_offset)
        for first, end in reversed(list(pairwise(borders))):
            yield scan.events(first - mapped.start_offset, end - mapped.start_offset)


def committed_index(node: Path) -> int | None:
    """The Raft index up to which entries were committed when the checkpoint in a node's directory was last written.

    A node writes it every few seconds and at a clean stop: later entries may be committed too, and may be overwritten
    after a change of the leader. None without a checkpoint (`DLedgerMmapFileStore#persistCheckPoint`).
    """
    try:
        text = decode_text(read_all(node / _CHECKPOINT, _LARGEST_CHECKPOINT))
    except RmqtoolError:
        return None
    match = _COMMITTED.search(text)
    return int(match[1]) if match else None


def dledger_range(files: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED) -> LogRange:
    """The range of a DLedger log, from its first and its last file with entries."""
    if not files:
        return LogRange()
    first = next((event for event in scan_entries(files[:1], reading=reading) if isinstance(event, RecordRun)), None)
    end, last_timestamp = files[0].start_offset, None
    for mapped in reversed(files):
        for event in scan_entries([mapped], reading=reading):
            end = event.physical_offset + event.size
            if isinstance(event, RecordRun):
                last_timestamp = int(event.headers.field("store_timestamp")[-1])
        if last_timestamp is not None:
            break
    first_timestamp = None if first is None else int(first.headers.field("store_timestamp")[0])
    return LogRange(files[0].start_offset, end, first_timestamp, last_timestamp)


class _EntryScan:
    """The scan of one file of entries; positions are in the file, bytes."""

    def __init__(self, block: Block, file: InputFile, start_offset: int) -> None:
        self._block = block
        self._file = file
        self._start_offset = start_offset

    def events(self, position: int = 0, stop: int = MAX_OFFSET) -> Iterator[Event]:
        """Runs of messages, blanks and damage in order, from where an entry begins to before `stop`."""
        while position + _START.size <= self._file.size and position < stop:
            length = min(BLOCK_SIZE, self._file.size - position)
            magic, size = _START.unpack(self._file.read(position, _START.size))
            if magic == dledger.MAGIC_BLANK:
                yield Blank(self._start_offset + position, self._file.size - position)
                return
            if magic == dledger.MAGIC_ENTRY and _HEADER < size <= MAX_MESSAGE_SIZE:
                length = max(length, min(size, self._file.size - position))
            self._block.fill(self._file, position, length, self._start_offset + position)
            frames, end = self._run()
            if frames is not None:
                yield frames
                position += end
                continue
            if self._file.next_data(position, self._file.size) == self._file.size:
                return
            after = self._resume(position)
            reason: Reason = "magic-code" if magic != dledger.MAGIC_ENTRY else "lengths"
            end_of_data = self._file.data_end(position) if after == self._file.size else after
            yield Damage(self._start_offset + position, end_of_data - position, reason, after == self._file.size)
            position = after

    def _run(self) -> tuple[RecordRun | None, int]:
        """The sound messages at the head of the block, and where their last entry ends in it."""
        positions, at, view = [], 0, self._block.view
        while at + _HEADER <= self._block.length:
            magic, size = _START.unpack_from(view, at)
            if magic != dledger.MAGIC_ENTRY or size <= _HEADER or at + size > self._block.length:
                break
            positions.append(at + _HEADER)
            at += size
        if not positions:
            return None, 0
        ends = [*positions[1:], at + _HEADER]
        frames = sound_prefix(self._block, np.array(positions, dtype=np.intp))
        fitting = frames.message_sizes == np.array(ends[: len(frames)]) - frames.positions - _HEADER
        count = len(frames) if fitting.all() else int(np.argmin(fitting))
        return (frames[:count], ends[count - 1] - _HEADER) if count else (None, 0)

    def _resume(self, position: int) -> int:
        """Where the next entry with a sound message begins behind `position`; the end of the file without one."""
        message_position = position + _HEADER
        while True:
            message_position = find_next(self._file, self._start_offset, message_position + 1)
            if message_position >= self._file.size or message_position - _HEADER > position:
                return message_position - _HEADER if message_position < self._file.size else self._file.size
