"""What of the log holds no record: extents in order, and what they add up to between two places."""

from __future__ import annotations

from bisect import bisect_left

from rmqtool.append.simple_queues import NOTHING_LOST, Lost
from rmqtool.scan.events import Damage

MAX_EXTENTS = 1000
"""Extents that are listed one by one; all are counted."""

_MOST_KEPT = 1 << 20  # of which gaps are told from jumps, beyond that the last one grows


class LostExtents:
    """Damaged and missing extents of a log, and records that a broker takes for damage."""

    def __init__(self) -> None:
        self.listed: list[tuple[int, int, str]] = []  # the first MAX_EXTENTS: physical offset, size, reason
        self.count = 0
        self.size = 0  # bytes
        self.tail = 0  # of these bytes, those that an unclean stop leaves behind the last record
        self._starts: list[int] = []
        self._totals = [0]  # bytes of all extents before each one
        self._missing: list[int] = []  # starts of those that no file holds

    def add(self, damage: Damage) -> None:
        """Count an extent that the scan met."""
        self.add_extent(damage.physical_offset, damage.size, damage.reason)
        self.tail += damage.size if damage.tail else 0

    def add_extent(self, physical_offset: int, size: int, reason: str) -> None:
        """Count an extent, which lies behind all before it."""
        self.count += 1
        self.size += size
        if len(self.listed) < MAX_EXTENTS:
            self.listed.append((physical_offset, size, reason))
        if len(self._starts) < _MOST_KEPT:
            self._starts.append(physical_offset)
            self._totals.append(self._totals[-1] + size)
            if reason == "missing":
                self._missing.append(physical_offset)
        else:
            self._totals[-1] += size

    @property
    def is_lossy(self) -> bool:
        """Whether more than the torn end of the log is lost."""
        return self.size > self.tail

    def between(self, start: int, stop: int) -> Lost:
        """What is lost from physical offset `start` to before `stop`."""
        low, high = bisect_left(self._starts, start), bisect_left(self._starts, stop)
        if low == high:
            return NOTHING_LOST
        missing = bisect_left(self._missing, start)
        in_range = missing < len(self._missing) and self._missing[missing] < stop
        return Lost(self._totals[high] - self._totals[low], self._missing[missing] if in_range else None)
