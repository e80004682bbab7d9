"""Files of units of one size, read in blocks: the units as NumPy sees them, forwards or backwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile

BLOCK_UNITS = 1 << 16
"""Units that are read at once."""

_FIRST_UNITS = 1 << 10  # so that the first lines of a large file are there at once


@dataclass(frozen=True)
class UnitBlock:
    """Consecutive units of a file; `first` is the index of the first one in the file."""

    first: int
    units: NDArray[np.void]

    @property
    def indices(self) -> NDArray[np.int64]:
        """The index of each unit in its file."""
        return np.arange(self.first, self.first + len(self.units), dtype=np.int64)


def read_units(
    mapped: MappedFile,
    dtype: np.dtype[np.void],
    reading: ReadPolicy,
    start: int = 0,
    count: int | None = None,
    *,
    reverse: bool = False,
) -> Iterator[UnitBlock]:
    """The units of a file from byte `start` on, up to its last byte that is not zero; `count` of them at most.

    With `reverse` the blocks come from the end, each in ascending order. A partial last unit is left out.
    """
    size = dtype.itemsize
    with InputFile(mapped.path, reading) as file:
        whole = max(0, file.size - start) // size
        used = min(whole, -(-max(0, file.data_end(min(start, file.size)) - start) // size))
        used = used if count is None else min(used, count)
        for first, last in _spans(used, reverse=reverse):
            data = file.read(start + first * size, (last - first) * size)
            yield UnitBlock(first, np.frombuffer(data, dtype, count=len(data) // size))


def _spans(count: int, *, reverse: bool) -> Iterator[tuple[int, int]]:
    """Parts of the numbers from 0 to before `count`."""
    at, step = 0, _FIRST_UNITS
    while at < count:
        end = min(count, at + step)
        yield (count - end, count - at) if reverse else (at, end)
        at, step = end, BLOCK_UNITS


def hex_of(units: NDArray[np.void]) -> pa.StringArray:
    """The bytes of each unit in hex."""
    size = units.dtype.itemsize
    text = np.ascontiguousarray(units).tobytes().hex().encode()
    ends = np.arange(0, (len(units) + 1) * 2 * size, 2 * size, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(units), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def all_of(masks: list[Any], count: int) -> NDArray[np.bool_]:
    """Where all masks are true; everywhere without one."""
    rows = np.ones(count, dtype=np.bool_)
    for mask in masks:
        rows &= mask
    return rows
