"""Short texts as machine words with zeros behind them, all at once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 8  # bytes

WINDOW = 64
"""Texts are looked at in windows up to this size: data must go on so long behind the last one, bytes."""


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
