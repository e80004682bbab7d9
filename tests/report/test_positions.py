"""Where groups stand in time, and what they are about to lose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqtool.base.times import parse_time
from rmqtool.clean.losses import losses_of
from rmqtool.inspect.overview import overview_of
from rmqtool.report import facts
from rmqtool.report.facts import GroupPosition, positions_of
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.clean.planning import planned
from tests.report.growing_store import HOUR, growing_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return growing_store(tmp_path / "store", files=8)


def positions_at(store: Path, now: int) -> dict[tuple[str, str], GroupPosition]:
    """Each group in each topic, with what it loses at `now`, epoch ms."""
    opened = open_store(store)
    overview = overview_of(opened, None)
    ranges = (((queue.topic, queue.queue_id), offsets) for queue, offsets in overview.queues)
    losses = losses_of(planned(store, now=now, all_runs=True))
    found = positions_of(overview.snapshot, ranges, losses.groups, overview.views)
    return {(each.group, each.topic): each for each in found}


@pytest.mark.slow
def test_who_reads_slowly_stands_far_back(store: Path) -> None:
    """The oldest message that is not read has the time of the half, of the twentieth part, of the end."""
    found = positions_at(store, START_TIME)
    times = [found[group, "orders"].next_timestamp or 0 for group in ("reporting", "shipping", "billing")]
    assert times == sorted(times)
    assert START_TIME < times[0] < START_TIME + 6 * HOUR < times[1] < START_TIME + 20 * HOUR < times[2]
    assert [found[group, "orders"].queues for group in ("reporting", "shipping")] == [2, 2]
    assert next(iter(found)) == ("reporting", "orders")


@pytest.mark.slow
def test_who_has_read_all_stands_nowhere(store: Path) -> None:
    """And a queue that is gone has no lag that could be told."""
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"orders@done": {"0": 10**6}, "payments@lost": {"0": 5, "1": 5}}}))
    shutil.rmtree(store / "consumequeue" / "payments" / "0")
    found = positions_at(store, START_TIME)
    done, lost = found["done", "orders"], found["lost", "payments"]
    assert (done.lag, done.next_timestamp, done.gone) == (0, None, 0)
    assert (lost.gone, lost.queues) == (1, 2)
    assert lost.lag > 0


@pytest.mark.slow
def test_messages_past_a_hole_are_no_lag(store: Path) -> None:
    """As `query --group` and `inspect` say: they are out of reach."""
    before = positions_at(store, START_TIME)["reporting", "orders"]
    file = max((store / "consumequeue/orders/0").iterdir())
    with file.open("r+b") as queue:
        queue.write(bytes(20))
    found = positions_at(store, START_TIME)["reporting", "orders"]
    assert found.unreachable > 0
    assert found.lag + found.unreachable == before.lag


@pytest.mark.slow
def test_what_the_cleaner_takes(store: Path) -> None:
    """At 4 o'clock, three days after most of it was stored, of those who have not read it."""
    found = positions_at(store, parse_time("2023-11-19T04:00:00Z"))
    assert found["reporting", "orders"].lost > found["shipping", "orders"].lost >= found["billing", "orders"].lost >= 0
    assert found["reporting", "orders"].lost > 0


@pytest.mark.slow
def test_the_largest_lags_are_looked_up_first(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and time are bounded, however many queues there are."""
    monkeypatch.setattr(facts, "MAX_LOOKUPS", 1)
    known = [key for key, each in positions_at(store, START_TIME).items() if each.next_timestamp is not None]
    assert known == [("reporting", "orders")]
