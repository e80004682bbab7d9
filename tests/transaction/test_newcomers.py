"""Brokers that begin while a command holds the store: one that came and went, one that begins during the renames."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqtool.base.errors import StoreInUseError
from rmqtool.store.store import open_store
from rmqtool.transaction.system import System
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo
from tests.transaction.small import make_store, put, repair_one, seen_by_others, tree, undo

LATER = 1_720_000_000_000_000_000

Write = Callable[[Path], object]
WRITES: dict[str, Write] = {
    "commitlog/00000000000000002048": lambda path: path.unlink(),  # as a recovery deletes it
    "commitlog/00000000000000001024": lambda path: os.utime(path, ns=(LATER, LATER)),
    "commitlog/00000000000000003072": lambda path: path.write_bytes(b""),
    "index/20240101000000000": lambda path: path.write_bytes(b"index, longer"),
    "config/topics.json": lambda path: path.write_bytes(b"{}"),
    "config/consumerOffset.json": lambda path: path.write_bytes(b"{}"),
    "config/metadata/CURRENT": lambda path: path.write_bytes(b"MANIFEST-1"),
    "checkpoint": lambda path: path.write_bytes(b"checkpoint"),
    "abort": lambda path: path.write_bytes(b"17"),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


@pytest.mark.parametrize("name", WRITES)
def test_one_that_came_and_went(store: Path, name: str) -> None:
    """It found the lock taken and ended, but has recovered before: what is planned does not fit the store any more."""
    (store / name).parent.mkdir(exist_ok=True)
    with Transaction(store, "test") as transaction:
        put(transaction, "consumequeue/A/1/00000000000000000000", b"other")
        WRITES[name](store / name)
        before = tree(store)
        with pytest.raises(StoreInUseError, match=f"since this command began .{name}.: nothing is written") as raised:
            transaction.commit()
    assert "systemctl stop" in str(raised.value.hint)
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()


def test_a_log_elsewhere(store: Path, tmp_path: Path) -> None:
    """Wherever broker.conf has the log."""
    elsewhere = tmp_path / "log"
    elsewhere.mkdir()
    with Transaction(replace(open_store(store), commit_log_directories=(elsewhere,)), "test") as transaction:
        put(transaction, "checkpoint", b"other")
        (elsewhere / "00000000000000000000").write_bytes(b"log")
        with pytest.raises(StoreInUseError, match="log/00000000000000000000"):
            transaction.commit()


def test_an_undo_beside_one(store: Path) -> None:
    before = tree(store)
    repair_one(store, System())
    with Undo(store) as ours:
        (store / "config/consumerOffset.json").write_bytes(b"{}")
        with pytest.raises(StoreInUseError, match=r"config/consumerOffset\.json"):
            ours.put_back()
    (store / "config/consumerOffset.json").unlink()
    assert tree(store) != before
    undo(store, System())
    assert tree(store) == before


class BrokerBegins(System):
    """A broker maps a file of the store at the first rename of a transaction; its maps stand in `processes`."""

    def __init__(self, store: Path, processes: Path) -> None:
        super().__init__()
        self._line = f"7f00-7f01 rw-s 00000000 00:00 0 {store.resolve()}/consumequeue/A/0/00000000000000000000\n"
        self.maps = processes / "4711" / "maps"

    def exchange(self, one: str, other: str) -> None:
        self.maps.parent.mkdir(parents=True, exist_ok=True)
        self.maps.write_text(self._line)
        super().exchange(one, other)


@pytest.fixture
def broker(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBegins:
    processes = tmp_path / "proc"
    processes.mkdir()
    monkeypatch.setattr("rmqtool.transaction.session._PROC", processes)
    return BrokerBegins(store, processes)


@pytest.mark.slow
@pytest.mark.parametrize("job", [repair_one, undo])
def test_one_that_begins_during_the_renames(
    store: Path, broker: BrokerBegins, monkeypatch: pytest.MonkeyPatch, job: Callable[[Path, System], object]
) -> None:
    """The lock is held until it has ended: it would get it behind us, and write to what was replaced."""
    if job is undo:
        repair_one(store, System())
    told, holders = list[str](), list[str]()

    def end_later(seconds: float) -> None:
        holders.append(seen_by_others(store))
        if len(holders) == 2:
            broker.maps.unlink()

    monkeypatch.setattr("rmqtool.transaction.session.notice", told.append)
    monkeypatch.setattr("rmqtool.transaction.session.time", SimpleNamespace(monotonic=time.monotonic, sleep=end_later))
    before = tree(store)
    job(store, broker)
    assert ["process 4711, began to start meanwhile: the store stays locked" in text for text in told] == [True]
    assert ["Holder" in holder for holder in holders] == [True, True]
    assert tree(store) != before


def test_one_that_does_not_end(store: Path, broker: BrokerBegins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.transaction.session._PATIENCE", 0)
    monkeypatch.setattr("rmqtool.transaction.session._PAUSE", 0)
    before = tree(store)
    with pytest.raises(StoreInUseError, match=r"process 4711 .*: the store is written, but"):
        repair_one(store, broker)
    assert tree(store) != before
    broker.maps.unlink()
    undo(store, System())
    assert tree(store) == before


def test_links_to_themselves_hide_nothing(store: Path) -> None:
    """In whatever order the system lists them."""
    for number in range(50):
        (store / "commitlog" / f"x{number}").symlink_to(f"x{number}")
    with Transaction(store, "test") as transaction:
        put(transaction, "checkpoint", b"other")
        (store / "commitlog/00000000000000001024").write_bytes(b"cut")
        with pytest.raises(StoreInUseError, match="commitlog/00000000000000001024"):
            transaction.commit()
