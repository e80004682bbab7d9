"""A process in which all tests are found and have run once: the tests of each line, and each change in a copy of it."""

from __future__ import annotations

import builtins
import functools
import gc
import inspect
import os
import pickle
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

from tests.mutants.changes import with_marks

_LONG = ("slow", "rare", "broker", "spark")
"""Marks."""
_MOST_S = 5
_LEAST_S = 5
"""CPU time that the tests of a change get, at least; else three times what they take without it."""
_WAITS_S = 300
_MEMORY = 4 << 30
_OURS, _LASTING = ("rmqtool", "formats", "tests"), ("tests.golden", "tests.conftest", "tests.mutants")
"""Modules whose caches are emptied in each copy, but for those of the second, which hold what no program made."""


class Warm:
    """A plug-in of pytest that gives the tests, once they are found, to `work`, which returns nothing.

    `work` asks for the tests that reach a line, and for the outcome of a change.
    """

    def __init__(self, paths: Sequence[Path], slow: Collection[str], work: Callable[[Warm], None]) -> None:
        """Of the tests with a mark that makes them long only those are run whose names begin with one of `slow`."""
        self._slow = slow
        self._tests: dict[str, defaultdict[int, set[pytest.Item]]] = {str(path): defaultdict(set) for path in paths}
        self._seconds: dict[pytest.Item, float] = {}
        self._work = work
        self._test: pytest.Item | None = None
        self._detected: Counter[pytest.Item] = Counter()
        self._failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave long tests out."""
        named = tuple(self._slow)
        items[:] = [
            item for item in items if item.nodeid.startswith(named) or not any(map(item.get_closest_marker, _LONG))
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once, then do the work instead."""
        self._session = session
        plugins = session.config.pluginmanager
        reporter: Any = plugins.get_plugin("terminalreporter")
        capturing: Any = plugins.get_plugin("capturemanager")
        shown = reporter._tw
        with Path(os.devnull).open("w", encoding="utf-8") as silent:
            reporter._tw = create_terminal_writer(session.config, silent)
            try:
                self._find()
                self._ask_copy()
                self._find()  # modules that tests import late, too
                with capturing.global_and_fixture_disabled():
                    self._work(self)
            finally:
                reporter._tw = shown
        return True

    def _find(self) -> None:
        """Find what is replaced and emptied in each copy."""
        gc.unfreeze()
        self._functions = _functions(self._tests)
        self._caches = [
            each
            for each in gc.get_objects()
            if isinstance(each, functools._lru_cache_wrapper) and _is_ours(each.__module__)
        ]
        gc.collect()
        gc.freeze()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what fails."""
        if report.failed:
            self._failed.append(f"{report.nodeid}\n{report.longreprtext}")

    def _ask_copy(self) -> None:
        """Run all tests in a copy of this process, which then has no threads of theirs, and note what they reach."""
        items = {item.nodeid: item for item in self._session.items}
        with TemporaryFile() as answer:
            process = os.fork()
            if not process:
                self._run_all(self._session.items)
                reached = {path: {line: [each.nodeid for each in found] for line, found in lines.items()}
                           for path, lines in self._tests.items()}  # fmt: skip
                seconds = {item.nodeid: second for item, second in self._seconds.items()}
                modules = [name for name in sys.modules if name.startswith(_OURS)]
                pickle.dump((reached, seconds, self._failed, modules), answer)
                answer.flush()
                os._exit(0)
            os.waitpid(process, 0)
            answer.seek(0)
            reached, seconds, failed, modules = pickle.load(answer)
        if failed:
            pytest.exit("These tests fail without a change:\n" + "\n".join(failed), 1)
        for path, lines in reached.items():
            self._tests[path].update({line: {items[name] for name in names} for line, names in lines.items()})
        self._seconds = {items[name]: second for name, second in seconds.items()}
        for name in modules:
            import_module(name)

    def _run_all(self, items: Sequence[pytest.Item]) -> None:
        for path, reached in self._tests.items():
            mark = f"_reached_{len(vars(builtins))}"
            setattr(builtins, mark, partial(self._reach, reached))
            self._replace(path, with_marks(source_of(path), path, mark))
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._test, begin = item, time.process_time()
            self._run(item, following)
            self._seconds[item] = time.process_time() - begin

    def _reach(self, reached: defaultdict[int, set[pytest.Item]], line: int) -> None:
        if self._test is not None:
            reached[line].add(self._test)

    def _replace(self, path: str, code: CodeType) -> None:
        """Let a module's functions do what those of another one do, in which `super` may be left out."""
        codes = [*_codes(code)]
        for function, place in self._functions[path]:
            free = function.__code__.co_freevars
            function.__code__ = codes[place] if codes[place].co_freevars else codes[place].replace(co_freevars=free)

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def reaching(self, path: Path, own: tuple[str, ...], line: int) -> list[pytest.Item]:
        """The tests that reach the statement of a line: those first that have seen most changes.

        Of the others the module's `own`, and of these and of the rest one of each function that has cases, then a
        second, those first that take least time; all together take no more than `_MOST_S`.
        """
        tests = self._tests[str(path)][line]
        order, places = [], Counter[str]()
        for item in sorted(tests, key=self._seconds.__getitem__):
            function = item.nodeid.partition("[")[0]
            is_other = not function.startswith(own)
            order.append((-self._detected[item], is_other, places[function], self._seconds[item], item.nodeid))
            places[function] += 1
        items = {item.nodeid: item for item in tests}
        found = [items[name] for *_, name in sorted(order)]
        ends = accumulate(map(self._seconds.__getitem__, found), initial=0.0)
        return [item for item, begin in zip(found, ends, strict=False) if begin < _MOST_S]

    def is_copy_sound(self, path: Path) -> bool:
        """Whether the tests that have seen a change pass in a copy of this process without one."""
        return self.is_seen(path, _compiled(str(path)), [*self._detected]) is False

    def is_seen(self, path: Path, code: CodeType, tests: Sequence[pytest.Item]) -> bool | None:
        """Whether one of the tests fails in a copy of this process with another module; None where it does not end."""
        seconds = max(_LEAST_S, 3 * sum(self._seconds[test] for test in tests))
        reading, writing = os.pipe()
        with TemporaryDirectory() as directory:
            process = os.fork()
            if not process:
                _limit(round(seconds))
                os.write(writing, self._first_failing(path, code, tests, Path(directory)))
                os._exit(0)
            os.close(writing)
            is_ended = _wait(process, _WAITS_S)
            said = os.read(reading, 8)
            os.close(reading)
        if said:
            place = int(said)
            if place < len(tests):
                self._detected[tests[place]] += 1
            return place < len(tests)
        return True if is_ended else None

    def _first_failing(self, path: Path, code: CodeType, tests: Sequence[pytest.Item], directory: Path) -> bytes:
        """Its place, after the last one if none fails."""
        self._session.config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined]
        for each in self._caches:
            each.cache_clear()
        self._replace(str(path), code)
        for place, item in enumerate(tests):
            self._run(item, tests[place + 1] if place + 1 < len(tests) else None)
            if self._failed:
                return b"%d" % place
        return b"%d" % len(tests)


