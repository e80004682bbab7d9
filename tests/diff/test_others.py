"""Epochs, queues and config files of two stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.diff.comparison import consistent_point
from rmqtool.store.dledger_node import Epoch, Epochs, load_epochs
from rmqtool.store.store import open_store
from tests.diff.pairs import change, compared, log_of, pair, write_epochs
from tests.verify.small_store import small_store


def epochs(*entries: tuple[int, int]) -> Epochs:
    return Epochs(tuple(Epoch(*entry) for entry in entries))


@pytest.mark.parametrize(
    ("slave", "slave_end", "master", "master_end", "point"),
    [
        (epochs((1, 0)), 500, epochs((1, 0)), 900, 500),
        (epochs((1, 0)), 900, epochs((1, 0)), 500, 500),
        (epochs((1, 0), (2, 300)), 500, epochs((1, 0), (3, 350)), 900, 300),
        (epochs((1, 0), (2, 300)), 900, epochs((1, 0), (2, 300), (3, 700)), 800, 700),
        (epochs((1, 0)), 900, epochs((1, 0), (2, 400)), 800, 400),
        (epochs((2, 100)), 900, epochs((1, 0), (2, 200)), 800, None),
        (epochs((1, 0)), 900, epochs(), 800, None),
    ],
)
def test_consistent_points(slave: Epochs, slave_end: int, master: Epochs, master_end: int, point: int | None) -> None:
    """As `EpochFileCache#findConsistentPoint` finds them."""
    assert consistent_point(slave, slave_end, master, master_end) == point


def test_what_a_slave_would_cut(tmp_path: Path) -> None:
    """The messages after the consistent point, by topic."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of(parted_at=20))
    write_epochs(a, [(1, 0), (3, log.offsets[20])])
    write_epochs(b, [(1, 0), (2, log.offsets[20])])
    found = compared(a, b)
    assert found.epochs is not None
    assert found.epochs.b_follows.point == found.common_end == log.offsets[20]
    assert found.epochs.b_follows.cut is not None
    assert dict(found.epochs.b_follows.cut.topics) == {"orders": 5, "payments": 5}


def test_stale_and_missing_epochs(tmp_path: Path) -> None:
    """An entry after the log's end, and a newer epoch in topics.json."""
    a, b = pair(tmp_path, log_of(), log_of())
    write_epochs(a, [(1, 0), (2, 1 << 20)])
    write_epochs(b, [(1, 0)])
    topics = b / "config" / "topics.json"
    topics.write_text(json.dumps({**json.loads(topics.read_text()), "dataVersion": {"stateVersion": 4}}))
    found = compared(a, b)
    assert found.epochs is not None
    assert (found.epochs.a.stale, found.epochs.b.missing) == ((Epoch(2, 1 << 20),), 4)
    assert found.verdict == "differs"


def test_without_epochs_nothing_is_cut(tmp_path: Path) -> None:
    a, b = pair(tmp_path, log_of(), log_of())
    write_epochs(a, [(1, 0)])
    found = compared(a, b).epochs
    assert found is not None
    assert found.b_follows.has_no_epochs
    assert found.a_follows.point is None


@pytest.mark.parametrize("text", ["", "1\n0\n", "1\n0\nx-y\n", "2\n0\n1-0\n", "1\n7\n1-0\n", "\0\0"])
def test_a_broken_file_of_epochs(tmp_path: Path, text: str) -> None:
    """The backup is taken; without one there are no epochs, and why."""
    store = small_store(tmp_path / "store", log_of(1))
    write_epochs(store, [(1, 0)])
    good = (store / "epochFileCheckpoint").read_text()
    (store / "epochFileCheckpoint").write_text(text)
    assert load_epochs(open_store(store)).entries == ()
    (store / "epochFileCheckpoint.bak").write_text(good)
    found = load_epochs(open_store(store))
    assert found.entries == (Epoch(1, 0),)
    assert found.problem


def test_a_damaged_queue(tmp_path: Path) -> None:
    """The unit is named, and that the logs do not explain it."""
    a, b = pair(tmp_path, log_of(), log_of())
    change(b / "consumequeue" / "orders" / "0" / f"{0:020d}", 3 * 20 + 19)
    found = compared(a, b)
    (queue,) = found.own_queue_differences
    assert (found.verdict, queue.topic, queue.queue_id, queue.first_unit) == ("differs", "orders", 0, 3)


@pytest.mark.parametrize("how", ["missing", "cut"])
def test_a_lost_queue(tmp_path: Path, how: str) -> None:
    """A queue without the units that the log would give it."""
    a, b = pair(tmp_path, log_of(), log_of())
    queue = b / "consumequeue" / "orders" / "1"
    files = sorted(queue.iterdir())
    if how == "missing":
        for path in files:
            path.unlink()
        queue.rmdir()
    else:
        data = files[0].read_bytes()
        files[0].write_bytes(data[: 4 * 20] + bytes(len(data) - 4 * 20))
    (found,) = compared(a, b).own_queue_differences
    assert (found.topic, found.queue_id) == ("orders", 1)
    assert (found.b is None) == (how == "missing")


def test_config(tmp_path: Path) -> None:
    """Topics, groups, committed offsets and delay offsets by entry."""
    a, b = pair(tmp_path, log_of(), log_of())
    for store, offset in ((a, 7), (b, 5)):
        write(store, "consumerOffset.json", {"offsetTable": {"orders@billing": {"0": offset}}})
        write(store, "delayOffset.json", {"offsetTable": {"3": offset}})
        write(store, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": {"retryMaxTimes": offset}}})
    write(b, "topics.json", {"topicConfigTable": {}})
    found = compared(a, b)
    entries = {(one.file, one.entry): (one.a, one.b) for one in found.configs}
    assert entries[("consumerOffset.json", "orders@billing/0")] == (7, 5)
    assert entries[("delayOffset.json", "3")] == (7, 5)
    assert entries[("subscriptionGroup.json", "g.retryMaxTimes")] == (7, 5)
    assert entries[("topics.json", "orders")] == ("present", None)
    assert ("topics.json", "orders.readQueueNums") not in entries
    assert found.verdict == "differs"


def test_a_config_file_that_is_broken(tmp_path: Path) -> None:
    """It is one difference with its problem; a cut timercheck too."""
    a, b = pair(tmp_path, log_of(), log_of())
    (b / "config" / "topics.json").write_text('{"x')
    (a / "config" / "timercheck").write_bytes(bytes(4096))
    (b / "config" / "timercheck").write_bytes(bytes(9))
    found = {(one.file, one.entry): one.b for one in compared(a, b).configs}
    assert "not JSON" in str(found[("topics.json", "the file")])
    assert found[("timercheck", "last_timer_queue_offset")] == "the file is cut"


def write(store: Path, name: str, content: object) -> None:
    (store / "config" / name).write_text(json.dumps(content))
