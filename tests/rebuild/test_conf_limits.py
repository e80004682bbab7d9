"""Settings of the broker that take something away from a rebuild, and what is told of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.rebuild.apply import apply_plan, write_output
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.store.store import open_store
from rmqtool.transaction.transaction import Transaction
from tests.building import LogBuilder
from tests.golden import stores
from tests.unchanged import unchanged


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fields = ({"queue_offset": number, "properties": {"KEYS": f"k{number}"}} for number in range(9))
    LogBuilder().add_all(fields).write(tmp_path / "store")
    return tmp_path / "store"


def plan(root: Path, conf: dict[str, str], version: Version | None = None) -> RebuildPlan:
    options = RebuildOptions(frozenset(["queues", "index"]), version=version)
    with unchanged(root):
        return make_plan(open_source(open_store(root, BrokerConf(conf)), options))


def codes(found: RebuildPlan) -> set[str]:
    return {finding.code for finding in found.findings}


@pytest.mark.parametrize("setting", ["messageIndexEnable", "indexFileWriteEnable"])
def test_no_index_for_a_broker_that_keeps_none(store: Path, tmp_path: Path, setting: str) -> None:
    found = plan(store, {setting: "false"})
    assert not found.index
    assert found.changed_queues
    assert "rebuild.index-disabled" in codes(found)

    source = open_source(open_store(store, BrokerConf({setting: "false"})), RebuildOptions(frozenset(["index"])))
    write_output(source, tmp_path / "output")
    assert list((tmp_path / "output").iterdir()) == []


def test_a_release_that_does_not_know_the_setting(store: Path) -> None:
    assert plan(store, {"indexFileWriteEnable": "false"}, Version(5, 3, 3)).index
    assert "rebuild.index-disabled" not in codes(plan(store, {"messageIndexEnable": "true"}))


def test_newest_messages_without_tags_tell_no_version(tmp_path: Path) -> None:
    """An index that was made by the newest rules is not taken for an older one's: there is nothing to do twice."""
    keys = " ".join(f"k{number}" for number in range(40))
    root = (
        LogBuilder()
        .add_all([{"properties": {"TAGS": "a", "KEYS": "b"}}, {"properties": {"KEYS": keys}}])
        .write(tmp_path)
    )
    for is_empty in (False, True):
        options = RebuildOptions(frozenset(["index"]))
        store = open_store(root, BrokerConf({}, "broker.conf"))  # which sets nothing
        with Transaction(store, "rebuild-index") as transaction:
            found = make_plan(open_source(store, options))
            assert found.is_empty == is_empty
            if not is_empty:
                apply_plan(found, transaction)


@pytest.mark.slow
def test_ext_units_are_told_and_kept(tmp_path: Path) -> None:
    """An address is as good as the tags code, but only while the ext units are there."""
    root = stores.unpack("more/5.5.0-extras", tmp_path)
    found = plan(root, {})
    assert "rebuild.ext-units" in codes(found)
    assert not found.changed_queues

    shutil.rmtree(root / "consumequeue_ext")
    found = plan(root, {})
    assert [queue.action for queue in found.changed_queues]
    assert "rebuild.ext-units" not in codes(found)
    assert "rebuild.ext-units" in codes(plan(root, {"enableConsumeQueueExt": "true"}))


@pytest.mark.slow
def test_a_file_that_holds_no_whole_units_tells_no_size(tmp_path: Path) -> None:
    """One that was made longer is put right by the size of the others, also when it is larger."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = min((root / "batchconsumequeue").glob("*/*/*"))
    before = path.read_bytes()
    path.write_bytes(before + bytes(600))
    with Transaction(open_store(root), "rebuild-cq") as transaction:
        options = RebuildOptions(frozenset(["queues"]))
        apply_plan(make_plan(open_source(open_store(root), options)), transaction)
    assert path.read_bytes() == before


@pytest.mark.rare
@pytest.mark.slow
def test_thousands_of_damaged_extents_are_neutralised(tmp_path: Path) -> None:
    """More than are listed one by one."""
    log = LogBuilder(file_size=1 << 20).add_all({"queue_offset": number} for number in range(2300))
    root = log.write(tmp_path / "store")
    with next((root / "commitlog").iterdir()).open("r+b") as file:
        for offset in log.offsets[1:2299:2]:
            file.seek(offset + 4)
            file.write(b"\xff")
    options = RebuildOptions(frozenset(["queues"]), neutralise=True)
    found = make_plan(open_source(open_store(root), options))

    assert found.lost.count == len(found.patches) == 1149
    assert len(found.lost.listed) == 1000
