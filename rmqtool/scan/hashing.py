"""`String#hashCode` of many texts at once, without a step for each character.

A window of zero-padded bytes is hashed pairwise: two characters, four, eight, and so on; the padding is undone with
the inverse of a power of 31, which exists because 31 is odd.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.java import decode_text
from rmqtool.scan.block import Positions

WORD = 8  # bytes

WINDOW = 64
"""Texts are hashed in windows up to this size, bytes: data must be that much longer than the last text."""


def padded_words(windows: NDArray[Any], sizes: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The bytes of `windows`, all of one width in whole words, as words; zeros from ``sizes[i]`` on.

    Shape (texts, words). The windows themselves are changed.
    """
    width = windows.dtype.itemsize
    words: NDArray[np.uint64] = windows.view("<u8").reshape(len(windows), width // WORD)
    if int(sizes.min(initial=width)) < width:
        words &= _masks(width).take(sizes, axis=0, mode="clip")
    return words


@cache
def _masks(width: int) -> NDArray[np.uint64]:
    """For each size up to `width`, the bits that belong to a text of that size."""
    masks = np.zeros((width + 1, width), dtype=np.uint8)
    masks[np.arange(width) < np.arange(width + 1)[:, None]] = 0xFF
    return masks.view("<u8")


_MODULUS = 1 << 32
_MAX_TEXT = 1 << 15  # properties are smaller, so one table of powers serves for all
_LAST_ASCII = 0x7F


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


def hash_texts(data: NDArray[np.uint8], starts: Positions, sizes: Positions) -> Hashes:
    """Hash the texts at ``data[starts[i] : starts[i] + sizes[i]]``, decoded from UTF-8 as Java does."""
    values = _hash_long(data, starts, sizes) if sizes.max(initial=0) > WINDOW else _hash_window(data, starts, sizes)
    if is_ascii(data):
        return Hashes(values, sizes)
    others = np.append(np.flatnonzero(data > _LAST_ASCII), len(data))
    rows = np.flatnonzero(others[np.searchsorted(others, starts)] < starts + sizes)
    return _hash_decoded(data, starts, sizes, values, rows)


def _hash_long(data: NDArray[np.uint8], starts: Positions, sizes: Positions) -> NDArray[np.uint32]:
    """Hashes of texts as if each byte were a character, a window after the other."""
    values = _hash_window(data, starts, np.minimum(sizes, WINDOW))
    rows = np.flatnonzero(sizes > WINDOW)
    done = WINDOW
    while len(rows):
        sizes_here = np.minimum(sizes[rows] - done, WINDOW)
        values[rows] = values[rows] * POWERS[sizes_here] + _hash_window(data, starts[rows] + done, sizes_here)
        done += WINDOW
        rows = rows[sizes[rows] > done]
    return values


def is_ascii(data: NDArray[np.uint8]) -> bool:
    """Whether each byte is a character of its own."""
    return int(data.max(initial=0)) <= _LAST_ASCII


def _hash_window(data: NDArray[np.uint8], starts: Positions, sizes: Positions) -> NDArray[np.uint32]:
    """Hashes of texts up to WINDOW bytes as if each byte were a character."""
    count = -(-int(sizes.max(initial=1)) // WORD)
    width = count * WORD
    windows: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))[starts]
    words = padded_words(windows, sizes).ravel()
    spare = np.empty_like(words)
    for bits in (8, 16, 32):
        _join_halves(words.view(f"<u{bits // 4}"), spare.view(f"<u{bits // 4}"), bits)
    hashes = words.reshape(-1, count)
    values = hashes[:, 0].astype(np.uint32)
    for word in range(1, count):
        values *= POWERS[WORD]
        values += hashes[:, word].astype(np.uint32)
    values *= _INVERSES.take(width - sizes)
    return values


def _join_halves(values: NDArray[Any], spare: NDArray[Any], bits: int) -> None:
    """Hash two neighbours of `bits` bits in place: the lower half, that stands first, times a power of 31."""
    kind = values.dtype.type
    np.right_shift(values, kind(bits), out=spare)
    values &= kind((1 << bits) - 1)
    values *= kind(31 ** (bits // 8))
    values += spare


def _hash_decoded(
    data: NDArray[np.uint8], starts: Positions, sizes: Positions, values: NDArray[np.uint32], rows: Positions
) -> Hashes:
    """Those `rows` hold more than ASCII: each is decoded, and their UTF-16 code units are hashed all at once."""
    lengths = sizes.copy()
    if not len(rows):
        return Hashes(values, lengths)
    stored, ends = data.tobytes(), (starts[rows] + sizes[rows]).tolist()
    texts = [decode_text(stored[start:end]) for start, end in zip(starts[rows].tolist(), ends, strict=True)]
    units = np.frombuffer("".join(texts).encode("utf-16-le", "surrogatepass"), "<u2").astype(np.uint32)
    counts = np.fromiter(map(len, texts), np.intp, len(texts))
    if int(counts.sum()) != len(units):  # a character of two code units
        counts = np.fromiter((len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts), np.intp)
    stops = counts.cumsum()
    units *= POWERS[np.repeat(stops, counts) - 1 - np.arange(len(units))]
    values[rows] = np.add.reduceat(units, stops - counts, dtype=np.uint32)
    lengths[rows] = counts
    return Hashes(values, lengths)


def signed(values: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The hashes as Java's `int`."""
    return values.view(np.int32)
