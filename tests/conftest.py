"""Fixtures of all tests: stores that real brokers wrote, and the proof that reading changes none of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from tests.golden import stores
from tests.unchanged import unchanged

GoldenStore = Callable[[str], Path]

_LONGEST_SHOWN = 20_000  # characters

UNAVAILABLE = "no real broker: "
"""How the reason begins for which a test of the real releases was skipped."""

# A shell's background jobs ignore SIGINT, and what the tests start would inherit that; a handler is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # what runs under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples in each run; and no deadline, for the first example pays for imports, and machines are shared.
settings.register_profile("rmqtool", deadline=None, derandomize=True)
settings.load_profile("rmqtool")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> GoldenStore:
    """Give a golden store by name to copy from; unpacked once a session."""

    @cache
    def unpack(name: str) -> Path:
        return stores.unpack(name, tmp_path_factory.mktemp("golden"))

    return unpack


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A temporary directory that every user may enter; those above `tmp_path` are for its owner alone."""
    with TemporaryDirectory() as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path


@pytest.fixture
def golden_store(unpacked: GoldenStore) -> Iterator[GoldenStore]:
    """Give a golden store by name to read; after each test that did so, nothing in it must have changed."""
    with ExitStack() as stack:

        @cache
        def use(name: str) -> Path:
            return stack.enter_context(unchanged(unpacked(name)))

        yield use


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Of large values show where they differ first: a difference of all lines of both can take hours to find."""
    if op != "==" or max(len(repr(left)), len(repr(right))) < _LONGEST_SHOWN:
        return None
    return ["both are large; they differ first at", *_difference(left, right)]


def _difference(left: object, right: object) -> list[str]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        left, right = dict(left), dict(right)
        keys = [key for key in {**left, **right} if key not in left or key not in right or left[key] != right[key]]
        return _at(keys[0], left.get(keys[0]), right.get(keys[0])) if keys else []
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        number = next((i for i, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), None)
        number = min(len(left), len(right)) if number is None else number
        return _at(f"{number} of {len(left)} and {len(right)}", left[number : number + 1], right[number : number + 1])
    return _at(type(left).__name__, left, right)


def _at(place: object, left: object, right: object) -> list[str]:
    return [str(place), *(repr(value)[:_LONGEST_SHOWN] for value in (left, right))]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that broker tests did not run, and what to install."""
    reasons = [
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and UNAVAILABLE in report.longrepr[2]
    ]
    if reasons:
        terminalreporter.section("live broker tests did NOT run", sep="!", red=True)
        terminalreporter.line(f"{len(reasons)} tests skipped. {reasons[0]}")
