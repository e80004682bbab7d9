"""Predicted starts against the real store classes, today: a few damaged stores of each version, one JVM for each."""

from collections.abc import Callable

import pytest

from tests.real_broker.harness import VERSIONS, Harness
from tests.real_broker.starts import run

pytestmark = [pytest.mark.broker, pytest.mark.slow]
_SEEDS = range(1000, 1016)


@pytest.mark.parametrize("version", VERSIONS)
def test_predictions_hold(harness: Callable[[str], Harness], version: str) -> None:
    """Nothing that the broker does is other than predicted; `make starts` judges hundreds."""
    harness(version)
    found = [one for _, disagreements in run(version, _SEEDS) for one in disagreements]
    assert found == []
