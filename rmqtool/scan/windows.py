"""Windows of bytes at many positions at once, as words of eight bytes: to mask texts and to find a byte in them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.scan.block import Positions

WORD = 8  # bytes

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


def hold(byte: int, data: NDArray[np.uint8], starts: Positions, sizes: Positions) -> bool:
    """Whether any of the texts ``data[starts[i] : starts[i] + sizes[i]]`` holds `byte`, which is not zero."""
    while len(starts):
        words = mask_words(words_of(data, starts, min(int(sizes.max()), WINDOW)), sizes)
        if (words.view(np.uint8) == byte).any():
            return True
        rows = np.flatnonzero(sizes > WINDOW)
        starts, sizes = starts[rows] + WINDOW, sizes[rows] - WINDOW
    return False


def sizes_before(
    byte: int, data: NDArray[np.uint8], starts: Positions, limits: Positions, usual: int = WINDOW
) -> Positions:
    """How many bytes stand from each of `starts` on before the next `byte`, and at most ``limits[i]``.

    `usual` is the largest number that is expected.
    """
    equal = words_of(data, starts, min(usual + 1, WINDOW)).view(np.uint8) == byte
    width = equal.shape[1]
    sizes: Positions = equal.argmax(axis=1)
    rows = np.flatnonzero(sizes == 0)
    sizes[rows[~equal[rows, 0]]] = width  # no byte is equal
    rows = rows[(sizes[rows] == width) & (limits[rows] > width)]
    if len(rows):
        sizes[rows] += sizes_before(byte, data, starts[rows] + width, limits[rows] - width)
    return np.minimum(sizes, limits, out=sizes)
