"""Random stores with RocksDB of real brokers: every queue, unit, pull, key, topic, group and offset as these answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_broker.harness import Harness
from tests.real_broker.random_rocksdb import VERSIONS, differences, modes_of

pytestmark = [pytest.mark.broker, pytest.mark.slow]
CASES = [(version, mode) for version in VERSIONS for mode in modes_of(version)]
SEED = 7


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("version", "mode"), CASES)
def test_a_random_store(harness: Callable[[str], Harness], tmp_path: Path, version: str, mode: str) -> None:
    """Of each mode that a release has; `make randoms` writes more of them."""
    assert differences(harness(version), mode, SEED, tmp_path) == []


@pytest.mark.one_in(12)
@pytest.mark.parametrize(("version", "mode"), CASES)
def test_after_a_kill(harness: Callable[[str], Harness], tmp_path: Path, version: str, mode: str) -> None:
    """The next start leaves what we say; what was killed has no false finding."""
    assert differences(harness(version), mode, SEED, tmp_path, killed=True) == []
