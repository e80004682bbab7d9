"""The log as a sequence of extents: readable, damaged, unread, and cut by the next start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Literal

from rmqtool.verify.bad_extents import UNREAD

State = Literal["good", "not-reached", "unreachable", "torn", "unread", "bad"]
"""`unreachable`: good messages that a start would cut off; `unread`: could not be read; `not-reached`: not checked by
an interrupted verification. Of the last two the content is not known."""

_RANK: dict[State, int] = {"good": 0, "not-reached": 1, "unreachable": 2, "torn": 3, "unread": 4, "bad": 5}
_NOT_REACHED = "not-reached"
_STATES: dict[str, State] = {"torn": "torn", UNREAD: "unread", _NOT_REACHED: "not-reached"}


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


def unreached(reached: Iterable[list[int]], start: int, end: int) -> list[tuple[int, int]]:
    """Offsets and sizes of the gaps from `start` to `end` between the extents `reached` (start, stop)."""
    extents, at = [], start
    for low, high in sorted(reached):
        if at < min(low, end):
            extents.append((at, min(low, end) - at))
        at = max(at, high)
    if at < end:
        extents.append((at, end - at))
    return extents


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
