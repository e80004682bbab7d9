"""The properties of records that all have the same names in the same order, as in nearly every run of a log.

Then names need only be compared, not read, and the value of a name is every n-th value.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Positions, gather_slices
from rmqtool.scan.text import to_strings

WINDOW = 16
"""Names are compared in windows of this size: data must go on so long behind the last property, bytes."""

_NAME_END = bytes([NAME_VALUE_SEPARATOR])
_WINDOW_DTYPE = np.dtype(f"V{WINDOW}")

Names = tuple[bytes, ...]
"""The names of one record in stored order."""

Offsets = NDArray[np.int32]
"""Places in gathered properties, bytes."""


class SameNames:
    """The properties of records that have the same distinct `names`; value i stands at ``starts[i] : ends[i]``."""

    def __init__(self, names: Names, data: NDArray[np.uint8], starts: Offsets, ends: Offsets) -> None:
        self._names = names
        self._records = len(starts) // len(names)
        self.data = data
        self._buffer = pa.py_buffer(data)
        self._starts = starts
        self._ends = ends

    def column(self, name: bytes) -> pa.StringArray:
        """The value of one property for each record; null without it."""
        if name not in self._names:
            return pa.nulls(self._records, pa.string())
        rows = slice(self._names.index(name), None, len(self._names))
        return to_strings(gather_slices(self._buffer, self._starts[rows], self._ends[rows]))

    def places(self, name: bytes) -> tuple[Positions, Positions]:
        """Where the value of one property stands in `data`, and its size; of size 0 when the records lack it."""
        if name not in self._names:
            nowhere = np.zeros(self._records, dtype=np.intp)
            return nowhere, nowhere
        rows = slice(self._names.index(name), None, len(self._names))
        starts = self._starts[rows].astype(np.intp)
        return starts, self._ends[rows] - starts

    def maps(self) -> pa.MapArray:
        """All properties of each record as a map in stored order."""
        width, usual = len(self._names), _round_up(self._records)
        bounds = _multiples(width, usual + 1)[: self._records + 1]
        names = _repeated_names(self._names, usual)[: self._records * width]
        values = to_strings(gather_slices(self._buffer, self._starts, self._ends))
        return pa.MapArray.from_arrays(bounds, names, values)


def find_same_names(data: NDArray[np.uint8], stops: Positions, ends: Positions) -> SameNames | None:
    """The properties in `data` when all records have the same distinct names in the same order, else None.

    Properties end at `stops`, those of each record before `ends`; `data` goes on for a window behind the last.
    """
    width = int(np.searchsorted(stops, ends[0]))
    if width == 0 or len(stops) != width * len(ends) or (stops[width - 1 :: width] + 1 != ends).any():
        return None
    names = _names_of(data[: ends[0]].tobytes())
    if len(names) != width or len({decode_text(name) for name in names}) != width:
        return None
    starts = np.zeros(len(stops), dtype=np.intp)
    np.add(stops[:-1], 1, out=starts[1:])
    values = starts + _repeated_sizes(names, _round_up(len(ends)))[: len(stops)]
    if (values >= stops).any() or not _have_names(data, starts, names):
        return None
    return SameNames(names, data, values.astype(np.int32), stops.astype(np.int32))


def _names_of(properties: bytes) -> Names:
    """The names of a record's properties; pieces without a name or a value are left out."""
    pieces = [piece.partition(_NAME_END) for piece in properties.split(bytes([PROPERTY_SEPARATOR]))]
    return tuple(name for name, _, value in pieces if name and value)


def _have_names(data: NDArray[np.uint8], starts: Positions, names: Names) -> bool:
    """Whether the properties at `starts` have the names `names` over and over, each with its end."""
    windows = np.ndarray((len(data) - WINDOW + 1,), _WINDOW_DTYPE, data, strides=(1,))
    width = len(names)
    for at in range(0, max(map(len, names)) + 1, WINDOW):
        places = [place for place, name in enumerate(names) if len(name) >= at]
        rows = starts if len(places) == width else starts.reshape(-1, width)[:, places].ravel() + at
        mask, expected = _patterns(tuple(names[place][at:] for place in places), _round_up(len(starts) // width))
        words = windows[rows].view("u8")
        words ^= expected[: len(words)]
        words &= mask[: len(words)]
        if words.any():
            return False
    return True


def _round_up(count: int) -> int:
    """A count for which constants are made once and used for many runs."""
    return 1 << max(count - 1, 1 << 9).bit_length()


@lru_cache(maxsize=4)
def _patterns(names: Names, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Which bits of a window belong to a name or its end, and what they are, for `names` over and over."""
    ended = [(name + _NAME_END)[:WINDOW] for name in names]
    mask = b"".join((b"\xff" * len(name)).ljust(WINDOW, b"\0") for name in ended)
    expected = b"".join(name.ljust(WINDOW, b"\0") for name in ended)
    return np.frombuffer(mask * count, np.uint64), np.frombuffer(expected * count, np.uint64)


@lru_cache(maxsize=4)
def _repeated_sizes(names: Names, count: int) -> NDArray[np.intp]:
    return np.tile(np.array([len(name) + 1 for name in names], dtype=np.intp), count)


@lru_cache(maxsize=4)
def _repeated_names(names: Names, count: int) -> pa.StringArray:
    texts = pa.array([decode_text(name) for name in names], pa.string())
    return texts.take(pa.array(np.tile(np.arange(len(names), dtype=np.int32), count)))


@lru_cache(maxsize=4)
def _multiples(step: int, count: int) -> pa.Int32Array:
    return pa.array(np.arange(0, step * count, step, dtype=np.int32))
