"""The properties of a run of records, found all at once by their separators.

The rules are those of `rmqtool.formats.properties.decode_properties`.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Positions, gather_slices
from rmqtool.scan.frames import Frames
from rmqtool.scan.text import to_strings

_PAIR = NAME_VALUE_SEPARATOR | PROPERTY_SEPARATOR << 8  # a name's end and a value's end as one little-endian number
_PADDING = 64  # zeros behind the last property, so that a word can be read at any name
_WORD = 8
_USUAL_COUNT = 1 << 14  # records of a block, mostly
_WORD_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], dtype=np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class PropertyTable:
    """Every property of a run of records: where its name and its value stand, and of which record it is.

    Properties ``bounds[i] : bounds[i + 1]`` are those of record i, in stored order, duplicates included. A piece
    without a name or a value is no property. In the usual log all records have the same names in the same order:
    then `common_names` are they, and every n-th property has the same name.
    """

    def __init__(self, frames: Frames) -> None:
        self.records = len(frames)
        self._data, self._ends = _gather(frames)
        starts, middles, stops = _split(self._data[:-_PADDING])
        bounds = _bounds(stops, self._ends)
        self.bounds, self._names, self._name_sizes = bounds, starts, middles - starts
        self._values = middles + 1
        self._value_sizes = stops - self._values
        if len(starts) and min(self._name_sizes.min(), self._value_sizes.min()) <= 0:
            self._keep((self._name_sizes > 0) & (self._value_sizes > 0))
        self.common_names = self._find_common_names()

    def _keep(self, rows: NDArray[np.bool_]) -> None:
        self.bounds = np.concatenate([[0], np.cumsum(rows)])[self.bounds]
        self._names, self._name_sizes = self._names[rows], self._name_sizes[rows]
        self._values, self._value_sizes = self._values[rows], self._value_sizes[rows]

    @cached_property
    def record_numbers(self) -> Positions:
        """The record of each property."""
        return np.repeat(np.arange(self.records), np.diff(self.bounds))

    def column(self, name: bytes) -> pa.StringArray:
        """The value of one property for each record, the last one of duplicates; null without it."""
        if self.common_names and name in self.common_names:
            width = len(self.common_names)
            place = width - 1 - self.common_names[::-1].index(name)
            return to_strings(self._slices(self._values[place::width], self._value_sizes[place::width]))
        found = np.flatnonzero(self._name_sizes == len(name))
        found = found[self._is_name(found, name)]
        rows = self.record_numbers[found]
        starts = np.concatenate([[0], self._ends[:-1]])
        sizes = np.zeros(self.records, dtype=np.intp)
        starts[rows] = self._values[found]  # of equal rows the last assignment stays
        sizes[rows] = self._value_sizes[found]
        return _with_nulls(to_strings(self._slices(starts, sizes)), sizes > 0)

    def maps(self) -> pa.MapArray:
        """All properties of each record as a map in stored order; of duplicates the last value, in the first place."""
        bounds = self.bounds
        values = self._slices(self._values, self._value_sizes)
        if self.common_names and len(set(self.common_names)) == len(self.common_names):
            names = _repeat(tuple(self.common_names), max(self.records, _USUAL_COUNT))[: len(values)]
        else:
            raw_names = self._slices(self._names, self._name_sizes)
            if self._may_have_duplicates():
                kept, source = _without_duplicates(raw_names.to_pylist(), self.record_numbers.tolist())
                raw_names, values = raw_names.take(pa.array(kept)), values.take(pa.array(source))
                bounds = np.searchsorted(self.record_numbers[kept], np.arange(self.records + 1))
            names = to_strings(raw_names)
        return pa.MapArray.from_arrays(pa.array(bounds.astype(np.int32)), names, to_strings(values))

    def _find_common_names(self) -> list[bytes] | None:
        width = int(self.bounds[1])
        if width == 0 or len(self._names) != width * self.records or (np.diff(self.bounds) != width).any():
            return None
        sizes = self._name_sizes.reshape(self.records, width)
        if (sizes != sizes[0]).any():
            return None
        names = []
        for place, (start, size) in enumerate(zip(self._names[:width].tolist(), sizes[0].tolist(), strict=True)):
            names.append(self._data[start : start + size].tobytes())
            if not self._is_name(slice(place, None, width), names[-1]).all():
                return None
        return names

    def _is_name(self, rows: Positions | slice, name: bytes) -> NDArray[np.bool_]:
        """Which of the properties `rows`, whose names have the size of `name`, have that name."""
        starts, words = self._names[rows], self._words
        same = np.ones(len(starts), dtype=np.bool_)
        for at in range(0, len(name), _WORD):
            part = name[at : at + _WORD]
            word = words[starts + at] if at else words[starts]
            if len(part) < _WORD:
                word &= _WORD_MASKS[len(part)]
            same &= word == np.uint64(int.from_bytes(part, "little"))
        return same

    def _may_have_duplicates(self) -> bool:
        """Whether two names of one record have the same hash; equal names do."""
        sizes = np.minimum(self._name_sizes, _WORD)
        first = self._words[self._names] & _WORD_MASKS[sizes]
        last = self._words[self._names + self._name_sizes - sizes] & _WORD_MASKS[sizes]
        hashes = (first * _MIX ^ last) * _MIX + self._name_sizes.astype(np.uint64)
        for distance in range(1, int(np.diff(self.bounds).max(initial=0))):
            equal = hashes[distance:] == hashes[:-distance]
            if (equal & (self.record_numbers[distance:] == self.record_numbers[:-distance])).any():
                return True
        return False

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        """The eight bytes at any position, as one little-endian number."""
        return np.ndarray((len(self._data) - _WORD + 1,), "<u8", self._data, strides=(1,))

    def _slices(self, starts: Positions, sizes: Positions) -> pa.BinaryArray:
        return gather_slices(pa.py_buffer(self._data), starts, sizes)


def _bounds(stops: Positions, ends: Positions) -> Positions:
    """For each record the number of pieces before it, and of all at the end."""
    records = len(ends)
    width = int(np.searchsorted(stops, ends[0]))
    if len(stops) == width * records and (width == 0 or (stops[width - 1 :: width] == ends - 1).all()):
        return np.arange(0, len(stops) + 1, width) if width else np.zeros(records + 1, dtype=np.intp)
    bounds = np.zeros(records + 1, dtype=np.intp)
    bounds[1:] = np.searchsorted(stops, ends)
    return bounds


def _gather(frames: Frames) -> tuple[NDArray[np.uint8], Positions]:
    """All properties one behind the other and zeros behind them, and each record's end.

    Each record ends with a separator: where the broker left it out, one is put.
    """
    block = frames.block
    positions, sizes = frames.properties_positions, frames.properties_sizes
    unended = sizes > 0
    unended &= block.gather("u1", positions + sizes - 1) != PROPERTY_SEPARATOR
    starts = np.append(positions, block.length + _WORD)
    gathered = block.slices(starts, np.append(sizes + unended, _PADDING))
    _, offsets, data = gathered.buffers()
    ends = np.frombuffer(offsets, np.int32)[1 : len(frames) + 1].astype(np.intp)
    values = np.frombuffer(data, np.uint8)
    if unended.any():
        values = values.copy()
        values[ends[unended] - 1] = PROPERTY_SEPARATOR
    return values, ends


def _split(data: NDArray[np.uint8]) -> tuple[Positions, Positions, Positions]:
    """Start, end of the name, and end of every piece; without a name's end that is the end of the piece or later."""
    separators = np.flatnonzero(data <= PROPERTY_SEPARATOR)
    kinds = data[separators]
    if len(kinds) % 2 == 0 and (kinds.view("<u2") == _PAIR).all():
        middles, stops = separators[0::2], separators[1::2]
        return _starts(stops), middles, stops
    stops = separators[kinds == PROPERTY_SEPARATOR]
    starts = _starts(stops)
    name_ends = np.append(separators[kinds == NAME_VALUE_SEPARATOR], len(data))
    return starts, name_ends[np.searchsorted(name_ends, starts)], stops


def _starts(stops: Positions) -> Positions:
    starts = np.zeros(len(stops), dtype=np.intp)
    starts[1:] = stops[:-1] + 1
    return starts


@lru_cache(maxsize=8)
def _repeat(names: tuple[bytes, ...], count: int) -> pa.StringArray:
    return pa.array([decode_text(name) for name in names] * count, pa.string())


def _with_nulls(values: pa.StringArray, present: NDArray[np.bool_]) -> pa.StringArray:
    bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [bitmap, *values.buffers()[1:]])


def _without_duplicates(names: list[bytes], records: list[int]) -> tuple[list[int], list[int]]:
    """The properties to keep, and for each the property that gives its value."""
    source: dict[tuple[int, bytes], int] = {}
    first: list[int] = []
    for number, place in enumerate(zip(records, names, strict=True)):
        if place not in source:
            first.append(number)
        source[place] = number
    return first, list(source.values())
