"""Topics, groups and offsets in RocksDB, held to what the brokers that wrote them had in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.config_tables import config_database, load_offsets, load_table, load_topics
from rmqtool.store.file_findings import offset_findings
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB

IN_ROCKSDB = [name for name in ROCKSDB if not name.endswith("-side")]
FIRST, SECOND = "more/5.5.0-rocksdb", "more/5.5.0-rocksdb-second-config"


@pytest.fixture
def store(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A copy of a store with databases of version 1."""
    return copied(unpacked(FIRST), tmp_path / "store")


@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_the_broker_has_the_same(name: str, golden_store: GoldenStore) -> None:
    """Committed offsets one by one; topics and groups by name, of version 2 only those that it keeps."""
    store, says = open_store(golden_store(name)), stores.oracle(name)["survey"]
    found = {f"{item.topic}@{item.group}/{item.queue_id}": item.offset for item in load_offsets(store).offsets}
    assert found == says["committed"]
    topics = set(load_topics(store).by_name)
    groups = set(load_table(store, "subscriptionGroup.json").content.get("subscriptionGroupTable", ()))
    if "second-config" in name:
        assert topics <= set(says["topics"])
        assert groups <= set(says["groups"])
    else:
        assert topics - set(says["topics"]) == set()
        assert {topic for topic in says["topics"] if topic.startswith("%")} <= topics
        assert groups == set(says["groups"])


@pytest.mark.parametrize(("name", "database"), [
    (FIRST, "consumerOffsets"), (SECOND, "rdb"), ("more/5.5.0-rocksdb-single", "metadata"),
    ("more/5.1.4-rocksdb", "consumerOffsets"), ("more/5.3.3-rocksdb-second-config", "rdb"),
])  # fmt: skip
def test_where_offsets_are(name: str, database: str, golden_store: GoldenStore) -> None:
    """Version 2 counts first, then the database for all tables, then that of the table."""
    store = open_store(golden_store(name))
    assert config_database(store, "consumerOffset.json") == store.root / "config" / database
    assert load_offsets(store).file.path == store.root / "config" / database


@pytest.mark.parametrize(
    ("settings", "database"),
    [
        ({"storeType": "defaultRocksDB"}, "consumerOffsets"),
        ({"storeType": "default"}, None),
        ({"configManagerVersion": "v2"}, "rdb"),
        ({"configManagerVersion": "v1", "storeType": "DefaultRocksDB"}, "consumerOffsets"),
        ({}, "rdb"),
    ],
)
def test_broker_conf_decides(settings: dict[str, str], database: str | None, store: Path) -> None:
    """Of what is left from before a change of it nothing counts."""
    copied(store / "config" / "topics", store / "config" / "rdb")
    opened = open_store(store, BrokerConf(settings))
    found = config_database(opened, "consumerOffset.json")
    assert found == (database and store / "config" / database)


@pytest.mark.parametrize(("counter", "counts"), [(0, False), (1 << 40, True)])
def test_a_file_that_has_counted_further_counts(counter: int, counts: bool, store: Path) -> None:
    """As when a broker goes from JSON to RocksDB; the offsets of a file that has counted less are left behind."""
    table = {"offsetTable": {"orders@desk": {0: 3}}, "dataVersion": {"counter": counter}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table))
    offsets = load_offsets(open_store(store)).offsets
    assert ([item.offset for item in offsets] == [3]) is counts


def test_version_2_takes_no_file(unpacked: GoldenStore, tmp_path: Path) -> None:
    """It never imports JSON."""
    store = copied(unpacked(SECOND), tmp_path / "store")
    table = {"offsetTable": {"orders@desk": {0: 3}}, "dataVersion": {"counter": 1 << 40}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table))
    assert len(load_offsets(open_store(store)).offsets) > 5


def test_a_database_that_cannot_be_read(store: Path) -> None:
    """Its problem is told, and nothing is taken for empty."""
    (store / "config" / "consumerOffsets" / "CURRENT").write_bytes(b"MANIFEST-000999\n")
    file = load_offsets(open_store(store)).file
    assert file.path is None
    assert "RocksDB cannot read it" in str(file.problem)
    [told] = offset_findings(open_store(store), file)
    assert (told.code, told.file) == ("config.rocksdb-damaged", "config/consumerOffsets")
    assert ".bak" not in told.effect


def test_without_the_library_the_file_counts(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before there was one."""
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    assert load_offsets(open_store(store)).offsets == ()
