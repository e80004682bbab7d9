"""What `pending` says is owed, and what a whole broker of the release then has to deliver."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import rmqtool
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.harness import Harness
from tests.unchanged import unchanged

pytestmark = pytest.mark.broker

SCHEDULE, HALF = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
RELEASES = ("4.9.7", "5.1.4", "5.3.3", "5.5.0")
POP_IN_ROCKSDB = {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
POPS: tuple[tuple[str, dict[str, str]], ...] = (
    *((version, {}) for version in ("5.1.4", "5.3.3", "5.5.0")),
    *((version, POP_IN_ROCKSDB) for version in ("5.3.3", "5.5.0")),
)
HALVES_IN_ROCKSDB = {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}
SIDE = "more/5.5.0-rocksdb-side"


def pending(store: Path, *options: str) -> dict[str, Any]:
    """What waits in a store, with all messages; the store is as before."""
    with unchanged(store):
        result: dict[str, Any] = rmqtool("pending", store, "--list", "--limit", "10000", "--json", *options).document
    assert result["exit"]["code"] == 0
    found: dict[str, Any] = result["result"]
    return found


def of_kind(found: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    """The listed messages of some kinds."""
    return [message for message in found["messages"] if message["kind"] in kinds]


def keys_of(messages: list[dict[str, Any]]) -> set[str]:
    """Their keys."""
    return {key for message in messages for key in message["keys"]}


@pytest.mark.parametrize("version", RELEASES)
def test_a_shop(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """The broker's own classes have the same delayed messages, timers and retries; clients know the half messages."""
    root = stores.unpack(f"{version}-shop", tmp_path)
    fates = stores.oracle(f"{version}-shop")["facts"]["keys"]
    found = pending(root, "--broker-version", version)
    (survey,) = harness(version).survey([(root, [])])
    assert survey["refuses"] is None
    delayed = {
        (level, physical_offset)
        for level, first in survey["delays"].items()
        for queue_offset, physical_offset, _ in survey["queues"][f"{SCHEDULE}/{int(level) - 1}"]["messages"]
        if queue_offset >= first
    }
    assert delayed
    assert {(str(each["level"]), each["physical_offset"]) for each in of_kind(found, "delay")} == delayed
    assert sorted(each["physical_offset"] for each in of_kind(found, "timer")) == survey["timers"]
    assert keys_of(of_kind(found, "half")) == set(fates["pending"])
    assert len(of_kind(found, "half")) == len(fates["pending"])
    letters = survey["queues"]["%DLQ%billing/0"]["messages"]
    assert [each["physical_offset"] for each in of_kind(found, "dead-letter")] == [letter[1] for letter in letters]
    assert survey["committed"]["%RETRY%billing@billing/0"] == survey["queues"]["%RETRY%billing/0"]["max_offset"]
    assert of_kind(found, "retry", "pop") == []


@pytest.mark.slow
@pytest.mark.rare
def test_timers_that_were_put_off(harness: Callable[[str], Harness], tmp_path: Path) -> None:
    """A timer of a long delay is stored again and again: the last copy waits, and without the timer log all of them."""
    root = tmp_path / "store"
    broker = harness("5.5.0")
    broker.write_shop(root, {"timerRollWindowSlot": "5"})  # seconds; by default two days
    last = waiting_timers(broker, root, tmp_path / "last")
    assert len(last) == len(keys_of(last)) > 0
    shutil.rmtree(root / "timerlog")
    verified = rmqtool("verify", root, "--broker-version", "5.5.0")
    assert "two days) once for each time" in verified.out
    assert f"{len(last)} messages due from" in verified.out
    assert keys_of(of_kind(pending(root, "--broker-version", "5.5.0"), "lost-timer")) == keys_of(last)
    rmqtool("repair", root, "--yes", "--broker-version", "5.5.0")
    every = waiting_timers(broker, root, tmp_path / "every")
    assert len(every) > len(keys_of(every)) >= len(last)


