"""The properties of a run of records, found all at once by their separators.

The rules are those of `rmqtool.formats.properties.decode_properties`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.crc import CRC32_PROPERTY, CRC32_PROPERTY_SIZE
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Positions, gather_slices
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.property_crc import NO_NUMBER
from rmqtool.scan.text import is_utf8, to_strings
from rmqtool.scan.uniform_properties import UniformProperties, find_uniform
from rmqtool.scan.windows import WINDOW, Texts, positions_of

_WORD = 8
_WORD_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], dtype=np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def read_properties(frames: RecordRun, *, whole: bool = False) -> UniformProperties | PropertyTable:
    """The properties of all records: UniformProperties where all have the same names, else a PropertyTable.

    They are read from the block, before it is filled again. With `whole` both `column` and `maps` will be called.
    """
    starts = frames.properties_positions
    ends = starts + frames.properties_sizes
    uniform = find_uniform(frames.block.bytes, starts, ends, whole=whole, with_crc=_all_end_in_crc(frames))
    if uniform is not None:
        return uniform
    data, ends = _gather(frames)
    return PropertyTable(data, positions_of(PROPERTY_SEPARATOR, data), ends)


class PropertyTable:
    """All properties of a run of records: the positions of name and value, and the record, of each.

    Properties ``bounds[i] : bounds[i + 1]`` are those of record i, in stored order, duplicates included. A piece
    without a name or a value is no property.
    """

    def __init__(self, data: NDArray[np.uint8], stops: Positions, ends: Positions) -> None:
        self.records = len(ends)
        self.data, self._ends = data, ends
        starts = np.zeros(len(stops), dtype=np.intp)
        np.add(stops[:-1], 1, out=starts[1:])
        middles = _middles(data, starts, stops)
        self.bounds = np.zeros(self.records + 1, dtype=np.intp)
        self.bounds[1:] = np.searchsorted(stops, ends)
        self._names, self._name_sizes = starts, middles - starts
        self._values = middles + 1
        self._value_sizes = stops - self._values
        if len(starts) and min(self._name_sizes.min(), self._value_sizes.min()) <= 0:
            self._keep((self._name_sizes > 0) & (self._value_sizes > 0))

    def _keep(self, rows: NDArray[np.bool_]) -> None:
        self.bounds = np.concatenate([[0], np.cumsum(rows)])[self.bounds]
        self._names, self._name_sizes = self._names[rows], self._name_sizes[rows]
        self._values, self._value_sizes = self._values[rows], self._value_sizes[rows]

    @cached_property
    def record_indexes(self) -> Positions:
        """The index of each property's record in the run."""
        return np.repeat(np.arange(self.records), np.diff(self.bounds))

    def column(self, name: bytes) -> pa.StringArray:
        """The value of one property for each record, the last one of duplicates; null without it."""
        texts = self.texts(name)
        return _with_nulls(to_strings(self._slices(texts.starts, texts.sizes)), texts.sizes > 0)

    def texts(self, name: bytes) -> Texts:
        """The value of one property for each record, in `data`; of no bytes without it."""
        matches = np.flatnonzero(self._name_sizes == len(name))
        matches = matches[self._is_name(matches, name)]
        rows = self.record_indexes[matches]
        starts = np.concatenate([[0], self._ends[:-1]])
        sizes = np.zeros(self.records, dtype=np.intp)
        starts[rows] = self._values[matches]  # of equal rows the last assignment stays
        sizes[rows] = self._value_sizes[matches]
        return Texts(self.data, starts, sizes)

    def maps(self, *, dictionary_encoded: bool = False) -> pa.MapArray:
        """All properties of each record as a map in stored order; of duplicates the last value, in the first place.

        `dictionary_encoded`: the names as a dictionary.
        """
        bounds = self.bounds
        names = self._slices(self._names, self._name_sizes)
        values = self._slices(self._values, self._value_sizes)
        # Names that are not UTF-8 may be equal as text though their bytes differ.
        if self._may_have_duplicates() or not is_utf8(names):
            kept, source = _without_duplicates(to_strings(names).to_pylist(), self.record_indexes.tolist())
            names, values = names.take(pa.array(kept)), values.take(pa.array(source))
            bounds = np.searchsorted(self.record_indexes[kept], np.arange(self.records + 1))
        keys = to_strings(names).dictionary_encode() if dictionary_encoded else to_strings(names)
        return pa.MapArray.from_arrays(pa.array(bounds.astype(np.int32)), keys, to_strings(values))

    def _is_name(self, rows: Positions, name: bytes) -> NDArray[np.bool_]:
        """Which of the properties `rows`, whose names have the size of `name`, have that name."""
        starts, words = self._names[rows], self._words
        same = np.ones(len(starts), dtype=np.bool_)
        for at in range(0, len(name), _WORD):
            word = name[at : at + _WORD]
            same &= (words[starts + at] & _WORD_MASKS[len(word)]) == np.uint64(int.from_bytes(word, "little"))
        return same

    def _may_have_duplicates(self) -> bool:
        """Whether two names of one record have the same hash; equal names do."""
        sizes = np.minimum(self._name_sizes, _WORD)
        first = self._words[self._names] & _WORD_MASKS[sizes]
        last = self._words[self._names + self._name_sizes - sizes] & _WORD_MASKS[sizes]
        hashes = (first * _MIX ^ last) * _MIX + self._name_sizes.astype(np.uint64)
        for distance in range(1, int(np.diff(self.bounds).max(initial=0))):
            equal = hashes[distance:] == hashes[:-distance]
            if (equal & (self.record_indexes[distance:] == self.record_indexes[:-distance])).any():
                return True
        return False

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        """The eight bytes at any position, as one little-endian number."""
        return np.ndarray((len(self.data) - _WORD + 1,), "<u8", self.data, strides=(1,))

    def _slices(self, starts: Positions, sizes: Positions) -> pa.BinaryArray:
        return gather_slices(pa.py_buffer(self.data), starts, starts + sizes)


