"""The trace of a message in the index in RocksDB: its rows, those that are gone, and where there is no such index."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.side_rows import index_rows
from tests.changed_rocksdb import changed
from tests.commands.running import query
from tests.conftest import GoldenStore
from tests.copies import copied

SIDE = "more/5.5.0-rocksdb-side"


@pytest.fixture
def root(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store whose index is in files and in RocksDB; its first message has a key, a tag and a unique key."""
    return copied(unpacked(SIDE), tmp_path / "store")


def first(root: Path, *more: str) -> dict[str, Any]:
    """The first message with its places."""
    [message] = query(root, "--json", "--offset", "0", "--trace", *more).lines
    return dict(message)


def states(root: Path) -> dict[str, str]:
    """Of each kind of key."""
    found = first(root)["places"]["rocksdb_index"]
    return {key["kind"]: key["state"] for key in found["keys"]}


def change(root: Path, gone: str = "", progress: bytes | None = None) -> None:
    """Take away the rows of some kinds of keys of the first message, or say how far the index has come."""
    rows = [row.key for row in index_rows(first(root)) if row.kind in gone]
    with changed(root / "rocksdbstore") as families:
        for key in rows:
            families["default"].delete(key)
        if progress is not None:
            families["default"][b"lastOffsetPy"] = progress


@pytest.mark.slow
def test_every_key_has_its_row(root: Path) -> None:
    """Unique key, key and tag; people see it below the index files."""
    assert states(root) == {"unique-key": "ok", "key": "ok", "tags": "ok"}
    message = first(root)
    assert message["places"]["contradictions"] == []
    assert message["places"]["rocksdb_index"]["indexed_to"] > 0
    text = " ".join(query(root, "--offset", "0", "--trace").out.split())
    assert f"in RocksDB {message['unique_key']}: a row of rocksdbstore" in text


@pytest.mark.slow
def test_a_row_that_is_gone(root: Path) -> None:
    """The others show that the message was indexed."""
    change(root, "K")
    assert states(root) == {"unique-key": "ok", "key": "missing", "tags": "ok"}
    [contradiction] = first(root)["places"]["contradictions"]
    assert contradiction.startswith("the index in RocksDB has no row for ORD-0")
    assert "although the index in RocksDB has passed" in " ".join(query(root, "--offset", "0", "--trace").out.split())


@pytest.mark.slow
def test_a_message_that_is_not_indexed(root: Path) -> None:
    """The index may have begun after it in its hour, or has not come so far."""
    change(root, "UKT")
    assert set(states(root).values()) == {"not-indexed"}
    change(root, progress=(-1).to_bytes(8, "big", signed=True))
    assert set(states(root).values()) == {"not-indexed"}
    assert first(root)["places"]["contradictions"] == []


@pytest.mark.parametrize("alone", [False, True])
def test_a_database_that_cannot_be_read(root: Path, alone: bool) -> None:
    """Said where the index is likely to be there."""
    (root / "rocksdbstore" / "CURRENT").unlink()
    if alone:
        shutil.rmtree(root / "index")
    found = first(root)["places"]["rocksdb_index"]
    assert (found is not None) is alone
    if alone:
        assert found["keys"] == []
        assert "RocksDB cannot read it" in found["problem"]
        assert "in RocksDB not read: rocksdbstore" in " ".join(query(root, "--offset", "0", "--trace").out.split())


@pytest.mark.parametrize("name", ["5.5.0-shop", "more/5.5.0-rocksdb", "5.3.3-shop"])
def test_stores_without_such_an_index(golden_store: GoldenStore, name: str) -> None:
    """Since 5.4.0 the database is there, and empty."""
    root = golden_store(name)
    assert first(root)["places"]["rocksdb_index"] is None
    assert "in RocksDB " not in query(root, "--offset", "0", "--trace").out
