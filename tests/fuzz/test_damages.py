"""Damages that are guided by what comes out; `make damages` tries thousands of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.damages import Damage, applied, changed, edits, outcomes, tried
from tests.golden import stores
from tests.repair.checked_repair import Repair
from tests.unchanged import tree

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
