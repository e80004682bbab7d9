"""Plans of golden stores and of small logs: runs, what stays, and who loses what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.clean.losses import losses_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import OLDEST, parse_version
from tests.clean.planning import FOUR, HOUR, aged_log, planned, set_mtime
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores

CLEAN = [name for name in stores.names() if name.endswith("-clean")]
LATE = FOUR + 14 * 24 * HOUR  # no file of theirs is young


def test_one_run_and_all_runs(golden_store: GoldenStore) -> None:
    """A run deletes no more than a batch, and the runs that follow the rest but the last file."""
    store = golden_store("5.3.3-clean")
    one = planned(store, deleteFileBatchMax="4")
    assert len(one.runs) == 1
    assert [decision.reason for decision in one.kept] == ["next-run"] * 5 + ["last-file"]
    stable = planned(store, deleteFileBatchMax="4", all_runs=True)
    assert [len(run.log.deleted) for run in stable.runs] == [4, 4, 1]
    assert [run.time - FOUR for run in stable.runs] == [0, 10_000, 20_000]
    assert [decision.reason for decision in stable.kept] == ["last-file"]
    assert stable.min_offset == 9 * 65536


def test_the_runs_end_with_the_hour(golden_store: GoldenStore) -> None:
    late = planned(golden_store("5.3.3-clean"), now=FOUR + HOUR - 15_000, deleteFileBatchMax="1", all_runs=True)
    assert len(late.runs) == 2
    assert {decision.reason for decision in late.kept} == {"no-trigger", "last-file"}


def test_the_runs_end_when_the_disk_is_below_its_level(tmp_path: Path) -> None:
    """What the files that go take of the disk is taken off the used part."""
    root = aged_log(tmp_path, 9, 8, 7, 6, 5)
    found = planned(root, percent=85 + 1e-9, all_runs=True, deleteFileBatchMax="1", deleteWhen="5")
    assert [decision.reason for run in found.runs for decision in run.log.deleted] == ["forced"]
    assert found.last.trigger.space
    assert not found.last.trigger.forced


@pytest.mark.parametrize("name", CLEAN)
def test_losses_of_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """What groups and topics lose adds up to what the broker's own offsets say."""
    store = golden_store(name)
    version = parse_version(name.partition("-")[0])
    found = planned(store, now=LATE, version=version, all_runs=True)
    losses = losses_of(found)
    minimum = found.min_offset
    oracle = stores.oracle(name)
    for queue in oracle["queues"]:
        if queue["kind"] != "simple":
            continue
        state = next(
            s for s in found.states if (s.queue.topic, s.queue.queue_id) == (queue["topic"], queue["queue_id"])
        )
        alive = [number for number, unit in enumerate(queue["units"], queue["first_unit"]) if unit[0] >= minimum]
        assert state.first_alive == (alive[0] if alive else queue["max_offset"])
    deleted = sum(topic.messages_deleted for topic in losses.topics)
    assert deleted == losses.messages_deleted > 0
    behind = [item for item in losses.groups if item.group == "behind"]
    beyond = [item for item in losses.groups if item.group == "beyond"]
    assert all(item.messages_lost > 0 for item in behind)
    assert all(item.messages_lost == 0 for item in beyond)
    assert losses.oldest_timestamp == next(
        record["store_timestamp"] for record in oracle["records"] if record["physical_offset"] >= minimum
    )


@pytest.mark.parametrize("name", CLEAN)
def test_waiting_messages_of_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """All delayed messages wait there, for nothing was delivered; of half messages those without an op message."""
    store = golden_store(name)
    found = planned(store, now=LATE, all_runs=True)
    waiting = losses_of(found).undelivered
    units = [
        unit
        for queue in stores.oracle(name)["queues"]
        if queue["topic"] == "SCHEDULE_TOPIC_XXXX"
        for unit in queue["units"]
        if unit[0] < found.min_offset
    ]
    delayed = [item for item in waiting if item.kind == "delay"]
    assert sum(item.messages_lost for item in delayed) == len(units) > 0
    assert min(item.first_due or 0 for item in delayed) == min(unit[2] for unit in units)
    assert max(item.last_due or 0 for item in delayed) == max(unit[2] for unit in units)


def test_delivered_messages_do_not_wait(unpacked: GoldenStore, tmp_path: Path) -> None:
    """delayOffset.json says what each level has delivered."""
    store = tmp_path / "store"
    copied(unpacked("5.3.3-clean"), store)
    before = {item.queue_id: item.messages_lost for item in losses_of(planned(store, all_runs=True)).undelivered}
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {"1": 1, "2": 999}}))
    after = {item.queue_id: item.messages_lost for item in losses_of(planned(store, all_runs=True)).undelivered}
    assert after == {**{queue: lost for queue, lost in before.items() if queue != 1}, 0: before[0] - 1}


def test_a_first_file_in_use(tmp_path: Path) -> None:
    found = planned(aged_log(tmp_path, 90, 80, 5), first_in_use=True)
    assert found.deleted == []
    assert found.min_offset == 1024


def test_the_oldest_rules(tmp_path: Path) -> None:
    """Before 4.9.2 a missing consumequeue/ makes the disk count as full at all hours."""
    root = aged_log(tmp_path, 90, 5)
    (root / "consumequeue" / "orders" / "0").rmdir()
    (root / "consumequeue" / "orders").rmdir()
    (root / "consumequeue").rmdir()
    assert planned(root, version=OLDEST, deleteWhen="5").deleted
    assert not planned(root, deleteWhen="5").deleted


def test_a_file_from_the_future_holds_all_others(tmp_path: Path) -> None:
    root = aged_log(tmp_path, 90, 80, 75, 5)
    set_mtime(sorted((root / "commitlog").iterdir())[1], FOUR + 500 * HOUR)
    found = planned(root)
    assert len(found.deleted) == 1
    assert [decision.reason for decision in found.kept] == ["not-expired", "shielded", "last-file"]


def test_disks_that_are_measured(tmp_path: Path) -> None:
    """Paths that are only read do not count; before 4.9.2 several paths are one name that does not exist."""
    root = aged_log(tmp_path / "store", 90, 5)
    (root / "more").mkdir()
    conf = BrokerConf({"storePathCommitLog": "commitlog,more", "readOnlyCommitLogStorePaths": "old"})
    found = planned(root, conf=conf, deleteWhen="5")
    assert [disk.path.name for disk in found.facts.disks.log] == ["commitlog", "more"]
    assert found.deleted == []
    old = planned(root, conf=conf, deleteWhen="5", version=OLDEST)
    assert [disk.missing for disk in old.facts.disks.log] == [True]
    assert len(old.deleted) == 1
