"""The place of a moment in the log: found by halving, the same as by looking at every record."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.query import lookup as searching
from rmqtool.query.by_place import Notes
from rmqtool.query.lookup import Lookup, by_scan, by_time, offset_before
from rmqtool.scan.filters import Filters
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.query.making import StoreMaker


@pytest.mark.parametrize("near", [1, 300, 1 << 20])
@pytest.mark.parametrize("name", ["5.3.3-clean", "4.4.0-trimmed", "4.9.7-killed"])
def test_the_first_message_from_a_moment_on(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch, name: str, near: int
) -> None:
    """However near halving goes: before the first record, after the last, on and between store times."""
    monkeypatch.setattr(searching, "_NEAR", near)
    snapshot = Snapshot(open_store(golden_store(name)))
    records = stores.oracle(name)["records"]
    times = sorted({record["store_timestamp"] for record in records})
    for timestamp in (0, times[0] - 1, *times[:: len(times) // 12], times[-1], times[-1] + 1):
        first = next((r["physical_offset"] for r in records if r["store_timestamp"] >= timestamp), None)
        assert offset_before(snapshot, timestamp) <= (first if first is not None else snapshot.log_range.max_offset)
        found = list(by_time(snapshot, Lookup("time", timestamp, limit=1), "none", Notes()))
        assert [message["physical_offset"] for message in found] == ([] if first is None else [first])


def test_little_is_left_to_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is scanned begins near the moment, not at the beginning of the log."""
    monkeypatch.setattr(searching, "_NEAR", 400)
    made = StoreMaker(log_file=8192)
    for _ in range(300):
        made.add()
    snapshot = made.snapshot(tmp_path)
    for number in range(0, 300, 17):
        place = offset_before(snapshot, START_TIME + 1000 * number)
        assert made.offsets[number] - 700 <= place <= made.offsets[number]


def test_moments_and_filters(tmp_path: Path) -> None:
    """A moment with filters is a scan from there."""
    made = StoreMaker()
    for number in range(20):
        made.add("orders" if number % 2 else "payments")
    snapshot = made.snapshot(tmp_path)
    query = Lookup("time", START_TIME + 4000, filters=Filters(topics=("orders",)), limit=3)
    found = [message["physical_offset"] for message in by_time(snapshot, query, "none", Notes())]
    assert found == [made.offsets[5], made.offsets[7], made.offsets[9]]
    default = list(by_time(snapshot, Lookup("time", START_TIME), "none", Notes()))
    assert len(default) == searching.DEFAULT_LIMIT


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    snapshot = Snapshot(open_store(tmp_path))
    assert list(by_time(snapshot, Lookup("time"), "none", Notes())) == []
    assert list(by_scan(snapshot, Lookup("scan"), "none", Notes())) == []
