"""The real releases as fixtures; without Java the tests are skipped, but never silently."""

import os
from collections.abc import Callable
from functools import lru_cache

import pytest

from tests.broker.harness import Harness, HarnessUnavailable

_UNAVAILABLE = "no real broker: "


@pytest.fixture(scope="session")
def harness() -> Callable[[str], Harness]:
    """The harness of a version; under ``CI=true`` a missing JDK fails the test, elsewhere it skips it."""

    @lru_cache
    def of(version: str) -> Harness:
        try:
            return Harness(version)
        except HarnessUnavailable as missing:
            if os.environ.get("CI") == "true":
                pytest.fail(f"{_UNAVAILABLE}{missing}")
            pytest.skip(f"{_UNAVAILABLE}{missing}")

    return of


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that broker tests did not run, and what to install."""
    reasons = [
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and _UNAVAILABLE in report.longrepr[2]
    ]
    if reasons:
        terminalreporter.section("live broker tests did NOT run", sep="!", red=True)
        terminalreporter.line(f"{len(reasons)} tests skipped. {reasons[0]}")
