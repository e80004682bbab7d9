"""An index that was restored beside another log proves nothing about it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.broker.dispatched_record import index_of_another_log
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied


def with_index_of(golden_store: GoldenStore, name: str, other: str, root: Path) -> Path:
    """A store with the index of another one."""
    store = copied(golden_store(name), root / "store")
    shutil.rmtree(store / "index")
    shutil.copytree(golden_store(other) / "index", store / "index")
    return store


@pytest.mark.slow
def test_an_index_of_its_own_is_none(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Also where the end of the log is gone, so that the index leads after it: then it proves the loss."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    assert index_of_another_log(Snapshot(open_store(store))) == frozenset()
    for file in sorted((store / "commitlog").iterdir())[-3:]:
        file.unlink()
    assert index_of_another_log(Snapshot(open_store(store))) == frozenset()
    codes = {each["code"] for each in rmqtool("verify", store, "--json").document["findings"]}
    assert "commitlog.end-missing" in codes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"),
    [("5.3.3-shop", "5.3.3-clean"), ("4.9.7-shop", "5.3.3-clean"), ("5.3.3-shop", "4.9.7-clean")],
)
def test_an_index_of_another_log_is_rebuilt_and_nothing_is_lost(
    golden_store: GoldenStore, tmp_path: Path, name: str, other: str
) -> None:
    """It leads past the end of this log: no file has to be restored for that, and no loss is recorded."""
    store = with_index_of(golden_store, name, other, tmp_path)
    plan = rmqtool("verify", store, "--json").document["result"]["plan"]
    assert not any(step["lost"] for step in plan["steps"])
    repair = plan["steps"][0]["command"]
    assert repair.startswith("rmqtool repair ")
    assert rmqtool(*repair.split()[1:], "--yes").status == Exit.OK
    found = rmqtool("verify", store, "--json").document
    assert found["result"]["verdict"] == "clean"
    assert not any(each["code"] == "store.recorded-loss" for each in found["findings"])
