"""Ranges of positions as arrays of shape ``(n, 2)``: begins and ends, in order, without overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ranges = NDArray[np.int64]


def ranges_of(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Ranges:
    """Ranges in any order, put in order; those that touch or overlap become one."""
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    begins = np.append(True, starts[1:] > reached[:-1])[: len(starts)]
    lasts = np.append(begins[1:], True)[: len(starts)]
    return np.stack([starts[begins], reached[lasts]], axis=1).astype(np.int64)


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """The ranges less `others`."""
    edges = np.concatenate([ranges.ravel(), others.ravel()])
    steps = np.concatenate([np.tile([1, -1], len(ranges)), np.tile([-2, 2], len(others))])
    order = np.argsort(edges, kind="stable")
    edges, state = edges[order], np.cumsum(steps[order])
    is_in = (state == 1) & (np.append(edges[1:], 0) > edges)
    rows = np.flatnonzero(is_in)
    return np.stack([edges[rows], edges[rows + 1]], axis=1) if len(rows) else np.empty((0, 2), np.int64)


def meets(ranges: Ranges, start: int, end: int) -> bool:
    """Whether a range overlaps any of `ranges`."""
    row = int(np.searchsorted(ranges[:, 1], start, "right"))
    return row < len(ranges) and bool(ranges[row, 0] < end)
