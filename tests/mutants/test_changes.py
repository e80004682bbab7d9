"""What the changes of a module are: each of one place, and each a module that can be compiled."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from tests.mutants.__main__ import _ROOT
from tests.mutants.changes import changes_of, with_marks
from tests.mutants.modules import MODULES

pytestmark = pytest.mark.budget(1)  # some parse a large module, and write it again

SOURCE = dedent('''
    """A module."""
    LIMIT = 3

    def count(values: list[int], limit: int = 2) -> int:
        """How many."""
        found: int = 0
        for value in values:
            if not value:
                continue
            found += value < limit and value != 5
        return found if found else min(limit, 4)

    def other():
        print("never")
''')


def test_each_place_once() -> None:
    found = [change.text for change in changes_of(SOURCE)]
    assert found == [
        "0  ->  1",
        "not value  ->  value",
        "continue  ->  break",
        "found += value < limit and value != 5  ->  found -= value < limit and value != 5",
        "value < limit and value != 5  ->  value < limit or value != 5",
        "value < limit  ->  value <= limit",
        "value < limit  ->  value >= limit",
        "value != 5  ->  value == 5",
        "5  ->  6",
        "return found if found else min(limit, 4)  ->  return None",
        "found if found else min(limit, 4)  ->  found",
        "found if found else min(limit, 4)  ->  min(limit, 4)",
        "min  ->  max",
        "4  ->  5",
        "print('never')  ->  pass",
    ]


def test_statements_are_marked() -> None:
    lines: list[int] = []
    module: dict[str, Any] = {"mark": lines.append}
    exec(with_marks(SOURCE, "changed", "mark"), module)
    assert module["count"]([0, 1]) == 1
    assert lines == [6, 7, 8, 9, 10, 9, 11, 12]


def test_only_some_functions() -> None:
    assert [(change.line, change.text) for change in changes_of(SOURCE, {"other"})] == [
        (15, "print('never')  ->  pass")
    ]


@pytest.mark.parametrize("name", MODULES)
def test_the_modules_are_there(name: str) -> None:
    """Their tests and functions have not moved."""
    decides = MODULES[name]
    source = (_ROOT / decides.path).read_text(encoding="utf-8")
    assert all((_ROOT / test).exists() for test in decides.tests)
    assert all(f"def {function}(" in source for function in decides.functions)
    assert any(changes_of(source, decides.functions))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODULES if MODULES[name].same])
def test_what_means_the_same_is_there(name: str) -> None:
    decides = MODULES[name]
    source = (_ROOT / decides.path).read_text(encoding="utf-8")
    assert decides.same.keys() <= {(change.within, change.text) for change in changes_of(source, decides.functions)}
