"""Which of the saved messages the new store gets, where not all of them are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from rmqtool.base.errors import ChangedError
from rmqtool.base.files import InputFile
from rmqtool.rules.system_topics import REVIVE_PREFIX
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.salvage.compact_log import places
from rmqtool.salvage.extents import Extents
from rmqtool.salvage.layout import Layout
from rmqtool.salvage.sources import Sources
from rmqtool.scan.block import BLOCK_SIZE, Block
from rmqtool.scan.chain import chain
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun, sound_prefix

QueueOffsets = Literal["keep", "new"]


@dataclass(frozen=True)
class Selection:
    """The filters, and whether the messages keep their queue offsets or are counted again."""

    filters: Filters
    queue_offsets: QueueOffsets

    @cached_property
    def effective_filters(self) -> Filters:
        """The filters, without what offsets that change make wrong: records of POP name queue offsets of others."""
        if self.queue_offsets == "keep":
            return self.filters
        excluded = (*self.filters.excluded_topics, f"{REVIVE_PREFIX}*")
        return replace(self.filters, excluded_topics=excluded)


class Piece(NamedTuple):
    """Records one after the other, no more than a block: the number of their extent, and a position in its file."""

    extent: int
    position: int
    size: int


@dataclass
class Chosen:
    """What is chosen of a log: messages, bytes, store times, and the pieces of the sources that have any of it.

    The new log goes from `start_offset` to `end`, in files of `file_size` bytes up to `file_end`.
    """

    start_offset: int
    file_size: int
    messages: int = 0
    size: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    pieces: list[Piece] = field(default_factory=list)
    end: int = field(init=False)
    file_end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.file_end = self.start_offset

    @property
    def files(self) -> int:
        """Files of the new log."""
        return (self.file_end - self.start_offset) // self.file_size

    def add(self, piece: Piece, frames: RecordRun) -> None:
        """Count chosen records of a piece."""
        times, sizes = frames.headers.field("store_timestamp"), frames.message_sizes.astype(np.int64)
        for rows, offset in places(sizes, self.end, self.file_end, self.file_size):
            self.end = offset + int(sizes[rows].sum())
            self.file_end = (offset // self.file_size + 1) * self.file_size
        self.messages += len(frames)
        self.size += int(sizes.sum())
        self.first_timestamp = int(times[0]) if self.first_timestamp is None else self.first_timestamp
        self.last_timestamp = int(times[-1])
        self.pieces.append(piece)


def choose(
    layout: Layout, start_offset: int, selection: Selection, sources: Sources, progress: Progress = no_progress
) -> Chosen:
    """Read all records of a log and count those that pass, for a log that begins at `start_offset`.

    `progress` gets the bytes that are done in all.
    """
    chosen, done, copies = Chosen(start_offset, layout.file_size), 0, layout.copies
    for number in range(len(copies)):
        start, size = int(copies[number]["position"]), int(copies[number]["size"])
        for piece, frames in _chosen_in(copies, Piece(number, start, size), selection, sources):
            chosen.add(piece, frames)
            progress(done + piece.position + piece.size - start)
        done += size
        progress(done)
    return chosen


def chosen_runs(layout: Layout, chosen: Chosen, selection: Selection, sources: Sources) -> Iterator[RecordRun]:
    """The chosen records, in the order of the log, a run for each piece; each run is valid until the next one."""
    copies = layout.copies
    for piece in chosen.pieces:
        for _, frames in _chosen_in(copies, piece, selection, sources):
            yield frames


def _chosen_in(
    copies: Extents, piece: Piece, selection: Selection, sources: Sources
) -> Iterator[tuple[Piece, RecordRun]]:
    filters = selection.effective_filters
    for part, run in runs_of(copies, piece, sources):
        low, high = np.searchsorted(run.physical_offsets, (filters.start, filters.stop))
        frames = filters.select(run[int(low) : int(high)]) if high > low else None
        if frames is not None:
            yield part, frames


def runs_of(copies: Extents, piece: Piece, sources: Sources) -> Iterator[tuple[Piece, RecordRun]]:
    """The records of a piece, in parts of a block; raises ChangedError where they are not there any more."""
    extent = copies[piece.extent]
    file, block = sources.file(int(extent["input"])), sources.block
    shift, header_size = int(extent["physical_offset"] - extent["position"]), int(extent["header_size"])
    position, end = piece.position, piece.position + piece.size
    while position < end:
        size = min(BLOCK_SIZE, end - position)
        frames = _frames(block, file, position, size, shift, header_size)
        if frames is None:  # a record that is larger than a block
            size = sources.record_size(extent, position + shift)
            is_there = 0 < size <= end - position
            frames = _frames(block, file, position, size, shift, header_size) if is_there else None
        if frames is None:
            raise ChangedError("the file has changed while it was read", file=file.path, offset=position)
        read = frames.size + header_size
        yield Piece(piece.extent, position, read), frames
        position += read


def _frames(block: Block, file: InputFile, position: int, size: int, shift: int, header_size: int) -> RecordRun | None:
    block.fill(file, position, size, position + shift)
    positions = chain(block, 0, header_size=header_size)
    frames = sound_prefix(block, positions) if len(positions) else None
    return frames or None