def waiting_timers(broker: Harness, root: Path, scratch: Path) -> list[dict[str, Any]]:
    """The timers that wait, which are those that the broker would deliver."""
    (survey,) = broker.survey([(copied(root, scratch), [])])
    timers = of_kind(pending(root, "--broker-version", "5.5.0"), "timer")
    assert sorted(each["physical_offset"] for each in timers) == survey["timers"]
    return timers


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize("version", RELEASES)
def test_what_is_due_comes(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Days later, the broker of a shop goes on: all that was owed and has a time comes to its consumers."""
    root = stores.unpack(f"{version}-shop", tmp_path)
    found = pending(root, "--broker-version", version)
    due = of_kind(found, "delay", "timer")
    assert due
    assert all(message["overdue"] for message in due)
    facts = harness(version).write_shop(root)
    came = set(facts["keys"]["consumed_by_reminding"])
    assert keys_of(due) <= came
    later = pending(root, "--broker-version", version)
    before = {message["physical_offset"] for message in due}
    assert before.isdisjoint(message["physical_offset"] for message in of_kind(later, "delay", "timer"))


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize(("version", "settings"), POPS)
def test_pop(harness: Callable[[str], Harness], version: str, settings: dict[str, str], tmp_path: Path) -> None:
    """What a POP consumer took and did not acknowledge comes again, and nothing else of what it took.

    With RocksDB the offset that is committed is that before what was taken last: a start may give it once more.
    """
    began = time.time_ns() // 1_000_000
    facts = harness(version).pop(tmp_path, settings)
    found = pending(tmp_path)
    taken = of_kind(found, "pop")
    assert keys_of(taken) == set(facts["taken"]) - set(facts["acknowledged"])
    assert {(each["to_topic"], each["group"], each["topic"], each["queue_id"]) for each in taken} == {
        ("tasks", "workers", "tasks", 0)
    }
    assert all(began < each["due_timestamp"] < began + 120_000 for each in taken)
    assert of_kind(found, "timer", "retry") == []
    again = harness(version).pop(tmp_path, settings)
    came_again = set(again["taken"]) & set(facts["taken"])
    assert came_again >= keys_of(taken) if settings else came_again == keys_of(taken)
    later = pending(tmp_path)
    assert of_kind(later, "pop") == []
    assert settings or later["owed"]["messages"] == 0


@pytest.mark.slow
@pytest.mark.rare
def test_timers_in_rocksdb(harness: Callable[[str], Harness], tmp_path: Path) -> None:
    """Days later, what RocksDB holds comes to its consumers, and what they had does not come again."""
    root = stores.unpack(SIDE, tmp_path)
    fates = stores.oracle(SIDE)["facts"]["keys"]
    due = of_kind(pending(root), "timer")
    assert keys_of(due) == set(fates["timed_waiting"])
    facts = harness("5.5.0").write_shop(root, ROCKSDB[SIDE])
    came = facts["keys"]["consumed_by_reminding"]
    assert keys_of(due) <= set(came)
    before = {message["physical_offset"] for message in due}
    assert before.isdisjoint(message["physical_offset"] for message in of_kind(pending(root), "timer"))


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_halves_in_rocksdb(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Those without an answer, of which the broker then asks the producers."""
    facts = harness(version).write_shop(tmp_path, HALVES_IN_ROCKSDB)
    halves = of_kind(pending(tmp_path), "half")
    assert keys_of(halves) == set(facts["keys"]["pending"])
    assert len(halves) == len(facts["keys"]["pending"])
    assert {each["topic"] for each in halves} == {"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"}
    again = harness(version).write_shop(tmp_path, {**HALVES_IN_ROCKSDB, "transactionCheckInterval": "3000"})
    assert {each["unique_key"] for each in halves} <= set(again["keys"]["asked"])
    assert {each["unique_key"] for each in of_kind(pending(tmp_path), "half")} >= set(again["keys"]["asked"])