def _is_ours(module: str | None) -> bool:
    return (module or "").startswith(_OURS) and not (module or "").startswith(_LASTING)


def _limit(seconds: int) -> None:
    """Let a copy be silent, and end it when it takes too much."""
    os.setsid()
    silent = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(silent, number)
    gc.disable()
    resource.setrlimit(
        resource.RLIMIT_CPU, (resource.getrusage(resource.RUSAGE_SELF).ru_utime.__ceil__() + seconds,) * 2
    )
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY,) * 2)


def _wait(process: int, seconds: float) -> bool:
    """Whether a process ends by itself."""
    until = time.monotonic() + seconds
    pause = 0.001
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return not (os.WIFSIGNALED(ended[1]) and os.WTERMSIG(ended[1]) in (signal.SIGKILL, signal.SIGXCPU))


def _functions(paths: Iterable[str]) -> Mapping[str, Sequence[tuple[FunctionType, int]]]:
    """The functions of each module, with the place of their code among those of the module."""
    found: dict[str, list[FunctionType]] = {path: [] for path in paths}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in found:
            found[each.__code__.co_filename].append(each)
    return {path: [*_places(path, functions)] for path, functions in found.items()}


def _places(path: str, functions: Sequence[FunctionType]) -> Iterator[tuple[FunctionType, int]]:
    places = {code: place for place, code in enumerate(_codes(_compiled(path)))}
    return ((function, places[function.__code__]) for function in functions if function.__code__ in places)


@functools.cache
def source_of(path: str) -> str:
    """The source of a module, the same for a whole run."""
    return Path(path).read_text(encoding="utf-8")


def _compiled(path: str) -> CodeType:
    return compile(source_of(path), path, "exec", dont_inherit=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Those of a module's functions and methods; functions within them are part of them."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            if not constant.co_flags & inspect.CO_OPTIMIZED:  # the body of a class
                yield from _codes(constant)