def _all_end_in_crc(frames: RecordRun) -> bool:
    """Whether the last of several properties is a sound ``__CRC32#`` in all records."""
    if not len(frames) or int(frames.properties_sizes.min()) <= CRC32_PROPERTY_SIZE:
        return False
    at = int(frames.positions[0] + frames.message_sizes[0]) - CRC32_PROPERTY_SIZE
    if frames.block.view[at : at + len(CRC32_PROPERTY)] != CRC32_PROPERTY:
        return False  # older releases write none, and need not be searched
    rows, stored = frames.property_crcs
    return len(rows) == len(frames) and int(stored.min()) != NO_NUMBER


def _gather(frames: RecordRun) -> tuple[NDArray[np.uint8], Positions]:
    """All properties one after the other and zeros after them, and each record's end.

    Each record ends with a separator: where the broker left it out, one is put.
    """
    block, count = frames.block, len(frames)
    starts, sizes = np.empty((2, count + 1), dtype=np.intp)
    starts[:count], sizes[:count] = frames.properties_positions, frames.properties_sizes
    starts[count], sizes[count] = block.length + 1, WINDOW  # zeros
    unended = block.gather("u1", starts[:count] + sizes[:count] - 1) != PROPERTY_SEPARATOR
    unended &= sizes[:count] > 0
    any_unended = bool(unended.any())
    if any_unended:
        sizes[:count] += unended
    _, offsets, buffer = block.slices(starts, sizes).buffers()
    ends = np.frombuffer(offsets, np.int32)[1 : count + 1].astype(np.intp)
    data = np.frombuffer(buffer, np.uint8)
    if any_unended:
        data = data.copy()
        data[ends[unended] - 1] = PROPERTY_SEPARATOR
    return data, ends


def _middles(data: NDArray[np.uint8], starts: Positions, stops: Positions) -> Positions:
    """End of the name of every piece; of a piece without one that is the end of the piece or later."""
    name_ends = positions_of(NAME_VALUE_SEPARATOR, data)
    if len(name_ends) == len(stops) and (name_ends >= starts).all() and (name_ends < stops).all():
        return name_ends
    name_ends = np.append(name_ends, len(data))
    return name_ends[np.searchsorted(name_ends, starts)]


def _with_nulls(values: pa.StringArray, present: NDArray[np.bool_]) -> pa.StringArray:
    bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [bitmap, *values.buffers()[1:]])


def _without_duplicates(names: list[str], records: list[int]) -> tuple[list[int], list[int]]:
    """The properties to keep, and for each the property that gives its value."""
    source: dict[tuple[int, str], int] = {}
    first: list[int] = []
    for row, record_and_name in enumerate(zip(records, names, strict=True)):
        if record_and_name not in source:
            first.append(row)
        source[record_and_name] = row
    return first, list(source.values())
