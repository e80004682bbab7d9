"""Extents of the log that hold no record, in order, and the bytes that are lost between two offsets."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from rmqtool.scan.events import Damage

MAX_EXTENTS = 1000
"""Extents that are listed one by one; all are counted."""

MAX_KEPT = 100_000
"""Extents that are remembered with their reason, and can be neutralised."""

NEUTRALISED = "neutralised"
"""The reason of an extent that holds a dummy record of ours, which is not counted as a new loss."""

_MAX_STARTS = 1 << 20  # extents that `between` knows one by one; beyond that the last one grows


class Extent(NamedTuple):
    """Bytes of the log that hold no record; `timestamp` is the store time of the record before them, -1 without one."""

    physical_offset: int
    size: int
    reason: str
    timestamp: int
    tail: bool = False

    @property
    def is_harmless(self) -> bool:
        """Whether it lies past the last record, or in a dummy record of ours."""
        torn = self.tail and self.reason != "physical-offset"  # records of a file with another name are whole
        return torn or self.reason == NEUTRALISED


class Lost(NamedTuple):
    """The loss in a range of the log, bytes; `missing` is the physical offset of a byte that no file holds, or None."""

    size: int
    missing: int | None


class LostExtents:
    """Damaged and missing extents of a log, and records that a broker takes for damage."""

    def __init__(self) -> None:
        self.extents: list[Extent] = []  # the first MAX_KEPT
        self.count = 0
        self.size = 0  # bytes
        self._harmless = 0  # of these bytes, those after the last record, and those in dummy records
        self._starts: list[int] = []
        self._totals = [0]  # bytes of all extents before each one
        self._missing: list[int] = []  # starts of those that no file holds

    def add(self, damage: Damage, timestamp: int) -> None:
        """Count an extent that the scan met after a record stored at `timestamp`."""
        self.add_extent(Extent(damage.physical_offset, damage.size, damage.reason, timestamp, damage.tail))

    def add_extent(self, extent: Extent) -> None:
        """Count an extent, which lies after all before it."""
        physical_offset, size, reason, *_ = extent
        self.count += 1
        self.size += size
        self._harmless += size if extent.is_harmless else 0
        if len(self.extents) < MAX_KEPT:
            self.extents.append(extent)
        if len(self._starts) < _MAX_STARTS:
            self._starts.append(physical_offset)
            self._totals.append(self._totals[-1] + size)
            if reason == "missing":
                self._missing.append(physical_offset)
        else:
            self._totals[-1] += size

    @property
    def is_lossy(self) -> bool:
        """Whether more than the torn end of the log is lost."""
        return self.size > self._harmless

    @property
    def listed(self) -> list[tuple[int, int, str]]:
        """The first MAX_EXTENTS: physical offset, size, reason."""
        return [(extent.physical_offset, extent.size, extent.reason) for extent in self.extents[:MAX_EXTENTS]]

    def between(self, start: int, stop: int) -> Lost:
        """The loss from physical offset `start` to before `stop`."""
        low, high = bisect_left(self._starts, start), bisect_left(self._starts, stop)
        if low == high:
            return Lost(0, None)
        missing = bisect_left(self._missing, start)
        in_range = missing < len(self._missing) and self._missing[missing] < stop
        return Lost(self._totals[high] - self._totals[low], self._missing[missing] if in_range else None)
