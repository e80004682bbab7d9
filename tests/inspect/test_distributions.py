"""Distributions count every message once, in few parts, whatever the numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.inspect.log_statistics import SizeDistribution, TimeDistribution

timestamps = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(1_700_000_000_000, 1_700_100_000_000)


@given(st.lists(st.lists(st.integers(1, (1 << 31) - 1), min_size=1, max_size=8), max_size=4))
def test_sizes(batches: list[list[int]]) -> None:
    """Each part holds the sizes from its beginning to twice that."""
    found = SizeDistribution()
    for sizes in batches:
        found.add(np.array(sizes))
    every = [size for sizes in batches for size in sizes]
    assert found.bins() == [(start, sum(start <= size < 2 * start for size in every)) for start, _ in found.bins()]
    assert sum(count for _, count in found.bins()) == len(every)


@given(st.lists(st.lists(timestamps, min_size=1, max_size=8), max_size=4), st.integers(1, 60))
def test_times(batches: list[list[int]], most: int) -> None:
    """Parts follow each other, are as many as asked for at most, and hold what lies between them."""
    found = TimeDistribution()
    for times in batches:
        found.add(np.array(times, dtype=np.int64))
    every = [time for times in batches for time in times]
    parts = found.bins(most)
    assert len(parts) <= most
    assert sum(count for _, count in parts) == len(every)
    for (begin, count), (end, _) in pairwise(parts):
        assert count == sum(begin <= time < end for time in every)


def test_many_times_take_few_parts() -> None:
    """A part a minute for a year is too many: they become wider, and none is lost."""
    found = TimeDistribution()
    for day in range(366):
        found.add(np.arange(0, 86_400_000, 60_000, dtype=np.int64) + day * 86_400_000)
    assert found.width >= 366 * 86_400_000 // 1024
    assert len(found.bins(32)) <= 32
    assert sum(count for _, count in found.bins(32)) == 366 * 1440
    assert {count for _, count in found.bins(10)[1:-1]} == {found.bins(10)[1][1]}
