"""The log as a sequence of extents: what can be read, what cannot, and what a start of the broker would cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

State = Literal["good", "bad", "torn", "unreachable"]
"""`unreachable` are good messages that a start would cut off."""

_RANK: dict[State, int] = {"good": 0, "unreachable": 1, "torn": 2, "bad": 3}


@dataclass(frozen=True)
class MapExtent:
    """A stretch of the log, bytes."""

    physical_offset: int
    size: int
    state: State


def log_map(
    start: int, end: int, bad: Iterable[tuple[int, int, str]], cut_at: int | None = None
) -> Iterator[MapExtent]:
    """Extents from `start` to `end`, one behind the other; good ones behind `cut_at` are unreachable after a start."""
    at = start
    for offset, size, reason in bad:
        if offset > at:
            yield from _good(at, offset, cut_at)
        if offset + size > at:
            yield MapExtent(max(at, offset), offset + size - max(at, offset), "torn" if reason == "torn" else "bad")
            at = offset + size
    if at < end:
        yield from _good(at, end, cut_at)


def _good(start: int, stop: int, cut_at: int | None) -> Iterator[MapExtent]:
    cut = stop if cut_at is None else min(max(cut_at, start), stop)
    if cut > start:
        yield MapExtent(start, cut - start, "good")
    if stop > cut:
        yield MapExtent(cut, stop - cut, "unreachable")


def cells(extents: Iterable[MapExtent], start: int, cell_size: int, count: int) -> list[State | None]:
    """The worst state in each of `count` cells of `cell_size` bytes; None where the log is empty."""
    found: list[State | None] = [None] * count
    for extent in extents:
        first = (extent.physical_offset - start) // cell_size
        last = (extent.physical_offset + extent.size - 1 - start) // cell_size
        for number in range(max(first, 0), min(last + 1, count)):
            known = found[number]
            if known is None or _RANK[extent.state] > _RANK[known]:
                found[number] = extent.state
    return found
