"""Which numbers make sense, for the options of commands and for the parameters of the library alike."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple


class Bounds(NamedTuple):
    """The least and the largest number; None without a limit."""

    least: int
    most: int | None = None

    def __contains__(self, number: object) -> bool:
        value: Any = number
        return isinstance(number, Real) and self.least <= value and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f"of at least {self.least}" if self.most in (None, _LONG) else f"from {self.least} to {self.most}"


_LONG = (1 << 63) - 1  # Java's Long.MAX_VALUE

JOBS = Bounds(1, 256)
OFFSETS = Bounds(0, _LONG)
"""Physical offsets, queue offsets and counts."""

QUEUE_IDS = Bounds(-(1 << 31), (1 << 31) - 1)
"""Numbers of queues, which are Java ints."""

EXAMPLES = Bounds(1)
PERCENT = Bounds(0, 100)
RATE = Bounds(1)
"""Bytes per second."""

SECONDS = Bounds(0)
