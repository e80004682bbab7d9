"""Change modules that decide, one place at a time, and run the tests that reach it: `python -m tests.mutants`.

A change that no test sees survives: a test is missing, or the change means the same. No file is changed: all tests are
found, and run once, in one process (`tests/mutants/warm.py`), of which each change has a copy.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.changes import Change, changes_of
from tests.mutants.modules import MODULES, Decides
from tests.mutants.warm import Warm, source_of
from tests.trust import results

_ROOT = Path(__file__).parents[2]
SEED = 1
_SEEN, _SAME, _SURVIVED, _NO_TEST = "seen", "same", "survived", "no_test"


@dataclass
class Score:
    """What became of the changes of one module."""

    decides: Decides
    counts: Counter[str] = field(default_factory=Counter)

    def row(self) -> dict[str, Any]:
        """For the page."""
        return {
            "what": self.decides.what,
            "module": self.decides.path,
            "functions": [*self.decides.functions],
            "changes": sum(self.counts.values()),
            **{name: self.counts[name] for name in (_SEEN, _SURVIVED, _SAME, _NO_TEST)},
        }


def outcome_of(warm: Warm, decides: Decides, change: Change) -> str:
    """Whether the tests that reach a change see it."""
    path = _ROOT / decides.path
    tests = warm.reaching(path, decides.tests, change.statement)
    if tests and warm.is_seen(path, change.code, tests) is not False:
        return _SEEN
    return _SAME if (change.within, change.text) in decides.same else _SURVIVED if tests else _NO_TEST


def try_module(warm: Warm, decides: Decides, every: int) -> Score:
    """Make one in `every` of the changes of a module; print what survives."""
    drawn, score = random.Random(SEED), Score(decides)
    path = _ROOT / decides.path
    for change in changes_of(source_of(str(path)), decides.functions, str(path)):
        if drawn.randrange(every):
            continue
        outcome = outcome_of(warm, decides, change)
        score.counts[outcome] += 1
        if outcome in (_SURVIVED, _NO_TEST):
            print(f"  {decides.path}:{change.line}: {outcome}: {change.text}    in: {change.within}", flush=True)
    if not warm.is_copy_sound(path):
        pytest.exit(f"{decides.path}: its tests fail in a copy of a process, without a change", 1)
    return score


def main() -> int:
    """Try modules; print, and with `--record` keep, the scores."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", choices=[[], *MODULES], default=[])
    parser.add_argument("--every", type=int, default=1, help="one in so many of all changes")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    os.chdir(_ROOT)
    begin = time.monotonic()
    modules = [MODULES[name] for name in given.names or MODULES]
    rows: list[dict[str, Any]] = []

    def work(warm: Warm) -> None:
        print(f"tests found and run after {time.monotonic() - begin:.0f} s", flush=True)
        for decides in modules:
            rows.append(try_module(warm, decides, given.every).row())
            print(f"{time.monotonic() - begin:.0f} s: {rows[-1]}", flush=True)

    paths = dict.fromkeys(path for decides in modules for path in decides.tests)
    options = ["-q", "--assert=plain", "--tb=native", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    for decides in modules:
        import_module(decides.path.removesuffix(".py").replace("/", "."))  # some are imported late
    slow = {test for decides in modules for test in decides.slow}
    plugin = Warm([_ROOT / decides.path for decides in modules], slow, work)
    status = pytest.main([*options, *paths], plugins=[plugin])
    if status or len(rows) < len(modules):
        return int(status) or 1
    if given.record:
        names = " ".join(["", *given.names])
        command = f"python -m tests.mutants{names}" + (f" --every {given.every}" if given.every > 1 else "")
        results.record("mutants", command, time.monotonic() - begin, str(SEED), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
