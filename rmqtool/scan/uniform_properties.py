"""The properties of records that all have the same names in the same order, as in nearly all runs of a log.

Then names need only be compared, not read, and the value of a name is every n-th value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.crc import CRC32_DIGITS, CRC32_PROPERTY, CRC32_PROPERTY_SIZE
from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Positions, gather_slices, take
from rmqtool.scan.text import to_strings
from rmqtool.scan.windows import Texts, texts_before

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
