"""A block of commit log bytes in memory, with views that gather fields at many positions at once."""

from __future__ import annotations

import math
import mmap
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from rmqtool.base.files import InputFile
from rmqtool.base.limits import keep_freed_memory, sized
from rmqtool.findings.commitlog_records import DAMAGE_MEANINGS, DamageReason
from rmqtool.formats.message import MAGIC_CODE_V1, MAGIC_CODE_V2, MAGIC_POSITION, MIN_MESSAGE_SIZE, SIZE_AND_MAGIC

# Larger blocks miss the processor's cache, smaller ones cost calls; what a block needs around it grows with it.
BLOCK_SIZE = 4 << 20
_LEAST_BLOCK = 1 << 20
PADDING = 256  # readable zeros after the data, wider than any field that is gathered
_LITTLE_MORE = 32
_USUAL_COUNT = 1 << 17  # slices of a block: its records' properties at most, nearly always

Positions = NDArray[np.intp]
"""Positions in a block's buffer, bytes."""


def block_size() -> int:
    """The bytes that a scan reads at once."""
    return sized(BLOCK_SIZE, _LEAST_BLOCK)


class Block:
    """A reused buffer: `length` bytes of the log from physical offset `start_offset`, then zeros.

    What is gathered is copied; nothing that outlives the next `fill` may refer to the buffer itself.
    """

    def __init__(self, size: int | None = None) -> None:
        self.start_offset = 0
        self.length = 0
        keep_freed_memory()
        self._allocate(size or block_size())

    def _allocate(self, size: int) -> None:
        self.size = size
        # The second half is room for `gather_slices` to point to: never touched, it takes no memory.
        self.data = mmap.mmap(-1, 2 * (size + PADDING), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _use_huge_pages(self.data)
        self.view = memoryview(self.data)
        self.bytes = np.frombuffer(self.data, np.uint8)
        self._overlapping: dict[np.dtype[Any], NDArray[Any]] = {}
        self.sizes = self._view(np.dtype(">u4"))  # read as a record's size at any position

    def fill(self, file: InputFile, position: int, length: int, start_offset: int) -> None:
        """Read `length` bytes of `file` from `position`; the buffer grows when they do not fit."""
        if length > self.size:
            self._allocate(length)
        self.start_offset = start_offset
        self.length = file.read_into(self.view[:length], position)
        self.view[self.length : self.length + PADDING] = bytes(PADDING)

    def physical_offsets(self, positions: Positions) -> NDArray[np.int64]:
        """Where in the commit log the bytes at `positions` stand."""
        return positions + self.start_offset

    def gather(self, dtype: DTypeLike, positions: Positions) -> NDArray[Any]:
        """The values of `dtype` that begin at `positions`, copied, shape of `positions`.

        An overlapping view with a stride of one byte is indexed: 5 ns for each value whatever its alignment.
        """
        kind: np.dtype[Any] = np.dtype(dtype)
        values = self._view(kind)[positions]
        return values.view(kind) if kind.names else values

    def _view(self, kind: np.dtype[Any]) -> NDArray[Any]:
        view = self._overlapping.get(kind)
        if view is None:
            raw = np.dtype(f"V{kind.itemsize}") if kind.names else kind
            view = np.ndarray((len(self.data) - kind.itemsize + 1,), dtype=raw, buffer=self.data, strides=(1,))
            self._overlapping[kind] = view
        return view

    def slices(self, starts: Positions, sizes: NDArray[Any]) -> pa.BinaryArray:
        """The bytes at ``starts[i] : starts[i] + sizes[i]``, copied; in ascending order and without overlap."""
        return gather_slices(pa.py_buffer(self.data), starts, starts + sizes)


def _use_huge_pages(memory: mmap.mmap) -> None:
    """Ask for pages of 2 MiB, where the system has them: looking up thousands of small ones costs a twentieth."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)


def gather_slices(buffer: pa.Buffer, starts: NDArray[Any], ends: NDArray[Any]) -> pa.BinaryArray:
    """Ascending, non-overlapping slices of `buffer` as one dense array."""
    sizes = ends - starts
    total, size = int(sizes.sum()), int(sizes[0]) if len(sizes) else 0
    if size and total == len(sizes) * size and (sizes == size).all():
        return _gather_equal(buffer, starts, size)
    return _gather_alternating(buffer, starts, ends, total)


def _gather_equal(buffer: pa.Buffer, starts: NDArray[Any], size: int) -> pa.BinaryArray:
    """Slices of the same size, as `Block.gather` reads them."""
    values = np.ndarray((buffer.size - size + 1,), dtype=f"V{size}", buffer=buffer, strides=(1,))[starts]
    offsets = np.arange(0, (len(starts) + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _gather_alternating(buffer: pa.Buffer, starts: NDArray[Any], ends: NDArray[Any], total: int) -> pa.BinaryArray:
    """Arrow's offsets allow no gaps, so the gaps become values of their own and every second value is taken."""
    count = len(starts)
    offsets = np.zeros(2 * count + 1, dtype=np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    if count:
        # `take` reserves memory by the mean size of all values: the end of the last gap, which is never read,
        # makes that the memory needed and a little more. Less would be doubled, and all that was written copied.
        offsets[-1] = min(int(offsets[0]) + 2 * (total + _LITTLE_MORE), buffer.size)
    values = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), buffer])
    return take(values, _even_numbers(max(count, _USUAL_COUNT))[:count])


def take(values: pa.Array, rows: pa.Int32Array) -> pa.Array:
    """The values at `rows`, which must exist: nothing is checked."""
    function, options = _unchecked_take()
    return function.call([values, rows], options)


