"""Texts of many records at once, decoded as Java does; and windows of their bytes, as words of eight, to search."""

from __future__ import annotations

import os
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.formats.java import decode_text
from rmqtool.scan.block import Positions, gather_slices

_USUAL_COUNT = 1 << 16  # records of a block, nearly always


def constant_strings(
    value: str, count: int, *, dictionary_encoded: bool = False
) -> pa.StringArray | pa.DictionaryArray:
    """One value `count` times, without a copy; `dictionary_encoded`: as a dictionary of one."""
    return _repeated(value, max(count, _USUAL_COUNT), dictionary_encoded=dictionary_encoded)[:count]


def integers(texts: pa.ChunkedArray, digits: int = 18) -> pa.Array:
    """Texts of at most so many digits as numbers, null where one is none that is usual."""
    is_number = pc.match_substring_regex(texts, rf"^\d{{1,{digits}}}$")
    numbers = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    return numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers


@lru_cache(maxsize=64)
def _repeated(value: str, count: int, *, dictionary_encoded: bool) -> pa.StringArray | pa.DictionaryArray:
    value = os.fsencode(value).decode("utf-8", "replace")  # names of files may be no text
    if dictionary_encoded:
        return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [value])
    return pa.repeat(value, count)


def to_strings(values: pa.BinaryArray) -> pa.StringArray:
    """Decode UTF-8; bytes that are not UTF-8 become U+FFFD."""
    if is_utf8(values):
        return values.view(pa.string())
    return pa.array([None if value is None else decode_text(value) for value in values.to_pylist()], pa.string())


def is_utf8(values: pa.BinaryArray) -> bool:
    """Whether every value is UTF-8."""
    data = values.buffers()[2]
    if data is None or data.size == 0 or np.frombuffer(data, np.int8).min() >= 0:
        return True  # ASCII, which is checked ten times as fast
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


WORD = 8  # bytes
_ONES = 0x0101010101010101

WINDOW = 64
"""The widest window, bytes: data must be that much longer than the last text."""


