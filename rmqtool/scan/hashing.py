"""`String#hashCode` of many texts at once, without a step for each character.

A window of zero-padded bytes is hashed pairwise: two characters, four, eight, and so on; the padding is undone with
the inverse of a power of 31, which exists because 31 is odd.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.java import decode_text
from rmqtool.scan.block import Positions, gather_slices
from rmqtool.scan.text import is_utf8
from rmqtool.scan.windows import WINDOW, WORD, Texts

_MODULUS = 1 << 32
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

_INVERSES = _powers(pow(31, -1, _MODULUS), WINDOW + 1)


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
