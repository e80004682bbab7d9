"""Stores of whole brokers with clients: what the overview tells is what the broker said before it stopped."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.inspect.overview import Overview, overview_of
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.golden import stores

NAMES = [name for name in stores.names() if name.endswith("-shop")]
HALF = "RMQ_SYS_TRANS_HALF_TOPIC@0"
BATCHED = ("5.1.4-shop", "5.3.3-shop", "5.5.0-shop")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a golden store."""
    found: str = request.param
    return found


@pytest.fixture
def facts(name: str) -> dict[str, Any]:
    """What the broker and its clients said."""
    found: dict[str, Any] = stores.oracle(name)["facts"]
    return found


@pytest.fixture
def overview(name: str, golden_store: GoldenStore) -> Overview:
    """The store as the overview shows it."""
    return overview_of(open_store(golden_store(name)))


def test_committed_offsets_and_lag(overview: Overview, facts: dict[str, Any]) -> None:
    """Every group stands where the broker knew it, and is as far behind; only the desk is."""
    shown = {(found.group, found.topic, found.queue_id): found for found in overview.snapshot.committed.offsets}
    behind = {}
    for fact in facts["committed"]:
        place = fact["group"], fact["topic"], fact["queue_id"]
        if fact["max_offset"] == 0 and place not in shown:
            continue  # a queue that never had a message
        assert shown[place].offset == fact["offset"]
        lag = overview.lag(shown[place]) or 0
        assert lag == fact["max_offset"] - fact["offset"]
        behind[place] = lag
    assert {place: lag for place, lag in behind.items() if lag} == {
        ("desk", "orders", queue_id): 2 for queue_id in range(4)
    }


def test_queues_end_where_the_broker_said(overview: Overview, facts: dict[str, Any]) -> None:
    """The maximum of every queue that holds something, system topics included."""
    shown = {f"{queue.topic}@{queue.queue_id}": found.max_offset for queue, found in overview.queues}
    told = facts["max_offsets"]
    # When the broker stops it looks after pending transactions once more, and stores them again.
    assert shown.pop(HALF) in (told[HALF], told[HALF] + 4)
    assert {place: max_offset for place, max_offset in shown.items() if max_offset} == {
        place: max_offset for place, max_offset in told.items() if place != HALF
    }


def test_what_became_of_the_messages(name: str, facts: dict[str, Any]) -> None:
    """The store has each sort that it is there for."""
    fates = {fate: len(set(keys)) for fate, keys in facts["keys"].items()}
    expected = {"sent": 98, "delivered": 4, "waiting": 5, "commit": 4, "rollback": 4, "pending": 4}
    if name in BATCHED:
        expected |= {"timed_delivered": 1, "timed_waiting": 2, "batched": 20}
    assert {fate: fates[fate] for fate in expected} == expected
    assert facts["max_offsets"]["%DLQ%billing@0"] == 3
    assert facts["max_offsets"]["%RETRY%billing@0"] == 6
    assert ("%LMQ%alice@0" in facts["max_offsets"]) == (name not in ("4.4.0-shop", "4.7.1-shop"))


def test_every_version_has_one() -> None:
    """Seven releases wrote such a store."""
    assert len(NAMES) == 7
