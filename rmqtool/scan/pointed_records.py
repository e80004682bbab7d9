"""The records that units point to, many at once: for what units do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, OpenFiles, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import (
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MAX_HEADER_SIZE,
    MIN_MESSAGE_SIZE,
    PREFIX_DTYPE,
)
from rmqtool.scan.block import BLOCK_SIZE, MAX_MESSAGE_SIZE, PADDING, RECORDS_AFTER_DAMAGE, Block, Positions
from rmqtool.scan.columns import record_batches
from rmqtool.scan.filters import Filters, Mask
from rmqtool.scan.frames import Headers, RecordRun, sound_prefix

_OWN_POSITION, _OWN_POSITION_AT = PREFIX_DTYPE["physical_offset"], position_of(PREFIX_DTYPE, "physical_offset")
_GAP = 16 << 10  # bytes between two records that cost less to read along than a read of their own

Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class Heads:
    """Fields of the heads of records, one for each distinct offset, in ascending order.

    `is_record` where the magic code and the stored physical offset are those of a record that begins there and fits
    into its file; the other fields of a row without a record mean nothing.
    """

    offsets: Offsets
    is_record: Mask
    message_sizes: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]


def read_heads(files: Sequence[MappedFile], offsets: Offsets, reading: ReadPolicy = UNLIMITED) -> Heads:
    """The heads of the records at physical offsets, which are distinct and ascend."""
    is_record = np.zeros(len(offsets), dtype=np.bool_)
    sizes, times = np.zeros((2, len(offsets)), dtype=np.int64)
    file_numbers, ends = _files_of(files, offsets)
    rows = np.flatnonzero((file_numbers >= 0) & (offsets < ends))
    stops = np.minimum(offsets[rows] + MAX_HEADER_SIZE, ends[rows])
    for batch, block, positions in _packed(files, file_numbers[rows], offsets[rows], stops, reading):
        chosen = rows[batch]
        headers = Headers(block, positions)
        message_sizes = headers.field("message_size").astype(np.int64)
        magic_codes = headers.field("magic_code")
        fits = (message_sizes >= MIN_MESSAGE_SIZE) & (message_sizes <= MAX_MESSAGE_SIZE)
        fits &= offsets[chosen] + message_sizes <= ends[chosen]
        fits &= (magic_codes == MAGIC_CODE_V1) | (magic_codes == MAGIC_CODE_V2)
        is_record[chosen] = fits & (headers.field("physical_offset") == offsets[chosen])
        sizes[chosen] = message_sizes
        times[chosen] = headers.field("store_timestamp")
    return Heads(offsets, is_record, sizes, times)


def passing_records(
    files: Sequence[MappedFile], heads: Heads, filters: Filters, reading: ReadPolicy = UNLIMITED
) -> tuple[Mask, Mask]:
    """Which records pass the filters, and which are sound to their end; both as long as the heads."""
    passed, sound = np.zeros((2, len(heads.offsets)), dtype=np.bool_)
    for rows, frames in sound_records(files, heads, reading):
        sound[rows] = True
        passed[rows] = np.concatenate([filters.mask(batch) for batch in record_batches(frames, filters.columns)])
    return passed, sound


def sound_records(
    files: Sequence[MappedFile], heads: Heads, reading: ReadPolicy = UNLIMITED
) -> Iterator[tuple[Positions, RecordRun]]:
    """The records that are sound to their end, run by run, and which of the heads they belong to.

    A run is to be used before the next is read; its physical offsets are not those of the log. Records that overlap,
    as no broker writes them, are read one by one.
    """
    rows = np.flatnonzero(heads.is_record)
    starts, sizes = heads.offsets[rows], heads.message_sizes[rows]
    reached = np.maximum.accumulate(starts + sizes)[:-1] if len(rows) else starts
    overlaps = np.concatenate([[False], starts[1:] < reached]) if len(rows) else np.zeros(0, dtype=np.bool_)
    for group in (rows[~overlaps], *rows[overlaps][:, np.newaxis]):
        starts, sizes = heads.offsets[group], heads.message_sizes[group]
        file_numbers, _ = _files_of(files, starts)
        for batch, block, positions in _packed(files, file_numbers, starts, starts + sizes, reading):
            _set_positions(block, positions)
            for chosen, frames in _sound_runs(block, positions):
                yield group[batch][chosen], frames


def records_at(block: Block, positions: Positions, sizes: NDArray[np.int64]) -> Iterator[RecordRun]:
    """The sound records of given sizes in a block, in any order, whose physical offsets become those in the block.

    Of those that overlap each is a run of its own.
    """
    positions, rows = np.unique(positions, return_index=True)
    ends = positions + sizes[rows]
    positions, ends = positions[ends <= block.length], ends[ends <= block.length]
    reached = np.maximum.accumulate(ends)[:-1]
    overlaps = np.concatenate([[False], positions[1:] < reached]) if len(positions) else np.zeros(0, np.bool_)
    for group in (positions[~overlaps], *positions[overlaps][:, np.newaxis]):
        _set_positions(block, group)
        for _, frames in _sound_runs(block, group):
            yield frames


def _files_of(files: Sequence[MappedFile], offsets: Offsets) -> tuple[NDArray[np.intp], Offsets]:
    """The index of the file that may hold each offset (-1: none), and where that file ends, bytes (0: none)."""
    starts = np.array([file.start_offset for file in files], dtype=np.int64)
    ends = np.array([file.end_offset for file in files], dtype=np.int64)
    file_numbers = np.searchsorted(starts, offsets, side="right") - 1
    file_ends = np.zeros(len(offsets), dtype=np.int64)
    file_ends[file_numbers >= 0] = ends[file_numbers[file_numbers >= 0]]
    return file_numbers, file_ends


def _packed(
    files: Sequence[MappedFile], file_numbers: NDArray[np.intp], starts: Offsets, stops: Offsets, reading: ReadPolicy
) -> Iterator[tuple[slice, Block, Positions]]:
    """Ranges of the log, which ascend, in blocks: which ranges, the block, and where each begins in it.

    Ranges that lie near each other are read at once; the spans that are read stand one after the other.
    """
    if not len(starts):
        return
    is_near = (file_numbers[1:] == file_numbers[:-1]) & (starts[1:] - stops[:-1] <= _GAP)
    read = np.cumsum(stops - np.concatenate([starts[:1], np.where(is_near, stops[:-1], starts[1:])]))
    is_full = read[1:] // BLOCK_SIZE != read[:-1] // BLOCK_SIZE
    first_of_span = np.concatenate([[0], np.flatnonzero(~is_near | is_full) + 1])
    borders = np.concatenate([[0], np.flatnonzero(is_full) + 1, [len(starts)]])
    block = Block()
    with closing(OpenFiles(reading)) as open_files:
        for low, high in pairwise(borders.tolist()):
            firsts = first_of_span[slice(*np.searchsorted(first_of_span, (low, high)))]
            lasts = np.append(firsts[1:], high) - 1
            ends = np.cumsum(stops[lasts] - starts[firsts])
            places = ends - (stops[lasts] - starts[firsts])
            block = block if ends[-1] <= block.size else Block(int(ends[-1]))
            block.start_offset, block.length = 0, int(ends[-1])
            spans = (file_numbers[firsts], starts[firsts], stops[lasts], places)
            for file_number, start, stop, place in zip(*(values.tolist() for values in spans), strict=True):
                target, file = block.view[place : place + stop - start], files[file_number]
                done = open_files.get(file.place).read_into(target, start - file.start_offset)
                target[done:] = bytes(len(target) - done)  # where a file has become shorter
            block.view[block.length : block.length + PADDING] = bytes(PADDING)
            of_span = np.repeat(places - starts[firsts], np.append(firsts[1:], high) - firsts)
            yield slice(low, high), block, (starts[low:high] + of_span).astype(np.intp)


def _set_positions(block: Block, positions: Positions) -> None:
    """Write each record's position in the block over its physical offset, which has been checked before."""
    width = _OWN_POSITION.itemsize
    stored = np.ndarray((block.size - width + 1,), _OWN_POSITION, block.data, strides=(1,))
    stored[positions + _OWN_POSITION_AT] = positions


def _sound_runs(block: Block, positions: Positions) -> Iterator[tuple[slice, RecordRun]]:
    """The sound records at `positions`, run by run; others are skipped."""
    at, run_length = 0, len(positions)
    while at < len(positions):
        wanted = positions[at : at + run_length]
        frames = sound_prefix(block, wanted)
        if len(frames):
            yield slice(at, at + len(frames)), frames
        is_whole = len(frames) == len(wanted)
        at += len(frames) + (not is_whole)
        run_length = 2 * run_length if is_whole else RECORDS_AFTER_DAMAGE
