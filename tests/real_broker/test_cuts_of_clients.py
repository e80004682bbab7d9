"""Cut logs of whole brokers: what POP consumers hold, timers and half messages come as they have to.

A few; `tests.real_broker.popped_cuts` and `tests.real_broker.shop_cuts` make more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_broker.harness import Harness
from tests.real_broker.popped_cuts import IN_ROCKSDB, end_of, places, taken_once, taken_twice, wrong_after_cut
from tests.real_broker.shop_cuts import (
    places_of_halves,
    places_of_timers,
    store_with_halves,
    store_with_timers,
    wrong_halves,
    wrong_timers,
)

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.rare]
_TASKS = 12


@pytest.mark.parametrize(("version", "settings"), [("5.3.3", {}), ("5.5.0", {}), ("5.5.0", IN_ROCKSDB)])
def test_what_pop_consumers_hold(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, settings: dict[str, str]
) -> None:
    """Cut before the first check point, and where messages had come back."""
    broker = harness(version)
    once = taken_once(broker, tmp_path / "once", settings)
    offset = [*places(once)][_TASKS - 2 if settings else _TASKS - 1]  # in RocksDB there are no check points
    assert wrong_after_cut(broker, once, offset, settings) == {}
    if not settings:
        twice = taken_twice(broker, once, tmp_path / "twice", settings)
        [*_, offset] = [*places(twice, end_of(once))][:-4]
        assert wrong_after_cut(broker, twice, offset, settings) == {}


@pytest.mark.parametrize("place", [2, -1])
def test_timers_in_rocksdb(harness: Callable[[str], Harness], tmp_path: Path, place: int) -> None:
    """Cut before the last that waits, and before the delivery of the first."""
    source = store_with_timers(tmp_path)
    assert wrong_timers(harness("5.5.0"), source, places_of_timers(source)[place]) == {}


def test_half_messages_in_rocksdb(harness: Callable[[str], Harness], tmp_path: Path) -> None:
    """Cut in the middle of half messages and answers."""
    source = store_with_halves(harness("5.5.0"), tmp_path)
    offsets = places_of_halves(source)
    assert wrong_halves(harness("5.5.0"), source, offsets[len(offsets) // 2]) == {}
