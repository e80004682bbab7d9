"""The real releases as fixtures; without Java the tests are skipped, but never silently."""

import os
from collections.abc import Callable
from functools import lru_cache

import pytest

from tests.conftest import UNAVAILABLE
from tests.real_broker.harness import Harness, HarnessUnavailable


@pytest.fixture(scope="session")
def harness() -> Callable[[str], Harness]:
    """The harness of a version; under ``CI`` a missing JDK fails the test, elsewhere it skips it."""

    @lru_cache
    def of(version: str) -> Harness:
        try:
            return Harness(version)
        except HarnessUnavailable as missing:
            if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
                pytest.fail(f"{UNAVAILABLE}{missing}")
            pytest.skip(f"{UNAVAILABLE}{missing}")

    return of
