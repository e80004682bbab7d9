"""The records that units point to, many at once: for what the units themselves do not tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import (
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MAX_HEADER_SIZE,
    MIN_MESSAGE_SIZE,
    PREFIX_DTYPE,
)
from rmqtool.scan.block import BLOCK_SIZE, PADDING, Block, Positions
from rmqtool.scan.columns import record_batches
from rmqtool.scan.events import MAX_MESSAGE_SIZE
from rmqtool.scan.filters import Filters, Mask
from rmqtool.scan.frames import Headers, sound_prefix

_OWN_POSITION, _OWN_POSITION_AT = PREFIX_DTYPE["physical_offset"], position_of(PREFIX_DTYPE, "physical_offset")
_GAP = 16 << 10  # bytes between two records that cost less to read along than a read of their own
_AFTER_BAD = 32  # records that are proven at once behind one that is not sound; doubled while all are

Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class Heads:
    """What the heads of records tell, one for each distinct offset, in ascending order.

    `is_record` where the magic code and the stored physical offset are those of a record that begins there and fits
    into its file; what stands beside a False means nothing.
    """

    offsets: Offsets
    is_record: Mask
    message_sizes: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]


def read_heads(files: Sequence[MappedFile], offsets: Offsets, reading: ReadPolicy = UNLIMITED) -> Heads:
    """The heads of what stands at physical offsets, which are distinct and ascend."""
    is_record = np.zeros(len(offsets), dtype=np.bool_)
    sizes, times = np.zeros((2, len(offsets)), dtype=np.int64)
    numbers, ends = _files_of(files, offsets)
    rows = np.flatnonzero((numbers >= 0) & (offsets < ends))
    stops = np.minimum(offsets[rows] + MAX_HEADER_SIZE, ends[rows])
    for part, block, positions in _packed(files, numbers[rows], offsets[rows], stops, reading):
        chosen = rows[part]
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
    """Which records pass the filters, and which are sound to their end; both as long as the heads.

    Records that overlap, as no broker writes them, are looked at one by one.
    """
    passed, sound = np.zeros((2, len(heads.offsets)), dtype=np.bool_)
    rows = np.flatnonzero(heads.is_record)
    starts, sizes = heads.offsets[rows], heads.message_sizes[rows]
    reached = np.maximum.accumulate(starts + sizes)[:-1] if len(rows) else starts
    overlaps = np.concatenate([[False], starts[1:] < reached]) if len(rows) else np.zeros(0, dtype=np.bool_)
    for group in (rows[~overlaps], *rows[overlaps][:, np.newaxis]):
        starts, sizes = heads.offsets[group], heads.message_sizes[group]
        numbers, _ = _files_of(files, starts)
        for part, block, positions in _packed(files, numbers, starts, starts + sizes, reading):
            _set_positions(block, positions)
            for chosen, mask in _passing(block, positions, filters):
                sound[group[part][chosen]] = True
                passed[group[part][chosen]] = mask
    return passed, sound


def _files_of(files: Sequence[MappedFile], offsets: Offsets) -> tuple[NDArray[np.intp], Offsets]:
    """The number of the file that may hold each offset, and where that file ends; 0 without one."""
    starts = np.array([file.start_offset for file in files], dtype=np.int64)
    ends = np.array([file.end_offset for file in files], dtype=np.int64)
    numbers = np.searchsorted(starts, offsets, side="right") - 1
    found = np.zeros(len(offsets), dtype=np.int64)
    found[numbers >= 0] = ends[numbers[numbers >= 0]]
    return numbers, found


def _packed(
    files: Sequence[MappedFile], numbers: NDArray[np.intp], starts: Offsets, stops: Offsets, reading: ReadPolicy
) -> Iterator[tuple[slice, Block, Positions]]:
    """Ranges of the log, which ascend, in blocks: which ranges, the block, and where each begins in it.

    Ranges that lie near each other are read at once; the spans that are read stand one behind the other.
    """
    if not len(starts):
        return
    is_near = (numbers[1:] == numbers[:-1]) & (starts[1:] - stops[:-1] <= _GAP)
    read = np.cumsum(stops - np.concatenate([starts[:1], np.where(is_near, stops[:-1], starts[1:])]))
    is_full = read[1:] // BLOCK_SIZE != read[:-1] // BLOCK_SIZE
    first_of_span = np.concatenate([[0], np.flatnonzero(~is_near | is_full) + 1])
    borders = np.concatenate([[0], np.flatnonzero(is_full) + 1, [len(starts)]])
    block = Block()
    with _Opened(files, reading) as opened:
        for low, high in pairwise(borders.tolist()):
            firsts = first_of_span[slice(*np.searchsorted(first_of_span, (low, high)))]
            lasts = np.append(firsts[1:], high) - 1
            spans = _Spans(numbers[firsts], starts[firsts], stops[lasts])
            block = block if spans.size <= block.size else Block(spans.size)
            spans.read(block, opened)
            of_span = np.repeat(spans.places - spans.starts, np.append(firsts[1:], high) - firsts)
            yield slice(low, high), block, (starts[low:high] + of_span).astype(np.intp)


class _Spans:
    """Parts of the log that stand one behind the other in a block: the numbers of their files, and their borders."""

    def __init__(self, numbers: NDArray[np.intp], starts: Offsets, stops: Offsets) -> None:
        self.numbers, self.starts, self.stops = numbers, starts, stops
        ends = np.cumsum(stops - starts)
        self.places = ends - (stops - starts)
        self.size = int(ends[-1])

    def read(self, block: Block, opened: _Opened) -> None:
        """Fill the block; what a file no longer has is zeros."""
        borders = (self.numbers, self.starts, self.stops, self.places)
        for number, start, stop, place in zip(*(values.tolist() for values in borders), strict=True):
            target = block.view[place : place + stop - start]
            done = opened.file(number).read_into(target, start - opened.files[number].start_offset)
            target[done:] = bytes(len(target) - done)
        block.start_offset, block.length = 0, self.size
        block.view[self.size : self.size + PADDING] = bytes(PADDING)


class _Opened:
    """The one file that is open: neighbours among sorted offsets are neighbours in the log."""

    def __init__(self, files: Sequence[MappedFile], reading: ReadPolicy) -> None:
        self.files = files
        self._reading = reading
        self._number = -1
        self._file: InputFile | None = None

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def file(self, number: int) -> InputFile:
        """The file with a number, opened."""
        if self._file is None or number != self._number:
            self.__exit__()
            self._file, self._number = InputFile(self.files[number].path, self._reading), number
        return self._file


def _set_positions(block: Block, positions: Positions) -> None:
    """Let each record tell its place in the block as its own; what it told of the log has been compared before."""
    width = _OWN_POSITION.itemsize
    stored = np.ndarray((block.size - width + 1,), _OWN_POSITION, block.data, strides=(1,))
    stored[positions + _OWN_POSITION_AT] = positions


def _passing(block: Block, positions: Positions, filters: Filters) -> Iterator[tuple[slice, Mask]]:
    """Which of the sound ones among the records at `positions` pass, run by run; the others are left out."""
    at, most = 0, len(positions)
    while at < len(positions):
        wanted = positions[at : at + most]
        frames = sound_prefix(block, wanted)
        if len(frames):
            masks = [filters.mask(batch) for batch in record_batches(frames, filters.columns)]
            yield slice(at, at + len(frames)), np.concatenate(masks)
        is_whole = len(frames) == len(wanted)
        at += len(frames) + (not is_whole)
        most = 2 * most if is_whole else _AFTER_BAD
