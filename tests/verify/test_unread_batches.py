"""Batches whose queue is read from RocksDB: those that consumers get, and those that they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.findings.finding import Finding
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.verify import queue_leftovers
from tests.changed_rocksdb import changed, end_value, max_key, min_key, unit_key
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden.rocksdb import UNREAD
from tests.verify.verifying import codes_of, verify

[CODE] = UNREAD
BULK = ("bulk", 0)
OFFSETS = (0, 4, 8, 12, 16)
"""The first queue offsets of the batches, of four messages each, in the golden stores."""
IN_ROCKSDB = BrokerConf({"storeType": "defaultRocksDB"})
Families = dict[str, Any]


@pytest.fixture
def store(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store with its queues in RocksDB."""
    return copied(unpacked("more/5.4.0-rocksdb"), tmp_path / "store")


def unread(store: Path, conf: BrokerConf | None = None) -> list[Finding]:
    return [finding for finding in verify(store, conf=conf).findings if finding.code == CODE]


def moved(store: Path, offsets: tuple[int, ...], min_offset: int | None = None) -> None:
    """Have the batches begin at other queue offsets, and the queue at the minimum that a broker has found."""
    with changed(store / "consumequeue") as families:
        rows = [families["default"][unit_key(*BULK, at)] for at in OFFSETS]
        for at in OFFSETS:
            families["default"].delete(unit_key(*BULK, at))
        for at, row in zip(offsets, rows, strict=True):
            families["default"][unit_key(*BULK, at)] = row
        families["offset"][max_key(*BULK)] = rows[-1][:8] + offsets[-1].to_bytes(8, "big")
        if min_offset is not None:
            families["offset"][min_key(*BULK)] = end_value(0, min_offset)


@pytest.mark.slow
def test_the_minimum_is_behind_batches(store: Path) -> None:
    """It is searched as if each queue offset had a row."""
    [found] = unread(store)
    assert (found.topic, found.queue_id, found.queue_offset, found.count) == (*BULK, 0, 4)
    assert found.message == "consumers get 1 of 5 batches: they begin at 8, and there is no row at 9"


@pytest.mark.slow
def test_a_minimum_that_was_found_when_there_was_one_batch(store: Path) -> None:
    moved(store, OFFSETS, min_offset=0)
    [found] = unread(store)
    assert (found.queue_offset, found.count) == (1, 4)
    assert found.message == "consumers get 1 of 5 batches: they begin at 0, and there is no row at 1"


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("chunk", [1, 2, 100])
@pytest.mark.parametrize(
    ("offsets", "min_offset", "message"),
    [
        ((0, 1, 2, 3, 4), None, None),
        ((0, 1, 2, 3, 4), 2, "consumers get 3 of 5 batches: they begin at 2"),
        ((0, 1, 2, 6, 7), 0, "consumers get 3 of 5 batches: they begin at 0, and there is no row at 3"),
        ((0, 1, 4, 5, 6), 1, "consumers get 1 of 5 batches: they begin at 1, and there is no row at 2"),
    ],
)
def test_batches_of_one_message_are_read(
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    offsets: tuple[int, ...],
    min_offset: int | None,
    message: str | None,
) -> None:
    """Until one that has more, whatever number of rows is read at once."""
    moved(store, offsets, min_offset)
    monkeypatch.setattr(queue_leftovers, "_CHUNK", chunk)
    assert [found.message for found in unread(store)] == ([message] if message else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["more/5.3.3-rocksdb-twice", "more/5.1.4-rocksdb"])
def test_queues_in_files_have_each_batch(golden_store: GoldenStore, name: str) -> None:
    """Those that are written twice, too, unless broker.conf has them read from RocksDB."""
    store = golden_store(name)
    assert codes_of(verify(store), info=True).isdisjoint(UNREAD)
    assert bool(unread(store, IN_ROCKSDB)) == name.endswith("-twice")


def test_what_to_do(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The store is sound; what is named to do is no repair of it."""
    conf = tmp_path / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\n")
    done = rmqtool("verify", golden_store("more/5.3.3-rocksdb-twice"), "--broker-conf", conf)
    assert done.status == Exit.FINDINGS
    assert "Keep storeType=default if the queues are also in files." in " ".join(done.out.split())