@cache
def _unchecked_take() -> tuple[Any, Any]:
    return pc.get_function("array_take"), pc.TakeOptions(boundscheck=False)


@lru_cache(maxsize=2)
def _even_numbers(count: int) -> pa.Int32Array:
    numbers = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(numbers)])  # `array` loads masked arrays


Reason = DamageReason
"""Why an extent holds no message; REASON_MEANINGS says it in a sentence, as findings do."""

REASON_MEANINGS = DAMAGE_MEANINGS

MAX_MESSAGE_SIZE = 128 << 20
"""A larger size is taken for damage, bytes; a broker refuses 4 MiB and its network layer 16 MiB by default."""


@dataclass(frozen=True)
class Blank:
    """The end of a full file: from `physical_offset` on `size` bytes, of which only the first eight mean something."""

    physical_offset: int
    size: int


@dataclass(frozen=True)
class Damage:
    """An extent in which no sound record begins; `tail` when none follows in the file and all later files are zeros."""

    physical_offset: int
    size: int
    reason: Reason
    tail: bool = False


_MAGIC_CODE = MAGIC_CODE_V1.to_bytes(4, "big", signed=True)
_MAGIC_PREFIX = re.compile(re.escape(_MAGIC_CODE[:3]))  # V1 and V2 differ in the last byte
_LANE_COST = 7  # starting a lane costs as much as a seventh of a step of all lanes
_MIN_STRIDE = 4 << 10
_MAX_STRIDE = 32 << 10  # bytes between the starts of two lanes
_FEW = 8  # records that are walked before lanes are begun

RECORDS_AFTER_DAMAGE = 32
"""The records that are tried at once: after damage the next is near. Doubled with each run while all are sound."""


def chain(block: Block, start: int, limit: int | None = None, header_size: int = 0) -> Positions:
    """Positions of the records from `start` that lie in the block as a whole, as far as sizes lead.

    A header of `header_size` bytes stands before each; the first header is at `start`.

    The records are not proven: a size may have led astray, and the first may be none. With `limit` at most that many
    records, without lanes: after damage the next damage is near, and a walk far beyond it would be for nothing.
    """
    first = start + header_size
    if limit is None and first < block.length:
        few = _walk_carefully(block, first, _FEW, header_size)
        if len(few) < _FEW:
            return few  # after the last records of a file are zeros, in which lanes would search for long
        positions = _walk_in_lanes(block, first, header_size)
        if positions is not None:
            return positions
    return _walk_carefully(block, first, limit, header_size)


def _walk_carefully(block: Block, start: int, max_records: int | None, header_size: int) -> Positions:
    positions: list[int] = []
    position, limit, data = start, block.length, block.data
    while position + MIN_MESSAGE_SIZE <= limit and len(positions) != max_records:
        size, magic_code = SIZE_AND_MAGIC.unpack_from(data, position)
        if magic_code not in (MAGIC_CODE_V1, MAGIC_CODE_V2) or not MIN_MESSAGE_SIZE <= size <= limit - position:
            break
        positions.append(position)
        position += size + header_size
    return np.array(positions, dtype=np.intp)


def _walk_in_lanes(block: Block, start: int, header_size: int) -> Positions | None:
    """The chain, or None when the lanes do not prove each other."""
    stride = _stride(block, start)
    starts = _lane_starts(block, start, stride)
    ends = np.append(starts[1:], block.length + header_size)  # as if one more header were past the last record
    path = _step(block, starts, ends, 2 * stride // MIN_MESSAGE_SIZE, header_size)
    if path is None:
        return None
    inside = path < ends[:, None]
    landed = path[np.arange(len(starts)), inside.sum(axis=1)]
    if not (landed[:-1] == ends[:-1]).all():
        return None
    positions = path[inside]
    return positions if landed[-1] == ends[-1] else positions[:-1]  # the last one may be cut by the block's end


def _stride(block: Block, start: int) -> int:
    """Bytes between lanes: more lanes cost more to start, fewer take more steps; sizes follow the first record's."""
    length = block.length - start
    size = max(MIN_MESSAGE_SIZE, int(block.sizes[start]))
    lanes = math.isqrt(_LANE_COST * (length // size) + 1)
    return min(max(length // lanes, _MIN_STRIDE), _MAX_STRIDE)


def _lane_starts(block: Block, start: int, stride: int) -> Positions:
    starts = [start]
    position = start + stride
    while position < block.length:
        match = _MAGIC_PREFIX.search(block.data, position, block.length)  # finds faster than `mmap.find`
        if match is None:
            break
        starts.append(match.start() - MAGIC_POSITION)
        position = starts[-1] + stride
    return np.array(starts, dtype=np.intp)


def _step(block: Block, starts: Positions, ends: Positions, max_steps: int, header_size: int) -> Positions | None:
    """All lanes' positions, shape (lanes, steps); None when some lane is not through after `max_steps`.

    A size that leads out of the block ends its lane one byte after the block, however large it is.
    """
    sizes = block.sizes
    path = np.empty((max_steps, len(starts)), dtype=np.intp)
    path[0] = starts
    behind = np.array(block.length + header_size + 1)
    for step in range(1, max_steps):
        previous, current = path[step - 1], path[step]
        np.add(previous, sizes[previous], out=current)
        if header_size:
            current += header_size
        np.minimum(current, behind, out=current)
        if step % 4 == 0 and (current >= ends).all():
            return path[: step + 1].T
    return None
