"""Damages that are guided by what comes out; `make damages` tries thousands of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.damages import Damage, applied, changed, edits, outcomes, settings_of, tried
from tests.golden import stores
from tests.repair.checked_repair import Repair
from tests.unchanged import tree

FOUND: list[tuple[str, Damage]] = [
    # A batch that the log has lost does not count among those that consumers get of its queue.
    ("5.5.0-trimmed", (("commit log file, the first: cut in half", 4113798041),)),
    # Units that are there twice lead to one lost message.
    (
        "5.5.0-trimmed",
        (("commit log file, the last: swapped", 942168163), ("retry queue file: duplicated", 1367252270)),
    ),
    # Without the log and the timer's files what its queue leads to is lost, too.
    (
        "5.5.1-shop",
        (("log and index: all deleted", 2355064519), ("config/subscriptionGroup.json with .bak: swapped", 201554145)),
    ),
    ("5.5.1-shop", (("commit log file, the first: emptied", 1620151490),)),
    # Of an empty store only offsets that are found again show that it had messages.
    (
        "5.5.0-trimmed",
        (
            ("log, queues, index and checkpoint: all deleted", 1583428974),
            ("config/consumerOffset.json with .bak: swapped", 534237230),
        ),
    ),
    # Due times that changed are told although no broker starts yet.
    (
        "4.7.1-shop",
        (("half message queue file: cut in half", 2098291922), ("a delay queue: a due time changed", 45195936)),
    ),
]
DAMAGE: Damage = (("a queue deleted", 3), ("checkpoint deleted", 4), ("a number", 5), ("bytes of any file", 7))


def test_a_damage_is_the_same_again(tmp_path: Path) -> None:
    """From its names and seeds; a store that has nothing for an edit leaves it out."""
    trees = []
    for name in ("one", "other"):
        store = stores.unpack("5.3.3-clean", tmp_path / name)
        assert applied((*DAMAGE, ("timer wheel: deleted", 1)), store) == DAMAGE
        trees.append(tree(store))
    assert trees[0] == trees[1] != tree(stores.unpack("5.3.3-clean", tmp_path))


def test_changes_stay_damages() -> None:
    chance, damage, seen = random.Random(1), Damage(), set[int]()
    for _ in range(200):
        damage = changed(damage, chance)
        seen.add(len(damage))
        assert {name for name, _ in damage} <= {*edits()}
    assert seen == {1, 2, 3, 4}


@pytest.mark.slow
def test_one_is_verified_repaired_and_taken_back(tmp_path: Path) -> None:
    done, repair, problems = tried(DAMAGE, stores.unpack("5.3.3-clean", tmp_path), "5.3.3", {})
    assert (done, problems) == (DAMAGE, [])
    assert repair is not None
    assert any(code.startswith("done") for code in outcomes(repair))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "damage"), FOUND)
def test_what_damages_have_found(tmp_path: Path, name: str, damage: Damage) -> None:
    """What once went wrong."""
    done, _, problems = tried(damage, stores.unpack(name, tmp_path), stores.version_of(name), settings_of(name))
    assert (done, problems) == (damage, [])


def test_what_goes_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise that does not come true, a step that takes without a word, and whatever is raised."""
    step = {"changes": [], "lost": [], "clients": {"leaves": {}, "takes": {"groups": 2}}}
    lost = {"kind": "keys_not_found", "planned": 1, "found": 3}
    said = {"result": {"state": "done", "verdict": "clean", "proof": {"more_lost": [lost]}}, "findings": []}
    base = stores.unpack("5.3.3-clean", tmp_path)
    monkeypatch.setattr(
        "tests.fuzz.damages.checked_repair", lambda *_: Repair({"steps": [step], "remaining": []}, [said], [])
    )
    assert tried(DAMAGE, base, "5.3.3", {})[2] == [
        "keys_not_found: planned 1, found 3", "takes {'groups': 2} without a word"
    ]  # fmt: skip
    monkeypatch.setattr("tests.fuzz.damages.checked_repair", lambda *_: 1 // 0)
    assert tried(DAMAGE, base, "5.3.3", {})[1:] == (None, ["ZeroDivisionError: integer division or modulo by zero"])
