"""The properties of a run of records, found all at once by their separators.

The rules are those of `rmqtool.formats.properties.decode_properties`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.java import decode_text
from rmqtool.formats.message import CRC32_DIGITS, CRC32_PROPERTY, CRC32_PROPERTY_SIZE
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Positions, gather_slices, take
from rmqtool.scan.frames import NO_NUMBER, RecordRun
from rmqtool.scan.windows import WINDOW, Texts, is_utf8, positions_of, texts_before, to_strings

_NAME_END, _PROPERTY_END = bytes([NAME_VALUE_SEPARATOR]), bytes([PROPERTY_SEPARATOR])

Names = tuple[bytes, ...]
"""The names of one record in stored order."""

_COMPARED = 24 << 10  # bytes that are compared at once: they stay in the processor's nearest cache


class Span(NamedTuple):
    """The values of one property that are all of one size, bytes: of record i that at ``starts[i]``."""

    starts: Positions
    sizes: int


class UniformProperties:
    """The properties of records that have the same distinct `names`; their values stand in `data`.

    With `whole` both `maps` and `column` will be called: the values are gathered once for both.
    """

    def __init__(
        self, names: Names, data: NDArray[np.uint8], spans: Sequence[Span | Texts], *, whole: bool = False
    ) -> None:
        self._names = names
        self._whole = whole
        self._records = len(spans[0].starts)
        self.data = data
        self._buffer = pa.py_buffer(data)
        self._spans = spans

    @cached_property
    def _values(self) -> pa.StringArray:
        """The values of all properties of all records."""
        starts, ends = np.empty((2, self._records, len(self._names)), dtype=np.int32)
        for property_index, span in enumerate(self._spans):
            starts[:, property_index] = span.starts
            np.add(span.starts, span.sizes, out=ends[:, property_index], casting="unsafe")
        return to_strings(gather_slices(self._buffer, starts.ravel(), ends.ravel()))

    def column(self, name: bytes) -> pa.StringArray:
        """The value of one property for each record; null without it."""
        if name not in self._names:
            return pa.nulls(self._records, pa.string())
        property_index, width = self._names.index(name), len(self._names)
        if self._whole:
            return take(self._values, _multiples(width, _round_up(self._records), property_index)[: self._records])
        span = self._spans[property_index]
        return to_strings(gather_slices(self._buffer, span.starts, span.starts + span.sizes))

    def texts(self, name: bytes) -> Texts:
        """The value of one property for each record, in `data`; of no bytes without it."""
        if name not in self._names:
            nowhere = np.zeros(self._records, dtype=np.intp)
            return Texts(self.data, nowhere, nowhere)
        span = self._spans[self._names.index(name)]
        return span if isinstance(span, Texts) else Texts(self.data, span.starts, np.full(self._records, span.sizes))

    def maps(self, *, dictionary_encoded: bool = False) -> pa.MapArray:
        """All properties of each record as a map in stored order; `dictionary_encoded`: the names as a dictionary."""
        width, usual = len(self._names), _round_up(self._records)
        bounds = _multiples(width, usual + 1, 0)[: self._records + 1]
        names = _repeated_names(self._names, usual, dictionary_encoded=dictionary_encoded)[: self._records * width]
        return pa.MapArray.from_arrays(bounds, names, self._values)


def find_uniform(
    data: NDArray[np.uint8], starts: Positions, ends: Positions, *, whole: bool = False, with_crc: bool = False
) -> UniformProperties | None:
    """The properties at ``data[starts[i] : ends[i]]`` when all records have the same distinct names in one order.

    Else None; also where only some records have a separator at their end. `data` goes on for a window after the last.
    `with_crc`: the last of several properties is known to be a sound ``__CRC32#``, and need not be read again.
    """
    if with_crc:
        ends = ends - CRC32_PROPERTY_SIZE
    if not len(starts) or int((ends - starts).min()) <= 0:
        return None
    ended = data[ends - 1] == PROPERTY_SEPARATOR
    if ended.any() != ended.all() or (with_crc and not ended.any()):
        return None
    stops = ends - ended
    samples = [_pieces_of(data, starts, stops, row) for row in (0, len(ends) // 2, len(ends) - 1)]
    names = _names_of(samples[0])
    distinct = {decode_text(name) for name in names} - ({CRC32_PROPERTY.decode()} if with_crc else set())
    if len(names) != len(samples[0]) or len(distinct) != len(names):
        return None
    if any(_names_of(sample) != names for sample in samples):
        return None
    for guessed in (True, False):
        spans = _spans(data, starts, stops, _template(names, samples, guessed=guessed))
        if spans is not None:
            if with_crc:
                names, spans = (*names, CRC32_PROPERTY), [*spans, Span(ends + len(CRC32_PROPERTY) + 1, CRC32_DIGITS)]
            return UniformProperties(names, data, spans, whole=whole)
    return None


def _pieces_of(data: NDArray[np.uint8], starts: Positions, stops: Positions, row: int) -> list[bytes]:
    """The properties of one record, without separators between them."""
    return data[starts[row] : stops[row]].tobytes().split(_PROPERTY_END)


def _names_of(pieces: list[bytes]) -> Names:
    """The names of a record's properties; pieces without a name or a value are left out."""
    split = [piece.partition(_NAME_END) for piece in pieces]
    return tuple(name for name, _, value in split if name and value)


