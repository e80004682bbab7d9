"""How sizes and times of many messages are spread, counted in a bounded number of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.times import MIN_TIMESTAMP

_MINUTE_MS = 60_000
_MOST_PARTS = 512


class SizeDistribution:
    """Messages by their size, in powers of two: ``counts[n]`` are those of ``2**n`` to below ``2**(n+1)`` bytes."""

    def __init__(self) -> None:
        self.counts = np.zeros(32, dtype=np.int64)

    def add(self, sizes: NDArray[Any]) -> None:
        """Count messages by their sizes, bytes, each at least 1."""
        exponents = np.frexp(sizes.astype(np.float64))[1] - 1
        self.counts += np.bincount(exponents, minlength=len(self.counts))[: len(self.counts)]

    def parts(self) -> list[tuple[int, int]]:
        """Smallest size of each part, bytes, and its messages; from the first to the last that is not empty."""
        used = np.flatnonzero(self.counts)
        if not len(used):
            return []
        return [(1 << n, int(self.counts[n])) for n in range(int(used[0]), int(used[-1]) + 1)]


class TimeDistribution:
    """Messages by their store time: parts of a minute, and of twice as long whenever they become too many."""

    def __init__(self) -> None:
        self.width = _MINUTE_MS
        self._counts: dict[int, int] = {}

    def add(self, timestamps: NDArray[np.int64]) -> None:
        """Count messages by their timestamps, epoch ms."""
        while True:
            numbers, counts = np.unique(timestamps // self.width, return_counts=True)
            if len(numbers) + len(self._counts) <= 2 * _MOST_PARTS:
                break
            self._widen()
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._counts[number] = self._counts.get(number, 0) + count
        while len(self._counts) > _MOST_PARTS:
            self._widen()

    def parts(self, most: int) -> list[tuple[int, int]]:
        """Beginning, epoch ms, and messages of at most `most` parts of one width that follow each other."""
        if not self._counts:
            return []
        first, last = min(self._counts), max(self._counts)
        step = -(-(last - first + 1) // most)
        found = [0] * -(-(last - first + 1) // step)
        for number, count in self._counts.items():
            found[(number - first) // step] += count
        begins = ((first + place * step) * self.width for place in range(len(found)))
        return [(max(begin, MIN_TIMESTAMP), count) for begin, count in zip(begins, found, strict=True)]

    def _widen(self) -> None:
        self.width *= 2
        wider: dict[int, int] = {}
        for number, count in self._counts.items():
            wider[number // 2] = wider.get(number // 2, 0) + count
        self._counts = wider
