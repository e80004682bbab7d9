"""Keys through the index in RocksDB: as through the index files, which are not needed."""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import rocksdict

from rmqtool.base.errors import Exit
from rmqtool.formats.rocksdb_rows import INDEX_HOUR, INDEXED_TO, index_prefix
from rmqtool.query import lookup as searched
from rmqtool.query.by_place import Notes
from rmqtool.query.lookup import KeyQuery, why_not_found
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.index_files import FOREVER
from rmqtool.store.side_rows import RocksDbIndex
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import SIDE_STORE, open_store
from tests.commands.running import listing, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import unchanged

SIDE = "more/5.5.0-rocksdb-side"
DATABASE_ALONE = BrokerConf({"indexRocksDBEnable": "true"})


@pytest.fixture
def root(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store whose index is in RocksDB alone."""
    root = tmp_path / "store"
    copied(unpacked(SIDE), root)
    shutil.rmtree(root / "index")
    return root


def found(root: Path, query: KeyQuery, notes: Notes | None = None) -> list[int]:
    """The physical offsets of the messages of a query."""
    messages = searched.by_key(Snapshot(open_store(root, DATABASE_ALONE)), query, "none", notes or Notes())
    return [message["physical_offset"] for message in messages]


def _keys(root: Path) -> Iterator[tuple[str, str, int]]:
    """Topic, key or unique key, and physical offset of each message with a unique key."""
    for message in listing(root, "--json", part="commitlog").of_kind("message"):
        for key in dict.fromkeys([message["unique_key"], *message["keys"]]) if message["unique_key"] else ():
            yield message["topic"], key, message["physical_offset"]


@pytest.mark.slow
def test_every_key_is_found(root: Path) -> None:
    """In its topic and in all topics, each message once, and nothing is changed."""
    offsets, everywhere = defaultdict(list), defaultdict(list)
    for topic, key, offset in _keys(root):
        offsets[topic, key].append(offset)
        everywhere[key].append(offset)
    assert len(offsets) > 50
    some = dict(list(offsets.items())[::4])
    with unchanged(root):
        for (topic, key), expected in some.items():
            assert found(root, KeyQuery(key, [topic])) == sorted(expected)
        for key in [key for _, key in some][:5]:
            assert found(root, KeyQuery(key)) == sorted(everywhere[key])


@pytest.mark.slow
def test_times_limits_and_kinds_of_keys(root: Path) -> None:
    topic, key, offset = next(_keys(root))
    snapshot = Snapshot(open_store(root))
    message = next(iter(searched.by_key(snapshot, KeyQuery(key), "none", Notes())))
    stored = message["store_timestamp"]
    assert found(root, KeyQuery(key, [topic], begin=stored, end=stored)) == [offset]
    assert found(root, KeyQuery(key, [topic], begin=stored + 1)) == []
    assert found(root, KeyQuery(key, [topic], end=stored - 1)) == []
    assert found(root, KeyQuery(key, [topic], limit=0)) == []
    assert found(root, KeyQuery(key, ["other"])) == []
    for word in message["keys"]:
        assert found(root, KeyQuery(word, [topic], unique=True)) == []
    assert found(root, KeyQuery(message["unique_key"], [topic], unique=True)) == [offset]
    assert found(root, KeyQuery(key[:-1], [topic])) == []


def test_both_indexes_give_each_message_once(golden_store: GoldenStore) -> None:
    store = golden_store(SIDE)
    topic, key, offset = next(_keys(store))
    assert found(store, KeyQuery(key, [topic], hash_matches=True)) == [offset]


@pytest.mark.slow
def test_what_is_not_found_says_how_far_the_index_reaches(root: Path) -> None:
    last = max(offset for *_, offset in _keys(root))
    assert f"the index in RocksDB reaches to offset {last}" in why_not_found(Snapshot(open_store(root)), ["nothing"])


@pytest.mark.slow
def test_a_database_that_cannot_be_read(root: Path) -> None:
    """Said where keys are in RocksDB, with the way around."""
    topic, key, _ = next(_keys(root))
    (root / SIDE_STORE / "CURRENT").write_bytes(b"garbage\n")
    notes = Notes()
    assert found(root, KeyQuery(key, [topic]), notes) == []
    assert notes.lossy
    assert any(line.startswith("rocksdbstore: ") and "--scan" in line for line in notes.lines)


@pytest.mark.parametrize("gone", [("CURRENT",), ("CURRENT", "IDENTITY"), ("MANIFEST-000005",)])
def test_a_database_without_its_names(root: Path, gone: tuple[str, ...]) -> None:
    """A lost file is no empty index: nothing is said of the key, but the way to it."""
    unique_key = next(_keys(root))[1]
    for name in gone:
        (root / SIDE_STORE / name).unlink()
    done = rmqtool("query", root, "--unique-key", unique_key)
    assert done.status == Exit.FINDINGS
    assert "rocksdbstore: RocksDB cannot read it" in done.err
    assert f"whether a message has the key {unique_key} is not known: --scan looks at every message" in done.err
    assert "no message has the key" not in done.err
    assert rmqtool("query", root, "--unique-key", unique_key, "--scan").status == Exit.OK


def test_without_the_library(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index files are enough where there are any."""
    topic, key, _ = next(_keys(root))
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    notes = Notes()
    assert found(root, KeyQuery(key, [topic]), notes) == []
    assert "rocksdict" in notes.lines[0]


def test_index_files_are_enough(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store(SIDE)
    topic, key, offset = next(_keys(store))
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    notes = Notes()
    messages = searched.by_key(Snapshot(open_store(store)), KeyQuery(key, [topic]), "none", notes)
    assert [message["physical_offset"] for message in messages] == [offset]
    assert not notes.lossy


def test_all_hours_are_searched(tmp_path: Path) -> None:
    """Those with entries, in a window of times; how far the index has come is no entry."""
    (tmp_path / "commitlog").mkdir()
    database = rocksdict.Rdict(str(tmp_path / SIDE_STORE), rocksdict.Options(raw_mode=True))
    hour = 1_700_000_000_000 // INDEX_HOUR * INDEX_HOUR
    for number, hours in enumerate((0, 2, 3, 50)):
        at = hour + hours * INDEX_HOUR
        database[index_prefix(at, "orders", "K", "a") + b"UNIQUE@" + number.to_bytes(8, "big")] = at.to_bytes(8, "big")
    database[INDEXED_TO] = (3).to_bytes(8, "big")
    database.close()
    index = RocksDbIndex(open_store(tmp_path))
    assert list(index.offsets(["orders"], ["K", "U"], "a", 0, FOREVER)) == [0, 1, 2, 3]
    assert list(index.offsets(["orders"], ["K"], "a", hour + 1, hour + 3 * INDEX_HOUR)) == [1, 2]
    assert list(index.offsets(["orders"], ["U"], "a", 0, FOREVER)) == []
    assert index.last_offset() == 3
    assert index.problem is None
