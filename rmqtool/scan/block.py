"""A block of commit log bytes in memory, with views that gather fields at many positions at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from rmqtool.files import InputFile

BLOCK_SIZE = 4 << 20  # larger blocks miss the processor's cache, smaller ones cost calls
PADDING = 256  # readable zeros behind the data, wider than any field that is gathered
_USUAL_COUNT = 1 << 17  # slices of a block: its records' properties at most, nearly always

Positions = NDArray[np.intp]
"""Places in a block's buffer, bytes."""


class Block:
    """A reused buffer: `length` bytes of the log from physical offset `start_offset`, then zeros.

    What is gathered is copied; nothing that outlives the next `fill` may refer to the buffer itself.
    """

    def __init__(self, size: int = BLOCK_SIZE) -> None:
        self.start_offset = 0
        self.length = 0
        self._allocate(size)

    def _allocate(self, size: int) -> None:
        self.size = size
        self.data = bytearray(size + PADDING)
        self.view = memoryview(self.data)
        self._overlapping: dict[np.dtype[Any], NDArray[Any]] = {}
        self.sizes = self._view(np.dtype(">u4"))  # read as a record's size at any position

    def fill(self, file: InputFile, position: int, length: int, start_offset: int) -> None:
        """Read `length` bytes of `file` from `position`; the buffer grows when they do not fit."""
        if length > self.size:
            self._allocate(length)
        self.start_offset = start_offset
        self.length = file.read_into(self.view[:length], position)
        self.view[self.length : self.length + PADDING] = bytes(PADDING)

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


def gather_slices(buffer: pa.Buffer, starts: NDArray[Any], ends: NDArray[Any]) -> pa.BinaryArray:
    """Ascending, non-overlapping slices of `buffer` as one dense array.

    Arrow's offsets allow no gaps, so the gaps become values of their own and every second value is taken.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    offsets = np.empty((count, 2), dtype=np.int32)
    offsets[:, 0] = starts
    offsets[:, 1] = ends
    return every_second(pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), buffer]))


def every_second(values: pa.BinaryArray) -> pa.BinaryArray:
    """The first, third, ... and last of an odd number of values, copied."""
    count = len(values) // 2 + 1
    return values.take(_even_numbers(max(count, _USUAL_COUNT))[:count])


@lru_cache(maxsize=2)
def _even_numbers(count: int) -> pa.Int32Array:
    return pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))
