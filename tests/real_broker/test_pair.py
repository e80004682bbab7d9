"""A real master and a real slave under a controller: what `diff` says, and what a slave does when it connects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import rmqtool
from tests.real_broker.harness import Harness
from tests.unchanged import unchanged

pytestmark = [pytest.mark.broker, pytest.mark.slow]

FIRST, ALONE, FORCED = 40, 25, 10
"""Messages that both have, that only the first master took, and that the slave took when it was made master."""


@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_master_and_slave(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """Equal, one behind, parted by an unclean election; and the old master is cut where it was predicted."""
    harness(version).write_pair(tmp_path)
    equal, behind, parted, healed = (answer(tmp_path / name) for name in ("equal", "behind", "diverged", "healed"))

    assert equal["diverged_at"] is None  # a slave takes over topics and offsets some seconds later
    assert (only(equal), equal["queues"]["different"]) == ((0, 0), 0)
    assert entries(equal, "a") == entries(equal, "b")
    end = equal["common"]["to_offset"]
    assert cut(equal, "a") == cut(equal, "b") == (end, 0)

    assert (behind["verdict"], only(behind)) == ("a-ahead", (ALONE, 0))
    assert cut(behind, "a") == (end, ALONE)
    assert cut(behind, "b") == (end, 0)

    assert (parted["verdict"], parted["diverged_at"], only(parted)) == ("diverged", end, (ALONE, FORCED))
    assert cut(parted, "a") == (end, ALONE)
    assert cut(parted, "b") == (end, FORCED)
    assert parted["queues"]["unexplained"] == 0

    # The old master was cut at that point, and has taken what its new master has; #9942 may leave its own epoch there.
    master_end = parted["b"]["max_offset"]
    assert (healed["diverged_at"], healed["common"]) == (None, {"from_offset": 0, "to_offset": master_end})
    assert entries(healed, "a") in (entries(parted, "a"), entries(parted, "b"))
    assert entries(healed, "b")[: len(entries(parted, "b"))] == entries(parted, "b")


def answer(stores: Path) -> dict[str, Any]:
    with unchanged(stores):
        result: dict[str, Any] = rmqtool("diff", stores / "a", stores / "b", "--json").document["result"]
    return result


def only(result: dict[str, Any]) -> tuple[int, int]:
    """How many messages only A, and only B has."""
    first, second = (result[f"only_{name}"] for name in ("a", "b"))
    return (first["messages"] if first else 0, second["messages"] if second else 0)


def cut(result: dict[str, Any], name: str) -> tuple[int, int]:
    """Up to where a store agrees as the slave of the other, and how many messages it would cut."""
    following = result["epochs"]["a_follows_b" if name == "a" else "b_follows_a"]
    return following["consistent_point"], following["cut"]["messages"] if following["cut"] else 0


def entries(result: dict[str, Any], name: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = result["epochs"][name]["entries"]
    return found
