"""What the log shows of the queues is what their files hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.repair.proven_entries import seen_queues
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.golden import stores


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-shop", "5.3.3-shop"])
def test_the_log_shows_the_same_as_the_queues(name: str, tmp_path: Path) -> None:
    """Ranges and kinds, batch queues included, when all queues are gone."""
    store = stores.unpack(name, tmp_path)
    there = seen_queues(Snapshot(open_store(store)), in_log=False)
    assert seen_queues(Snapshot(open_store(store)), in_log=True) == there
    for directory in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(store / directory, ignore_errors=True)
    left = seen_queues(Snapshot(open_store(store)), in_log=True)
    light = {each: queue for each, queue in there.items() if each.topic.startswith("%LMQ%")}
    assert {**left, **light} == there
    assert any(queue.is_batch for queue in left.values()) == name.startswith("5")


@pytest.mark.slow
def test_a_queue_that_cannot_be_read_is_seen_in_the_log(tmp_path: Path) -> None:
    """A queue that is behind, and one whose files were cut, end where their messages do."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    whole = seen_queues(Snapshot(open_store(store)), in_log=False)
    for path in sorted((store / "consumequeue" / "orders").glob("*/*")):
        path.write_bytes(bytes(path.stat().st_size))
    assert seen_queues(Snapshot(open_store(store)), in_log=False) != whole
    assert seen_queues(Snapshot(open_store(store)), in_log=True) == whole
