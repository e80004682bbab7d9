"""Tiers of two stores: messages of one alone, and messages that differ; what a local queue has counts, too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.tiered_damages import FIRST, LOG, UNITS, expire, overwrite


@pytest.fixture
def stores(golden_store: GoldenStore, tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a store that has its first messages in its tier alone."""
    a = copied(golden_store("more/5.3.3-tiered"), tmp_path / "a")
    expire(a)
    return a, copied(a, tmp_path / "b")


def compared(a: Path, b: Path, *options: str) -> Result:
    return rmqtool("diff", a, b, "--tiered-path-a", a / "tiered", "--tiered-path-b", b / "tiered", *options)


def tiers_of(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.document["result"]["tiers"]["examples"]
    return found


def test_the_same(stores: tuple[Path, Path]) -> None:
    """No difference, and all was compared; without the places of the tiers that is not known."""
    assert compared(*stores).status == 0
    assert rmqtool("diff", *stores).status == 3
    assert "give --tiered-path" in rmqtool("diff", *stores).out


def test_messages_of_one_store(stores: tuple[Path, Path]) -> None:
    """Those of missing units; of these the other local queue may have some."""
    a, b = stores
    (b / UNITS / FIRST).unlink()
    result = compared(a, b, "--json")
    [tier] = tiers_of(result)
    assert (result.status, result.document["result"]["verdict"]) == (1, "differs")
    assert (tier["topic"], tier["queue_id"], tier["a"]["min_offset"], tier["b"]["min_offset"]) == ("history", 0, 0, 50)
    assert tier["only_a"] == {"messages": 50, "ranges": [{"min_offset": 0, "max_offset": 50}]}
    assert (tier["only_b"]["messages"], tier["different"]) == (0, 0)
    assert "only A has 50 messages, from queue offset 0 to 49" in compared(a, b).out
    shutil.rmtree(b / "tiered")
    (b / "tiered").mkdir()
    [first, _] = tiers_of(compared(a, b, "--json"))
    assert first["b"] is None
    assert first["only_a"] == {"messages": 78, "ranges": [{"min_offset": 0, "max_offset": 78}]}  # then local ones


def test_messages_that_differ(stores: tuple[Path, Path]) -> None:
    """One body; the queue offsets of the tier stay the same."""
    a, b = stores
    overwrite(b / LOG / FIRST, 90, b"\0")
    [tier] = tiers_of(compared(a, b, "--json"))
    assert (tier["only_a"]["messages"], tier["different"], tier["first_different"]) == (0, 1, 0)
    assert "1 message with other bytes, first at 0" in compared(a, b).out


@pytest.mark.parametrize("option", ["--fast", "--by-message"])
def test_where_tiers_are_not_compared(stores: tuple[Path, Path], option: str) -> None:
    """Their places are refused."""
    assert compared(*stores, option).status == 2
