"""Brokers and transactions: `.rmqtool` is nothing to a broker, and a store that is being written to is closed to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import StoreInUseError
from rmqtool.transaction.home import STAGING, TRASH
from rmqtool.transaction.paths import HOME
from rmqtool.transaction.system import SYSTEM
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo, kept_transactions
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.harness import VERSIONS, Harness, HarnessError
from tests.transaction.small import SYSTEMS, tree, undo
from tests.unchanged import unchanged

pytestmark = pytest.mark.broker
Factory = Callable[[str], Harness]


def copy(unpacked: GoldenStore, version: str, target: Path) -> Path:
    copied(unpacked(f"{version}-clean"), target)
    return target


def rewrite(root: Path, *, system: str = "all") -> None:
    """Replace every queue by one with the same units, and an empty file after them as brokers allocate it."""
    with Transaction(root, "test", SYSTEMS[system]()) as transaction:
        for queue in sorted((root / "consumequeue").glob("*/*")):
            name = str(queue.relative_to(root))
            for file in sorted(queue.iterdir()):
                data = file.read_bytes()
                transaction.file(f"{name}/{file.name}", size=len(data)).write(data, 0)
            extra = max(int(file.name) for file in queue.iterdir()) + len(data)
            transaction.file(f"{name}/{extra:020d}", size=len(data), mtime_ns=0)
            transaction.put(name)
        transaction.commit()


def clutter(root: Path) -> Path:
    """Everything that `.rmqtool` may ever hold: a transaction, leftovers of staging, what is being removed."""
    rewrite(root)
    for name in (STAGING, TRASH):
        copied(root / "consumequeue", root / HOME / name / "new" / "consumequeue")
        copied(root / "commitlog", root / HOME / name / "commitlog")
    return root / HOME


@pytest.mark.rare
@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_ignore_our_directory(harness: Factory, unpacked: GoldenStore, tmp_path: Path, version: str) -> None:
    """Loading, starting, cleaning and destroying a store leave it alone, and do the same as without it."""
    plain = copy(unpacked, version, tmp_path / "plain")
    store = copy(unpacked, version, tmp_path / "store")
    rewrite(plain)
    shutil.rmtree(plain / HOME)
    ours = clutter(store)
    broker = harness(version)
    with unchanged(ours):
        assert broker.recover(store) == broker.recover(plain)
        assert broker.expire(store)["commit_log_files"] == broker.expire(plain)["commit_log_files"]
        left = broker.destroy(store)
    assert HOME in left["destroyed"]
    assert left["commit_log_files"] == 0
    assert kept_transactions(store)


@pytest.mark.parametrize("version", VERSIONS)
def test_broker_and_transaction_exclude_each_other(
    harness: Factory, unpacked: GoldenStore, tmp_path: Path, version: str
) -> None:
    store = copy(unpacked, version, tmp_path / "store")
    broker = harness(version)
    with Transaction(store, "test"), pytest.raises(HarnessError, match=r"Lock failed, ?MQ already started"):
        broker.recover(store)
    with broker.hold(store):
        for writer in (Transaction(store, "test"), Undo(store)):
            with pytest.raises(StoreInUseError), writer:
                pass
    with Transaction(store, "test"):
        pass


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_came_and_went(harness: Factory, unpacked: GoldenStore, tmp_path: Path, version: str) -> None:
    """Started again after a kill it recovers, and writes, before it finds the lock taken."""
    store = tmp_path / "store"
    copied(unpacked(f"{version}-killed"), store)
    with Transaction(store, "test") as transaction:
        transaction.file("checkpoint", size=4096)
        transaction.put("checkpoint")
        with pytest.raises(HarnessError, match="Lock failed"):
            harness(version).recover(store)
        with pytest.raises(StoreInUseError, match="changed by another process"):
            transaction.commit()


@pytest.mark.parametrize("system", ["all", pytest.param("plain", marks=pytest.mark.rare)])
@pytest.mark.parametrize("version", VERSIONS)
def test_broker_starts_on_an_undone_store(
    harness: Factory, unpacked: GoldenStore, tmp_path: Path, version: str, system: str
) -> None:
    """After a repair and its undo the store is, for the broker too, the one that it was."""
    store = copy(unpacked, version, tmp_path / "store")
    before = tree(store)
    rewrite(store, system=system)
    assert tree(store) != before
    undo(store, SYSTEM)
    assert tree(store) == before
    assert harness(version).recover(store) == stores.oracle(f"{version}-clean")["recovered"]
