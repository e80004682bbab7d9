"""A repair that is killed or fails at a system call: the next one ends it, and undo takes all of it back."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqtool.transaction as transactions
from rmqtool.commands.repair import repair
from rmqtool.show.output import Style
from rmqtool.transaction import Transaction, Undo, kept_transactions
from rmqtool.transaction.system import System
from tests.rebuild.faults import make_store
from tests.transaction.faults import Fault, points, run_with
from tests.transaction.small import SYSTEMS, tree

SAMPLE = 3  # calls of each fault
CONF = "mappedFileSizeConsumeQueue=60\nmaxHashSlotNum=3\nmaxIndexNum=8\n"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store with a stray log file, queues and index to rebuild, and a topics.json that was cut."""
    (tmp_path / "broker.conf").write_text(CONF)
    store = make_store(tmp_path / "damaged")
    (store / "commitlog" / "notes.txt").write_text("notes")
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"ord')
    return store


@pytest.fixture
def repaired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path, System], None]:
    """Repair a store through the system that is given."""
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)  # of the new topics.json

    def run(store: Path, system: System) -> None:
        monkeypatch.setattr(transactions, "Transaction", lambda of, command: Transaction(of, command, system))
        options = ["--yes", "--json", "--broker-version", "5.3.3", "--broker-conf", str(tmp_path / "broker.conf")]
        repair.main([str(store), *options], standalone_mode=False, obj=Style())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill-before", "kill-after", "fail-once", "full-on"])
def test_a_repair_that_does_not_end(
    damaged: Path, repaired: Callable[[Path, System], None], tmp_path: Path, fault: Fault
) -> None:
    """It takes three transactions; wherever it stops, a second repair makes the same of the store."""
    system = SYSTEMS["all"]()
    done = Path(shutil.copytree(damaged, tmp_path / "done", copy_function=shutil.copy2))
    calls, _ = run_with(system, None, -1, lambda faulty: repaired(done, faulty))
    assert len(kept_transactions(done)) == 3
    before, after = tree(damaged), tree(done, details=False)
    places = points(calls.names, fault)
    for at in random.Random(f"{fault}").sample(places, min(SAMPLE, len(places))):
        store = Path(shutil.copytree(damaged, tmp_path / "store", copy_function=shutil.copy2))
        run_with(system, fault, at, lambda faulty, store=store: repaired(store, faulty))  # type: ignore[misc]
        repaired(store, system)
        assert tree(store, details=False) == after
        while kept_transactions(store):
            with Undo(store, system) as undo:
                undo.put_back()
        assert tree(store) == before
        shutil.rmtree(store)
