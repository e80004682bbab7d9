"""Which units are as they were, changed or new, as spans of queue offsets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SAME, CHANGED, ADDED = 0, 1, 2


class Spans:
    """Spans of units with one state each, in order; those that meet and are alike are one."""

    def __init__(self) -> None:
        self._bounds: list[int] = []  # where each span begins; the last one ends at `end`
        self._states: list[int] = []
        self.end = -1

    def add(self, number: int, count: int, state: int) -> None:
        """Units from `number` on, which is `end` or behind it."""
        if self._states and self.end == number and self._states[-1] == state:
            self.end += count
            return
        if self._states and number > self.end:
            self._append(self.end, -1)
        self._append(number, state)
        self.end = number + count

    def add_states(self, number: int, states: NDArray[np.int8]) -> None:
        """Units from `number` on with a state each."""
        borders = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist(), len(states)]
        for low, high in pairwise(borders):
            self.add(number + low, high - low, int(states[low]))

    def cut(self, number: int) -> None:
        """Forget the units from `number` on."""
        while self._bounds and self._bounds[-1] >= number:
            self._bounds.pop()
            self._states.pop()
        self.end = min(self.end, number) if self._bounds else -1

    def count(self, state: int) -> int:
        """How many units have a state."""
        return sum(end - begin for begin, end, found in self._spans() if found == state)

    def differ_from(self, number: int) -> bool:
        """Whether a unit from `number` on is changed or new."""
        return any(end > number and state in (CHANGED, ADDED) for _, end, state in self._spans())

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        """Where each span begins and ends, and its state."""
        ends = [*self._bounds, self.end][1:]
        return zip(self._bounds, ends, self._states, strict=True)

    def _append(self, number: int, state: int) -> None:
        self._bounds.append(number)
        self._states.append(state)
