"""The properties of records that all have the same names in the same order, as in nearly all runs of a log.

Then names need only be compared, not read, and the value of a name is every n-th value.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Positions, gather_slices, take
from rmqtool.scan.hashing import WINDOW, WORD
from rmqtool.scan.text import to_strings

_NAME_END, _PROPERTY_END = bytes([NAME_VALUE_SEPARATOR]), bytes([PROPERTY_SEPARATOR])

Names = tuple[bytes, ...]
"""The names of one record in stored order."""

Offsets = NDArray[np.int32]
"""Positions in gathered properties, bytes."""


class UniformProperties:
    """The properties of records that have the same distinct `names`; value i stands at ``starts[i] : ends[i]``.

    With `whole` both `maps` and `column` will be called: the values are gathered once for both.
    """

    def __init__(
        self, names: Names, data: NDArray[np.uint8], starts: Offsets, ends: Offsets, *, whole: bool = False
    ) -> None:
        self._names = names
        self._whole = whole
        self._records = len(starts) // len(names)
        self.data = data
        self._buffer = pa.py_buffer(data)
        self._starts = starts
        self._ends = ends

    @cached_property
    def _values(self) -> pa.StringArray:
        """The values of all properties of all records."""
        return to_strings(gather_slices(self._buffer, self._starts, self._ends))

    def column(self, name: bytes) -> pa.StringArray:
        """The value of one property for each record; null without it."""
        if name not in self._names:
            return pa.nulls(self._records, pa.string())
        property_index, width = self._names.index(name), len(self._names)
        if self._whole:
            return take(self._values, _multiples(width, _round_up(self._records), property_index)[: self._records])
        rows = slice(property_index, None, width)
        return to_strings(gather_slices(self._buffer, self._starts[rows], self._ends[rows]))

    def value_positions(self, name: bytes) -> tuple[Positions, Positions]:
        """Position in `data` and size of one property's value for each record, bytes; size 0 without it."""
        if name not in self._names:
            nowhere = np.zeros(self._records, dtype=np.intp)
            return nowhere, nowhere
        rows = slice(self._names.index(name), None, len(self._names))
        starts = self._starts[rows].astype(np.intp)
        return starts, self._ends[rows] - starts

    def maps(self, *, dictionary_encoded: bool = False) -> pa.MapArray:
        """All properties of each record as a map in stored order; `dictionary_encoded`: the names as a dictionary."""
        width, usual = len(self._names), _round_up(self._records)
        bounds = _multiples(width, usual + 1, 0)[: self._records + 1]
        names = _repeated_names(self._names, usual, dictionary_encoded=dictionary_encoded)[: self._records * width]
        return pa.MapArray.from_arrays(bounds, names, self._values)


def find_uniform(
    data: NDArray[np.uint8], stops: Positions, ends: Positions, *, whole: bool = False
) -> UniformProperties | None:
    """The properties in `data` when all records have the same distinct names in the same order, else None.

    Properties end at `stops`, those of each record before `ends`; `data` goes on for a window behind the last.
    """
    width = int(np.searchsorted(stops, ends[0]))
    if width == 0 or len(stops) != width * len(ends) or (stops[width - 1 :: width] + 1 != ends).any():
        return None
    samples = [_pieces_of(data, ends, row) for row in (0, len(ends) // 2, len(ends) - 1)]
    names = _names_of(samples[0])
    if len(names) != width or len({decode_text(name) for name in names}) != width:
        return None
    starts = np.zeros(len(stops), dtype=np.intp)
    np.add(stops[:-1], 1, out=starts[1:])
    values = starts + _repeated_sizes(names, _round_up(len(ends)))[: len(stops)]
    if (values >= stops).any():
        return None
    rows = starts.reshape(-1, width)
    if not (_have(data, rows, _stretches(names, samples)) or _have(data, rows, _stretches(names, []))):
        return None
    return UniformProperties(names, data, values.astype(np.int32), stops.astype(np.int32), whole=whole)


def _pieces_of(data: NDArray[np.uint8], ends: Positions, row: int) -> list[bytes]:
    """The properties of one record, each with its end."""
    start = int(ends[row - 1]) if row else 0
    return [piece + _PROPERTY_END for piece in data[start : ends[row]].tobytes().split(_PROPERTY_END)[:-1]]


def _names_of(pieces: list[bytes]) -> Names:
    """The names of a record's properties; pieces without a name or a value are left out."""
    split = [piece.partition(_NAME_END) for piece in pieces]
    return tuple(name for name, _, value in split if name and value != _PROPERTY_END)


def _stretches(names: Names, samples: list[list[bytes]]) -> list[tuple[int, bytes]]:
    """The bytes that all records are expected to share, each with the index of the property where they begin.

    Always the names; of a value that is the same in all `samples` we take it that it is so in every record, and then
    one stretch goes on to the next name: what is compared as a whole takes less time.
    """
    stretches: list[tuple[int, bytes]] = []
    goes_on = False
    for property_index, name in enumerate(names):
        pieces = [sample[property_index] for sample in samples]
        same = bool(pieces) and pieces.count(pieces[0]) == len(pieces) and len(pieces[0]) <= WINDOW
        text = pieces[0] if same else name + _NAME_END
        if goes_on:
            first, before = stretches.pop()
            stretches.append((first, before + text))
        else:
            stretches.append((property_index, text))
        goes_on = same
    return stretches


def _have(data: NDArray[np.uint8], starts: Positions, stretches: list[tuple[int, bytes]]) -> bool:
    """Whether all records have the `stretches`; property i of a record stands at ``starts[record, i]``."""
    for property_index, text in stretches:
        for at in range(0, len(text), WINDOW):
            expected_bytes = text[at : at + WINDOW]
            mask, expected = _patterns(expected_bytes, _round_up(len(starts)))
            width = -(-len(expected_bytes) // WORD) * WORD
            windows = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
            words = windows[starts[:, property_index] + at].view("u8")
            words ^= expected[: len(words)]
            words &= mask[: len(words)]
            if words.any():
                return False
    return True


def _round_up(count: int) -> int:
    """A count for which constants are made once and used for many runs."""
    return 1 << max(count - 1, 1 << 9).bit_length()


@lru_cache(maxsize=8)
def _patterns(text: bytes, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The mask and the bits of `text` in a window of whole words, each repeated `count` times."""
    width = -(-len(text) // WORD) * WORD
    mask = (b"\xff" * len(text)).ljust(width, b"\0")
    return np.frombuffer(mask * count, np.uint64), np.frombuffer(text.ljust(width, b"\0") * count, np.uint64)


@lru_cache(maxsize=4)
def _repeated_sizes(names: Names, count: int) -> NDArray[np.intp]:
    return np.tile(np.array([len(name) + 1 for name in names], dtype=np.intp), count)


@lru_cache(maxsize=4)
def _repeated_names(names: Names, count: int, *, dictionary_encoded: bool) -> pa.StringArray | pa.DictionaryArray:
    texts = pa.array([decode_text(name) for name in names], pa.string())
    indexes = pa.array(np.tile(np.arange(len(names), dtype=np.int32), count))
    return pa.DictionaryArray.from_arrays(indexes, texts) if dictionary_encoded else texts.take(indexes)


@lru_cache(maxsize=32)
def _multiples(step: int, count: int, start: int) -> pa.Int32Array:
    return pa.array(np.arange(start, start + step * count, step, dtype=np.int32))
