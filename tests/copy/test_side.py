"""What a copy lacks of half messages and keys in RocksDB beside its queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.copy.side import complete_side_rows
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.side_rows import RocksDbIndex, half_rows
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.half_store import HALVES, HalfStore
from tests.unchanged import tree


def completed(root: Path, conf: BrokerConf | None = None) -> Snapshot:
    snapshot = Snapshot(open_store(root, conf), parse_version("5.5.0"))
    complete_side_rows(snapshot, snapshot.log_range.last_record_offset or 0)
    return Snapshot(open_store(root, conf), parse_version("5.5.0"))


@pytest.mark.parametrize("known", [None, 0, 2, 4])
def test_half_messages(tmp_path: Path, known: int | None) -> None:
    """Those that wait have rows, those that are ended have none, whatever RocksDB had; once more nothing changes."""
    builder = HalfStore()
    root = builder.with_rows(tmp_path / "store", known)
    snapshot = completed(root)
    rows = half_rows(snapshot.store)
    assert rows
    assert rows.physical_offsets.tolist() == [builder.halves[number] for number in (0, 2, 3, 5)]
    asked = 3 if known is not None else 0
    assert rows.check_times[0] == asked  # as often as before
    assert rows.indexed_to == snapshot.log_range.last_record_offset
    before = tree(root)
    completed(root)
    assert tree(root) == before


def test_an_index_that_is_not_written_yet(tmp_path: Path) -> None:
    """A start makes it from the beginning on, if broker.conf has one."""
    root = HalfStore().with_rows(tmp_path / "store", None)
    assert RocksDbIndex(completed(root).store).last_offset() is None
    conf = BrokerConf(settings={"indexRocksDBEnable": "true"})
    assert RocksDbIndex(completed(root, conf).store).last_offset() == 1


def test_of_a_copy(tmp_path: Path) -> None:
    """A copy is complete, and its manifest has what it is in the end."""
    builder = HalfStore()
    root, copy = builder.with_rows(tmp_path / "store", None), tmp_path / "copy"
    assert rmqtool("copy", root, "--output", copy, "--broker-version", "5.5.0").status == 0
    rows = half_rows(open_store(copy))
    assert rows
    assert len(rows.physical_offsets) == HALVES - 2
    assert "files are as they were" in rmqtool("copy", "--verify", copy, "--broker-version", "5.5.0").out
    raw = rmqtool("copy", root, "--output", tmp_path / "raw", "--raw", "--broker-version", "5.5.0")
    assert raw.status == 4
    assert "half messages" in raw.err