class _Step(NamedTuple):
    """A value in the properties of each record, and the bytes before it that all have, from the value before on.

    `size` is that of all values, bytes, and None when they differ; `usual` is the size of the largest that was seen.
    `inside` are the values that stand in `before` itself: where each begins, and its size.
    """

    before: bytes
    size: int | None
    usual: int
    inside: tuple[tuple[int, int], ...]


def _template(names: Names, samples: list[list[bytes]], *, guessed: bool) -> list[_Step]:
    """The properties of the samples as steps; the last one has no value when all is in the bytes before it.

    What is the same in all `samples`, a value or its size, is `guessed` to be so in every record: bytes that are
    compared as a whole, and values whose end is known, take less time.
    """
    steps: list[_Step] = []
    before, inside = b"", []
    for property_index, name in enumerate(names):
        values = [sample[property_index][len(name) + 1 :] for sample in samples]
        before += (_PROPERTY_END if property_index else b"") + name + _NAME_END
        if guessed and len(set(values)) == 1:
            inside.append((len(before), len(values[0])))
            before += values[0]
            continue
        sizes = set(map(len, values))
        size = sizes.pop() if guessed and len(sizes) == 1 else None
        steps.append(_Step(before, size, max(map(len, values)), tuple(inside)))
        before, inside = b"", []
    return [*steps, _Step(before, 0, 0, tuple(inside))] if before else steps


def _spans(
    data: NDArray[np.uint8], starts: Positions, stops: Positions, template: list[_Step]
) -> list[Span | Texts] | None:
    """The values of each property; None when not all records are like the template."""
    spans: list[Span | Texts] = []
    at = starts
    last_open = max((step_index for step_index, step in enumerate(template) if step.size is None), default=-1)
    behind = sum(len(step.before) + (step.size or 0) for step in template[last_open + 1 :])  # known before it is read
    for step_index, step in enumerate(template):
        if not _all_have(data, at, step.before):
            return None
        spans.extend(Span(at + position, size) for position, size in step.inside)
        at = at + len(step.before)
        if step.size == 0:
            break
        rest = stops - at
        if step_index == last_open:
            rest -= behind
        if int(rest.min()) <= 0:
            return None
        if step.size is not None or step_index == last_open:
            texts = Texts(data, at, rest if step.size is None else np.minimum(rest, step.size))
            if texts.hold(PROPERTY_SEPARATOR):
                return None
        else:
            texts = texts_before(PROPERTY_SEPARATOR, data, at, rest, step.usual)
            if not texts.sizes.all():
                return None
        spans.append(texts)
        at = at + texts.sizes
    return spans if (at == stops).all() else None


def _all_have(data: NDArray[np.uint8], starts: Positions, text: bytes) -> bool:
    """Whether `text` stands at each of `starts`."""
    if int(starts.max()) + len(text) > len(data):
        return False
    windows = np.ndarray((len(data) - len(text) + 1,), f"V{len(text)}", data, strides=(1,))
    count = max(1, _COMPARED // len(text))
    expected = _repeated_text(text, count)
    for first in range(0, len(starts), count):
        found = windows[starts[first : first + count]]
        if (expected if len(found) == count else expected[: len(found) * len(text)]) != found:
            return False
    return True


@lru_cache(maxsize=64)
def _repeated_text(text: bytes, count: int) -> bytearray:
    return bytearray(text * count)  # compared with any buffer as it is; `bytes` with bytes alone


def _round_up(count: int) -> int:
    """A count for which constants are made once and used for many runs."""
    return 1 << max(count - 1, 1 << 9).bit_length()


@lru_cache(maxsize=4)
def _repeated_names(names: Names, count: int, *, dictionary_encoded: bool) -> pa.StringArray | pa.DictionaryArray:
    texts = pa.array([decode_text(name) for name in names], pa.string())
    indexes = pa.array(np.tile(np.arange(len(names), dtype=np.int32), count))
    return pa.DictionaryArray.from_arrays(indexes, texts) if dictionary_encoded else texts.take(indexes)


@lru_cache(maxsize=32)
def _multiples(step: int, count: int, start: int) -> pa.Int32Array:
    return pa.array(np.arange(start, start + step * count, step, dtype=np.int32))


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
