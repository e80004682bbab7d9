"""A new store with its tier: what only the tier has is served there, and can be repaired there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.tiered_damages import damaged, expire


@pytest.fixture
def store(golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A store whose first messages are in a tier that lies elsewhere."""
    store = copied(golden_store("more/5.5.1-tiered"), tmp_path / "store")
    expire(store)
    damaged(store, "no last segment of units")
    (store / "tiered").rename(tmp_path / "tier")
    return store


@pytest.mark.parametrize("command", ["salvage", "convert"])
def test_a_tier_is_taken_along(store: Path, tmp_path: Path, command: str) -> None:
    """With its metadata; repaired in the new store, all 240 messages are found there. No filter goes with it."""
    tier, new = tmp_path / "tier", tmp_path / "new"
    options = ("--tiered", "--tiered-path", tier)
    conf: tuple[str | Path, ...] = ()
    if command == "convert":  # of several paths
        (tmp_path / "second").mkdir()
        (tmp_path / "broker.conf").write_text(f"storePathCommitLog={store / 'commitlog'},{tmp_path / 'second'}\n")
        conf = ("--broker-conf", tmp_path / "broker.conf")
    run = rmqtool(command, store, "--output", new, *options, *conf)
    assert f"tieredStoreFilePath={new / 'tiered'}" in run.err
    assert [path.relative_to(tier) for path in sorted(tier.rglob("*"))] == [
        path.relative_to(new / "tiered") for path in sorted((new / "tiered").rglob("*"))
    ]
    rmqtool("repair", new, "--tiered-path", new / "tiered", "--yes")
    assert len(rmqtool("query", new, "--tiered-path", new / "tiered", "--scan", "--json").lines) == 240
    outside = rmqtool("repair", store, "--tiered-path", tier, "--yes")
    assert "is outside the store" in outside.out
    if command == "salvage":
        assert rmqtool("salvage", store, "--output", tmp_path / "x", *options, "--topic", "history").status == 2
    assert rmqtool(command, store, "--output", tmp_path / "x", "--tiered", *conf).status == 2
