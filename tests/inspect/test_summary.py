"""What an overview adds up to, on stores built for it and on golden ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.inspect.overview import (
    DelayLevel,
    GroupFailures,
    Overview,
    bytes_per_hour,
    group_failures,
    index_coverage,
    out_of_range,
    overview_of,
    waiting,
)
from rmqtool.store.store import open_store
from tests.building import START_TIME, LogBuilder
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unchanged import unchanged


def queue(store: Path, topic: str, queue_id: int, units: int) -> None:
    """A consume queue of units that all point at the first message."""
    folder = store / "consumequeue" / topic / str(queue_id)
    folder.mkdir(parents=True)
    (folder / file_name(0)).write_bytes(b"".join(build_unit(100 * n, 100, 0) for n in range(units)) + bytes(200))


def look_at(store: Path) -> Overview:
    with unchanged(store):
        return overview_of(open_store(store))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    times = (START_TIME, START_TIME + 1_800_000)
    LogBuilder().add_all([{"store_timestamp": time} for time in times]).write(tmp_path)
    for topic, queue_id, units in (
        ("%RETRY%g", 0, 3), ("%RETRY%g", 1, 2), ("%DLQ%g", 0, 1), ("%DLQ%other", 0, 4), ("orders", 0, 7),
        ("SCHEDULE_TOPIC_XXXX", 2, 5), ("SCHEDULE_TOPIC_XXXX", 4, 6), ("rmq_sys_wheel_timer", 0, 8),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 3), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 2),
    ):  # fmt: skip
        queue(tmp_path, topic, queue_id, units)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{3:4,"5":99}}')
    offsets = {"orders@in": {"0": 7}, "orders@beyond": {"0": 8}, "gone@g": {"0": 1}}
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return tmp_path


def test_retries_and_dead_letters_stand_under_their_group(store: Path) -> None:
    """Of all queues of a topic together; a group may have one of them only."""
    assert group_failures(look_at(store)) == [GroupFailures("g", 5, 1), GroupFailures("other", 0, 4)]


def test_what_waits(store: Path) -> None:
    """Delayed messages from the offset on that the file tells; an offset beyond the end leaves none."""
    found = waiting(look_at(store))
    assert list(found.delayed) == [DelayLevel(3, 1), DelayLevel(5, 0)]
    assert (found.timer_messages, found.half_messages, found.op_messages) == (8, 3, 2)
    (store / "config" / "delayOffset.json").unlink()
    assert list(waiting(look_at(store)).delayed) == [DelayLevel(3, 5), DelayLevel(5, 6)]


def test_offsets_out_of_range(store: Path) -> None:
    """At the end is within; without the queue nothing can be said."""
    overview = look_at(store)
    found = {(item.topic, item.group): out_of_range(overview, item) for item in overview.snapshot.committed.offsets}
    assert found == {("orders", "in"): None, ("orders", "beyond"): "beyond", ("gone", "g"): None}


def test_growth(store: Path) -> None:
    """Bytes over the time from the first to the last message; a second tells nothing about an hour."""
    overview = look_at(store)
    assert overview.log_range is not None
    assert bytes_per_hour(overview) == 2 * overview.log_range.max_offset
    LogBuilder().add_all([{}, {}]).write(store)
    assert bytes_per_hour(look_at(store)) is None
    LogBuilder().write(store)
    assert bytes_per_hour(look_at(store)) is None


def test_a_trimmed_store(golden_store: GoldenStore) -> None:
    """A group after the cleaner is below the minimum; the index covers what its headers tell."""
    overview = overview_of(open_store(golden_store("5.3.3-trimmed")))
    below = {item.group for item in overview.snapshot.committed.offsets if out_of_range(overview, item) == "below"}
    assert "behind" in below
    assert "beyond" not in below
    files = [file for file in stores.oracle("5.3.3-trimmed")["index"]["files"] if file["index_count"] > 1]
    assert index_coverage(overview) == (files[0]["begin_timestamp"], files[-1]["end_timestamp"])
    assert index_coverage(overview_of(open_store(golden_store("5.3.3-empty")))) is None
