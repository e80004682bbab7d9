"""The minimum offset of a queue, from what its units point to."""

from __future__ import annotations

import pytest

from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, NEWEST, OLDEST, Version
from rmqtool.store.queue_minimum import SimpleQueue


def minimum(offsets: list[int], log_min_offset: int, version: Version, first: int = 0, so_far: int = 0) -> int:
    """The minimum of a queue whose only file begins with unit `first`."""
    end, last = (first + len(offsets)) * UNIT_SIZE, offsets[-1] if offsets else None
    queue = SimpleQueue(first * UNIT_SIZE, offsets, end, last, so_far * UNIT_SIZE)
    return queue.min_offset(log_min_offset, version)


@pytest.mark.parametrize("version", [OLDEST, EXPIRED_QUEUE_MIN_IS_MAX, NEWEST])
@pytest.mark.parametrize(("log_min_offset", "expected"), [(-1, 10), (100, 10), (101, 11), (300, 12)])
def test_the_first_unit_that_points_into_the_log(log_min_offset: int, expected: int, version: Version) -> None:
    assert minimum([100, 200, 300], log_min_offset, version, first=10) == expected


@pytest.mark.parametrize(("version", "expected"), [(OLDEST, 11), (EXPIRED_QUEUE_MIN_IS_MAX, 13)])
def test_a_queue_that_has_expired(version: Version, expected: int) -> None:
    """Since 5.0.0 its minimum is its maximum, before it stays what it was."""
    assert minimum([100, 200, 300], 301, version, first=10, so_far=11) == expected


@pytest.mark.parametrize("version", [OLDEST, EXPIRED_QUEUE_MIN_IS_MAX])
def test_without_a_unit_it_stays(version: Version) -> None:
    assert minimum([], 500, version, first=10, so_far=7) == 7


def test_filler_below_the_minimum_is_passed_over_since_5_0_0() -> None:
    """The search begins with the minimum so far, the walk of older brokers with the first unit."""
    assert minimum([0, 0, 100], 0, EXPIRED_QUEUE_MIN_IS_MAX, first=10, so_far=12) == 12
    assert minimum([0, 0, 100], 0, OLDEST, first=10, so_far=12) == 10
