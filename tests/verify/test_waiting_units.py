"""Units that wait come back by queue as they were, and take a third of the memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueUnits, WaitingUnits

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
RANDOM = np.random.default_rng(7)


def usual(count: int, queues: int = 70_000) -> QueueUnits:
    """Units as of new messages to many queues, in 4 MiB of the log."""
    hashes = RANDOM.integers(INT32.min, INT32.max, count)
    ones = np.ones(count, np.int16)
    return QueueUnits(
        queues=RANDOM.integers(0, queues, count, dtype=np.int32),
        queue_offsets=RANDOM.integers(1 << 40, (1 << 40) + 5000, count),
        physical_offsets=(1 << 45) + np.sort(RANDOM.integers(0, 4 << 20, count)),
        message_sizes=RANDOM.integers(91, 60_000, count, dtype=np.int32),
        tags_codes=hashes,
        tags_hashes=hashes,
        store_timestamps=1_700_000_000_000 + np.sort(RANDOM.integers(0, 60_000, count)),
        batch_sizes=ones,
        message_counts=ones,
        rows=np.arange(count, dtype=np.int32),
    )


def extreme(count: int) -> QueueUnits:
    """Units of nonsense: each column has the least and the greatest of its numbers."""

    def ends(dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
        info = np.iinfo(dtype)
        return np.resize(np.array([info.min, info.max, 0, -1], dtype), count)

    queues = RANDOM.integers(0, 3, count, dtype=np.int32)
    large, small, short = ends(np.int64), ends(np.int32), ends(np.int16)
    return QueueUnits(
        queues, large, large[::-1].copy(), small, large, large * 0 + INT64.min, large, short, short, small
    )


def one_queue(count: int) -> QueueUnits:
    return usual(count, queues=1)


def in_order(runs: Sequence[QueueUnits]) -> list[NDArray[Any]]:
    """The columns of all units by queue, in log order."""
    columns = [np.concatenate(column) for column in zip(*(run.columns() for run in runs), strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return [column[order] for column in columns]


@pytest.mark.parametrize("make", [usual, extreme, one_queue])
@pytest.mark.parametrize("sizes", [[1], [5, 0, 7], [20_000, 3, 150_000, 9_000], [700] * 60])
def test_units_come_back_by_queue_and_in_log_order(make: Callable[[int], QueueUnits], sizes: list[int]) -> None:
    runs = [make(size) for size in sizes]
    wanted = in_order(runs)
    waiting = WaitingUnits()
    for run in runs:
        waiting.add(run)
    assert len(waiting) == sum(sizes)
    pieces = [*waiting.drain()]
    assert len(waiting) == 0
    assert not [*waiting.drain()]
    for index, column in enumerate(wanted):
        found = np.concatenate([[*piece.columns()][index] for piece, _ in pieces])
        assert found.dtype == column.dtype
        assert np.array_equal(found, column)


def test_no_queue_is_in_two_pieces_and_each_begins_at_its_bound() -> None:
    waiting = WaitingUnits()
    for _ in range(40):
        waiting.add(usual(10_000, queues=300))
    queues: list[int] = []
    sizes = []
    for piece, bounds in waiting.drain():
        assert bounds[-1] == len(piece)
        assert np.array_equal(np.flatnonzero(np.diff(piece.queues, prepend=-1)), bounds[:-1])
        queues += piece.queues[bounds[:-1]].tolist()
        sizes.append(len(piece))
    assert queues == [*range(300)]
    assert sum(sizes) == 400_000
    assert max(sizes) <= 1 << 16
    assert len(sizes) == 7  # few, not one for each queue


def test_a_unit_that_waits_takes_a_third_of_the_memory() -> None:
    tracemalloc.start()
    try:
        waiting = WaitingUnits()
        for _ in range(20):
            waiting.add(usual(16_384))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    own = sum(column.itemsize for column in usual(1).columns())
    assert held / len(waiting) < own / 2.5
