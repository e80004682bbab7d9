"""The minimum offset of a queue, from what its units point to."""

from __future__ import annotations

import pytest

from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, NEWEST, OLDEST, Version
from rmqtool.store.queue_units import SimpleQueue, rows_min_offset
from rmqtool.store.rocksdb_queues import LastUnit


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


ROWS = {0: 100, 1: 200, 2: 300, 3: 400, 7: 500, 8: 600}
LAST = LastUnit(8, 600)


@pytest.mark.parametrize(
    ("first", "last", "log_min_offset", "expected"),
    [
        (None, LAST, 0, 7),  # 4 has no row, nor has 5 or 6
        (None, LastUnit(3, 400), 0, 0),
        (None, LastUnit(3, 400), 250, 2),
        (None, LastUnit(3, 400), 300, 2),
        (None, LAST, 600, 8),
        (None, LAST, 601, 9),
        (LastUnit(1, 200), LAST, 150, 1),  # as it was written down
        (LastUnit(1, 200), LastUnit(3, 400), 250, 2),  # the log has lost its first files since
        (LastUnit(4, 0), LastUnit(3, 0), 0, 4),  # a queue that began without its older units
        (LastUnit(4, 0), LastUnit(3, 0), 1, 4),
        (None, None, 250, 0),
        (None, LastUnit(6, 700), 650, 6),
    ],
)
def test_the_minimum_by_rows(first: LastUnit | None, last: LastUnit | None, log_min_offset: int, expected: int) -> None:
    """What a broker has written down, or finds by halves, as if nothing were at or before an offset without a row."""
    assert rows_min_offset(first, last, log_min_offset, ROWS.get) == expected
