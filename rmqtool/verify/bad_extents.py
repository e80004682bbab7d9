"""Extents of the commit log whose messages cannot be read, or are not as they were stored."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import Literal

# Reasons of extents.
WRONG_PROPERTIES = "properties"  # of records whose properties a broker cannot read
UNSOUND_FIELDS = ("property-crc", WRONG_PROPERTIES)  # of records that are whole, but for a field
WRONG_BODY = "body-crc"  # of records that are whole, but for their body
WRONG_MAGIC = (
    "magic-code",
    "lengths",
)  # of records that may be whole but for their magic code, or its width of a length
TORN = "torn"  # of the end of a log that a kill has left
GAP = "gap"  # of what stands in no file
UNREAD = "unread"  # of an extent whose bytes could not be read, so that its content is not known

MAX_EXTENTS = 1 << 18
"""Extents that are kept one by one; later ones are joined to bound the memory."""


@dataclass
class Extents:
    """Extents in ascending order: physical offsets, sizes (bytes), and reasons.

    `inert` are the physical offsets of dummy records, which stand where an extent has been. Before the physical offset
    `chosen_until` messages were left out on purpose.
    """

    starts: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    reasons: list[str] = field(default_factory=list)
    bytes: int = 0
    inert: array[int] = field(default_factory=lambda: array("q"))
    chosen_until: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        return zip(self.starts, self.sizes, self.reasons, strict=True)

    def add(self, start: int, size: int, reason: str) -> None:
        """Add an extent after all others."""
        self.bytes += size
        if len(self) < MAX_EXTENTS:
            self.starts.append(start)
            self.sizes.append(size)
            self.reasons.append(reason)
        else:
            self.sizes[-1] = start + size - self.starts[-1]

    def extend(self, other: Extents) -> None:
        """Add the extents of the next part of the log."""
        for extent in other:
            self.add(*extent)
        self.inert.extend(other.inert)
        self.chosen_until = max(self.chosen_until, other.chosen_until)

    def reason_at(self, offset: int) -> str | None:
        """The reason of the extent that holds a physical offset; None outside of all extents."""
        index = bisect_right(self.starts, offset) - 1
        inside = index >= 0 and offset < self.starts[index] + self.sizes[index]
        return self.reasons[index] if inside else None

    def reason_of(self, start: int) -> str | None:
        """The reason of the extent that begins at a physical offset; None where none does."""
        index = bisect_right(self.starts, start) - 1
        return self.reasons[index] if index >= 0 and self.starts[index] == start else None

    def end_unread(self, end: int) -> bool:
        """Whether the bytes right before `end` could not be read."""
        return bool(self.reasons) and self.reasons[-1] == UNREAD and self.starts[-1] + self.sizes[-1] == end

    @property
    def lacks_until(self) -> int:
        """The physical offset before which messages may have been left out, or in extents; 0 where none were."""
        ends = (starts[-1] + 1 for starts in (self.starts, self.inert) if starts)
        return max(self.chosen_until, *ends, 0)

    def damaged_between(self, start: int, stop: int) -> int:
        """The bytes that are not as stored in extents from `start` to before `stop`; 0 where some were not read."""
        within = range(bisect_right(self.starts, start - 1), bisect_right(self.starts, stop - 1))
        return 0 if any(self.reasons[each] == UNREAD for each in within) else sum(self.sizes[each] for each in within)

    def replaced_from(self, end: int, files_end: int) -> int:
        """The physical offset from which other bytes stand after the last record, which ends at `end`, than there were.

        What a kill leaves there was never whole on disk. Without such bytes the end of the last file.
        """
        within = range(bisect_right(self.starts, end - 1), len(self))
        return next((self.starts[each] for each in within if self.reasons[each] not in (TORN, UNREAD)), files_end)

    def between(self, start: int, stop: int) -> bool:
        """Whether an extent or a dummy record begins from `start` to before `stop`."""
        return any(
            index < len(starts) and starts[index] < stop
            for starts in (self.starts, self.inert)
            for index in (bisect_right(starts, start - 1),)
        )


State = Literal["good", "not-reached", "unreachable", "torn", "unread", "bad"]
"""`unreachable`: good messages that a start would cut off; `unread`: could not be read; `not-reached`: not checked by
an interrupted verification. Of the last two the content is not known."""

_RANK: dict[State, int] = {"good": 0, "not-reached": 1, "unreachable": 2, "torn": 3, "unread": 4, "bad": 5}
_NOT_REACHED = "not-reached"
_STATES: dict[str, State] = {TORN: "torn", UNREAD: "unread", _NOT_REACHED: "not-reached"}


@dataclass(frozen=True)
class MapExtent:
    """A range of the log with one state, bytes."""

    physical_offset: int
    size: int
    state: State


def log_map(
    start: int,
    end: int,
    bad: Iterable[tuple[int, int, str]],
    cut_at: int | None = None,
    left: Iterable[tuple[int, int]] = (),
) -> Iterator[MapExtent]:
    """Consecutive extents from `start` to `end`; good ones after `cut_at` are unreachable after a start.

    `bad` are offsets, sizes and reasons of damaged extents, `left` offsets and sizes of extents that were not reached.
    """
    at = start
    not_reached = ((offset, size, _NOT_REACHED) for offset, size in left)
    for offset, size, reason in merge(bad, not_reached):
        if offset > at:
            yield from _good(at, offset, cut_at)
        if offset + size > at:
            yield MapExtent(max(at, offset), offset + size - max(at, offset), _STATES.get(reason, "bad"))
            at = offset + size
    if at < end:
        yield from _good(at, end, cut_at)


def gaps_between(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """What is left of `start` to `stop` without some ranges, which may overlap: each with its own start and stop."""
    left, at = [], start
    for low, high in sorted(ranges):
        if at < min(low, stop):
            left.append((at, min(low, stop)))
        at = max(at, high)
    return [*left, (at, stop)] if at < stop else left


def unreached(reached: Iterable[list[int]], start: int, end: int) -> list[tuple[int, int]]:
    """Offsets and sizes of the gaps from `start` to `end` between the extents `reached` (start, stop)."""
    return [(low, high - low) for low, high in gaps_between(((first, stop) for first, stop in reached), start, end)]


def _good(start: int, stop: int, cut_at: int | None) -> Iterator[MapExtent]:
    cut = stop if cut_at is None else min(max(cut_at, start), stop)
    if cut > start:
        yield MapExtent(start, cut - start, "good")
    if stop > cut:
        yield MapExtent(cut, stop - cut, "unreachable")


def cells(extents: Iterable[MapExtent], start: int, cell_size: int, count: int) -> list[State | None]:
    """The worst state in each of `count` cells of `cell_size` bytes; None where the log is empty."""
    states: list[State | None] = [None] * count
    for extent in extents:
        first = (extent.physical_offset - start) // cell_size
        last = (extent.physical_offset + extent.size - 1 - start) // cell_size
        for cell in range(max(first, 0), min(last + 1, count)):
            known = states[cell]
            if known is None or _RANK[extent.state] > _RANK[known]:
                states[cell] = extent.state
    return states
