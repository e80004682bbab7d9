"""Change modules that decide, one place at a time, and run the tests that reach it: `python -m tests.mutants`.

A change that no test sees survives: a test is missing, or the change means the same. Each run is a process of its own
that imports the changed module from memory; no file is changed.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy  # noqa: F401 - loaded once, for all runs
import pyarrow.compute  # noqa: F401
import pytest

from tests.mutants.changes import Change, changes_of
from tests.mutants.modules import MODULES, Decides
from tests.trust import results

_ROOT = Path(__file__).parents[2]
SEED = 1
_MOST_TESTS = 40
"""Of the tests that reach a line so many are run."""
_KILLED, _SURVIVED, _HANGS, _NO_TEST = "killed", "survived", "hangs", "no test"
_LEAST_S = 60
_QUICK = "not (slow or rare or broker or spark)"  # without the limits of time of `--quick`: what is traced takes longer


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module as another source."""

    def __init__(self, path: str, source: str) -> None:
        self._name = path.removesuffix(".py").replace("/", ".")
        self._path = str(_ROOT / path)
        self._source = source

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """As the base."""
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the base."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """As the base."""
        exec(compile(self._source, self._path, "exec"), module.__dict__)


class _Reached:
    """A plug-in of pytest: which tests reach which lines of a file; those of its import are reached by all."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._test = ""
        self.tests: defaultdict[int, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Around each test."""
        self._test, begin = item.nodeid, time.monotonic()
        sys.settrace(self._calls)
        threading.settrace(self._calls)
        yield
        sys.settrace(None)
        self.seconds[item.nodeid] = time.monotonic() - begin

    def _calls(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._lines if frame.f_code.co_filename == self._path else None

    def _lines(self, frame: FrameType, event: str, argument: object) -> Any:
        self.tests[frame.f_lineno].add(self._test)
        return self._lines


def _in_copy(work: Any, seconds: float) -> Any:
    """What `work` gives in a copy of this process, which says nothing; None where it does not end in time."""
    with tempfile.NamedTemporaryFile() as answer:
        process = os.fork()
        if not process:
            os.setsid()
            silent = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(silent, number)
            Path(answer.name).write_text(json.dumps(work()), encoding="utf-8")
            os._exit(0)
        until = time.monotonic() + seconds
        while not os.waitpid(process, os.WNOHANG)[0]:
            if time.monotonic() > until:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return None
            time.sleep(0.01)
        said = answer.read()
    return json.loads(said) if said else [2]


def _pytest(tests: Sequence[str], *plugins: object) -> int:
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    return int(pytest.main([*options, *tests], plugins=[*plugins]))


def reached(decides: Decides) -> tuple[Mapping[int, Sequence[str]], Mapping[str, float]]:
    """The tests that reach each line, those that take least time first, and how long each takes, s."""

    def work() -> Any:
        plugin = _Reached(_ROOT / decides.path)
        status = _pytest([*decides.tests, "-m", _QUICK] if decides.is_quick else decides.tests, plugin)
        return [status, {line: sorted(found) for line, found in plugin.tests.items()}, plugin.seconds]

    status, tests, seconds = _in_copy(work, 3600)
    if status != 0:
        sys.exit(f"{decides.path}: its tests fail without a change")
    return {int(line): sorted(found, key=seconds.__getitem__) for line, found in tests.items()}, seconds


def outcome_of(decides: Decides, change: Change, tests: Sequence[str], seconds: float) -> str:
    """Whether the tests that reach a change see it."""
    if not tests:
        return _NO_TEST

    def work() -> Any:
        sys.meta_path.insert(0, _Changed(decides.path, change.source))
        return [_pytest(tests)]

    answer = _in_copy(work, max(_LEAST_S, 10 * seconds))
    return _HANGS if answer is None else _SURVIVED if answer[0] == 0 else _KILLED


@dataclass
class Score:
    """What became of the changes of one module."""

    decides: Decides
    counts: Counter[str]
    survivors: list[str]

    def row(self) -> dict[str, Any]:
        """For the page."""
        seen = self.counts[_KILLED] + self.counts[_HANGS]
        return {
            "what": self.decides.what,
            "module": self.decides.path,
            "functions": [*self.decides.functions],
            "changes": sum(self.counts.values()),
            "seen": seen,
            "survived": self.counts[_SURVIVED],
            "same": self.counts["the same"],
            "no_test": self.counts[_NO_TEST],
        }


def try_module(decides: Decides, every: int) -> Score:
    """Make one in `every` of the changes of a module; print what survives."""
    tests, seconds = reached(decides)
    drawn, score = random.Random(SEED), Score(decides, Counter(), [])
    for change in changes_of((_ROOT / decides.path).read_text(encoding="utf-8"), decides.functions):
        if drawn.randrange(every):
            continue
        some = (tests.get(change.line) or tests.get(change.statement, ()))[:_MOST_TESTS]
        outcome = outcome_of(decides, change, some, sum(seconds[test] for test in some))
        if outcome == _SURVIVED and (change.within, change.text) in decides.same:
            outcome = "the same"
        score.counts[outcome] += 1
        if outcome in (_SURVIVED, _NO_TEST):
            print(f"  {decides.path}:{change.line}: {outcome}: {change.text}    in: {change.within}", flush=True)
    return score


def main() -> int:
    """Try modules; print, and with `--record` keep, the scores."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", choices=[[], *MODULES], default=[])
    parser.add_argument("--every", type=int, default=1, help="one in so many of all changes")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    os.chdir(_ROOT)
    begin, rows = time.monotonic(), []
    for name in given.names or MODULES:
        score = try_module(MODULES[name], given.every)
        rows.append(score.row())
        print(f"{name:13} {score.row()}", flush=True)
    if given.record:
        names = " ".join(["", *given.names])
        command = f"python -m tests.mutants{names}" + (f" --every {given.every}" if given.every > 1 else "")
        results.record("mutants", command, time.monotonic() - begin, str(SEED), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
