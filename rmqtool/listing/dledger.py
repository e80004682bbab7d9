"""The messages in a DLedger log, each with its Raft index and term, and the units of its index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtool.files import InputFile
from rmqtool.formats import dledger
from rmqtool.listing.options import ListingOptions
from rmqtool.listing.units import hex_of, read_units
from rmqtool.locate import Place
from rmqtool.looks import require_kind
from rmqtool.mapped_files import MappedFile
from rmqtool.messages import extent_row, message_rows
from rmqtool.rows import Rows, make_rows, names_taken
from rmqtool.scan.block import BLOCK_SIZE, Block
from rmqtool.scan.events import MAX_MESSAGE_SIZE, Blank, Damage, Reason
from rmqtool.scan.frames import Frames, prove
from rmqtool.scan.probe import find_next
from rmqtool.scan.text import constant_strings

_HEADER = dledger.ENTRY_HEADER_SIZE
_START = Struct(">ii")  # magic and size
_INDEX_KINDS = ("empty", "dledger_index_unit")
RAFT_COLUMNS = ("dledger_index", "dledger_term")


def list_entries(place: Place, options: ListingOptions) -> Iterator[Rows]:
    """The messages of all entries, with blanks and damage between them; offsets are those of the messages."""
    block = Block()
    for mapped in reversed(place.files) if options.reverse else place.files:
        with InputFile(mapped.path, options.reading) as file:
            rows = _file_rows(_EntryScan(block, file, mapped.start_offset), place, mapped, options)
            yield from reversed([part.reversed() for part in rows]) if options.reverse else rows


def list_dledger_index(place: Place, options: ListingOptions) -> Iterator[Rows]:
    """The units of the index: where the entry of each Raft index stands."""
    for mapped in reversed(place.files) if options.reverse else place.files:
        require_kind(mapped.path, place.kind)
        for block in read_units(mapped, dledger.INDEX_DTYPE, options.reading, options.reverse):
            columns: dict[str, Any] = {
                "file": constant_strings(place.relative(mapped.path), len(block.units)),
                "number": block.numbers + mapped.start_offset // dledger.INDEX_UNIT_SIZE,
                **{name: block.units[name] for name in ("position", "size", "index", "term")},
            }
            if options.with_hex:
                columns["hex"] = hex_of(block.units)
            kinds = names_taken(_INDEX_KINDS, dledger.is_written(block.units).astype(np.int32))
            rows = make_rows(kinds, columns)
            yield rows.reversed() if options.reverse else rows


def _file_rows(scan: _EntryScan, place: Place, mapped: MappedFile, options: ListingOptions) -> Iterator[Rows]:
    filters = options.filters
    for event in scan.events():
        if isinstance(event, Frames):
            offsets = event.physical_offsets
            inside = (offsets >= filters.start) & (offsets < filters.stop)
            if not inside.any():
                continue
            frames = filters.select(event if inside.all() else prove(event.block, event.positions[inside]))
            if frames is not None:
                file = place.relative(mapped.path)
                yield from (_with_raft(rows, frames) for rows in message_rows(frames, file, options.shape))
        elif filters.start <= event.physical_offset < filters.stop:
            yield extent_row(event)


def _with_raft(rows: Rows, frames: Frames) -> Rows:
    """Rows of messages with what the entries' headers tell."""
    if len(rows) != len(frames):  # large bodies came in parts
        return rows
    headers = frames.block.gather(dledger.ENTRY_DTYPE, frames.positions - _HEADER)
    batch = rows.batch
    for name in RAFT_COLUMNS:
        values = headers[name.removeprefix("dledger_")].astype(np.int64)
        batch = batch.append_column(name, pa.array(values))
    return replace(rows, batch=batch)


class _EntryScan:
    """The scan of one file of entries; positions are in the file, bytes."""

    def __init__(self, block: Block, file: InputFile, start_offset: int) -> None:
        self._block = block
        self._file = file
        self._start_offset = start_offset

    def events(self) -> Iterator[Frames | Blank | Damage]:
        """Runs of messages, blanks and damage in order."""
        position = 0
        while position + _START.size <= self._file.size:
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

    def _run(self) -> tuple[Frames | None, int]:
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
        frames = prove(self._block, np.array(positions, dtype=np.intp))
        fitting = frames.message_sizes == np.array(ends[: len(frames)]) - frames.positions - _HEADER
        count = len(frames) if fitting.all() else int(np.argmin(fitting))
        return (frames[:count], ends[count - 1] - _HEADER) if count else (None, 0)

    def _resume(self, position: int) -> int:
        """Where the next entry with a sound message begins behind `position`; the end of the file without one."""
        found = position + _HEADER
        while True:
            found = find_next(self._file, self._start_offset, found + 1)
            if found >= self._file.size or found - _HEADER > position:
                return found - _HEADER if found < self._file.size else self._file.size