def words_of(data: NDArray[np.uint8], starts: Positions, size: int) -> NDArray[np.uint64]:
    """At least `size` bytes from each of `starts` on, in whole words, copied; shape (texts, words)."""
    width = max(1, -(-size // WORD)) * WORD
    windows: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))[starts]
    return windows.view("<u8").reshape(len(starts), width // WORD)


def mask_words(words: NDArray[np.uint64], sizes: Positions) -> NDArray[np.uint64]:
    """The same `words`, with zeros from byte ``sizes[i]`` of each window on."""
    width = words.shape[1] * WORD
    if int(sizes.min(initial=width)) < width:
        words &= _masks(width).take(sizes, axis=0, mode="clip")
    return words


@cache
def _masks(width: int) -> NDArray[np.uint64]:
    """For each size up to `width`, the bits that belong to a text of that size."""
    masks = np.zeros((width + 1, width), dtype=np.uint8)
    masks[np.arange(width) < np.arange(width + 1)[:, None]] = 0xFF
    return masks.view("<u8")


def positions_of(byte: int, data: NDArray[np.uint8]) -> Positions:
    """The positions of `byte` in `data`, which ends with padding.

    NumPy is slow where few of many bytes match: so first four bytes at once, then which of the four.
    """
    same = data[: len(data) // 4 * 4] == byte
    fours = same.view("<u4")
    hits = np.flatnonzero(fours != 0)
    word_values = fours.take(hits)
    if (word_values & (word_values - np.uint32(1))).any():
        return np.flatnonzero(same)
    word_values *= np.uint32(0x00010203)  # now the highest byte is the number of the one byte that was set
    word_values >>= np.uint32(24)
    hits *= 4
    hits += word_values
    return hits


class Texts:
    """Texts in `data`, which goes on for a window after the last one: ``data[starts[i] : starts[i] + sizes[i]]``."""

    def __init__(
        self, data: NDArray[np.uint8], starts: Positions, sizes: Positions, words: NDArray[np.uint64] | None = None
    ) -> None:
        """`words`, where they are known already."""
        self.data, self.starts, self.sizes = data, starts, sizes
        self._words = words

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def largest(self) -> int:
        """The size of the largest text, bytes; 0 without a text."""
        return int(self.sizes.max(initial=0))

    @property
    def words(self) -> NDArray[np.uint64]:
        """A window of each text at most, zeros after its end; shape (texts, words). Gathered once, never changed."""
        if self._words is None:
            words = words_of(self.data, self.starts, min(self.largest, WINDOW))
            self._words = mask_words(words, self.sizes)
        return self._words

    def text(self, row: int) -> bytes:
        """One of the texts."""
        start = int(self.starts[row])
        return self.data[start : start + int(self.sizes[row])].tobytes()

    def take(self, rows: Positions) -> Texts:
        """Some of the texts."""
        return Texts(self.data, self.starts.take(rows), self.sizes.take(rows))

    def longer(self, done: int) -> tuple[Positions, Texts]:
        """Which texts are longer than `done` bytes, and what follows there."""
        rows = np.flatnonzero(self.sizes > done)
        return rows, Texts(self.data, self.starts[rows] + done, self.sizes[rows] - done)

    def hold(self, byte: int) -> bool:
        """Whether any of the texts holds `byte`, which is not zero."""
        if (self.words.view(np.uint8) == byte).any():
            return True
        return self.largest > WINDOW and self.longer(WINDOW)[1].hold(byte)


def texts_before(
    byte: int, data: NDArray[np.uint8], starts: Positions, limits: Positions, usual: int = WINDOW
) -> Texts:
    """What stands from each of `starts` on before the next `byte`, but at most ``limits[i]`` bytes.

    `usual` is the largest size that is expected.
    """
    words = words_of(data, starts, min(usual + 1, WINDOW))
    width = words.shape[1] * WORD
    sizes = np.minimum(_sizes_before(byte, words), limits)
    rows = np.flatnonzero((sizes == width) & (limits > width))
    if not len(rows):
        return Texts(data, starts, sizes, mask_words(words, sizes))
    sizes[rows] += texts_before(byte, data, starts[rows] + width, limits[rows] - width).sizes
    return Texts(data, starts, sizes)


def _sizes_before(byte: int, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """How many bytes of each row stand before the first `byte`; all of them where there is none.

    Of a word without that byte's bits the lowest bit that a subtraction borrows for is that of its first zero byte.
    """
    rests = words ^ np.uint64(byte * _ONES)
    found = rests - np.uint64(_ONES)
    found &= np.invert(rests, out=rests)
    found &= np.uint64(_ONES << (WORD - 1))
    np.subtract(found, np.uint64(1), out=rests)
    rests &= np.invert(found, out=found)  # ones below the lowest bit, and only ones where there is no bit
    sizes = np.bitwise_count(rests)
    sizes //= WORD
    total: NDArray[np.uint8] = sizes[:, 0].copy()
    for word in range(1, words.shape[1]):
        total += (total == word * WORD) * sizes[:, word]
    return total


_MAX_TEXT = 1 << 15  # properties are smaller, so one table of powers serves for all
_NOT_ASCII = 0x8080808080808080
_NO_ROWS = np.empty(0, dtype=np.intp)
_UTF16 = "utf-16-le", "surrogatepass"


def _powers(base: int, count: int) -> NDArray[np.uint32]:
    powers = np.full(count, base, dtype=np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


POWERS = _powers(31, _MAX_TEXT + 1)
"""31 to the power of a text's length, modulo 2**32."""

_INVERSES = _powers(pow(31, -1, 1 << 32), WINDOW + 1)


class Hashes(NamedTuple):
    """Hashes modulo 2**32 and lengths in UTF-16 code units, of each text."""

    values: NDArray[np.uint32]
    lengths: Positions


def hash_texts(texts: Texts) -> Hashes:
    """Hash texts, which ascend, decoded from UTF-8 as Java does."""
    values, rows = _hash(texts)
    return Hashes(values, texts.sizes) if not len(rows) else _hash_decoded(texts, values, rows)


def _hash(texts: Texts, width: int = 1) -> tuple[NDArray[np.uint32], Positions]:
    """Hashes of texts as if each `width` bytes were a character, a window after the other; and which are not ASCII."""
    values, others = _hash_window(texts, width)
    if texts.largest <= WINDOW:
        return values, others
    rows, rests = texts.longer(WINDOW)
    while len(rows):
        more, others_here = _hash_window(rests, width)
        values[rows] = values[rows] * POWERS[np.minimum(rests.sizes, WINDOW) // width] + more
        others = np.union1d(others, rows[others_here])
        kept, rests = rests.longer(WINDOW)
        rows = rows[kept]
    return values, others


def _hash_window(texts: Texts, width: int) -> tuple[NDArray[np.uint32], Positions]:
    """The same of the first window of each text."""
    words = texts.words
    count = words.shape[1]
    others = _NO_ROWS
    if width == 1 and int(np.bitwise_or.reduce(words, axis=None)) & _NOT_ASCII:
        others = np.flatnonzero(np.bitwise_or.reduce(words, axis=1) & np.uint64(_NOT_ASCII))
    joined, spare = np.empty((2, *words.shape), dtype=np.uint64)
    for bits in (8, 16, 32)[width - 1 :]:
        kind = f"<u{bits // 4}"
        _join_halves(words.view(kind), joined.view(kind), spare.view(kind), bits, width)
        words = joined
    values = joined[:, 0].astype(np.uint32)
    for word in range(1, count):
        values *= POWERS[WORD // width]
        values += joined[:, word].astype(np.uint32)
    values *= _INVERSES.take((count * WORD - np.minimum(texts.sizes, WINDOW)) // width)
    return values, others


def _join_halves(values: NDArray[Any], joined: NDArray[Any], spare: NDArray[Any], bits: int, width: int) -> None:
    """Hash two neighbours of `bits` bits into `joined`: the lower half, that stands first, times a power of 31."""
    kind = values.dtype.type
    np.right_shift(values, kind(bits), out=spare)
    np.bitwise_and(values, kind((1 << bits) - 1), out=joined)
    joined *= kind(31 ** (bits // (8 * width)))
    joined += spare


def _hash_decoded(texts: Texts, values: NDArray[np.uint32], rows: Positions) -> Hashes:
    """Those `rows` hold more than ASCII: they are hashed by their UTF-16 code units."""
    starts, sizes = texts.starts[rows], texts.sizes[rows]
    units, counts = _utf16(gather_slices(pa.py_buffer(texts.data), starts, starts + sizes))
    lengths = texts.sizes.copy()
    lengths[rows] = counts
    values[rows], _ = _hash(Texts(units, 2 * (counts.cumsum() - counts), 2 * counts), width=2)
    return Hashes(values, lengths)


def _utf16(texts: pa.BinaryArray) -> tuple[NDArray[np.uint8], Positions]:
    """All texts as UTF-16, a window of zeros after them, and the code units of each; no text is empty."""
    _, offsets, stored = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(texts) + 1].astype(np.intp)
    data = np.frombuffer(stored, np.uint8)[: bounds[-1]]
    if is_utf8(texts):
        units_of = (data & 0xC0 != 0x80).view(np.uint8) + (data >= 0xF0)  # a character begins, one of two code units
        counts = np.add.reduceat(units_of, bounds[:-1], dtype=np.intp)
        text = data.tobytes().decode()
    else:
        decoded = [decode_text(each) for each in texts.to_pylist()]
        counts = np.array([len(each.encode(*_UTF16)) // 2 for each in decoded], dtype=np.intp)
        text = "".join(decoded)
    return np.frombuffer(text.encode(*_UTF16) + bytes(WINDOW), np.uint8), counts


def signed(values: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The hashes as Java's `int`."""
    return values.view(np.int32)
