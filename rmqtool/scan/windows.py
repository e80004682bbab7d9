"""Windows of bytes at many positions at once, as words of eight bytes: to mask texts and to find a byte in them."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.scan.block import Positions

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
