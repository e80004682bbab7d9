"""The cleaner of every release deletes, file for file and run for run, what rmqtool predicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.cleaning import compare
from tests.broker.harness import VERSIONS, Harness

pytestmark = pytest.mark.broker

SAMPLE = 12  # of each release; `make cleaner` compares more


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cleaner_does_what_is_predicted(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Files that go, the log's minimum and every queue's minimum, after each of up to four runs."""
    outcome = compare(harness(version), range(SAMPLE), tmp_path)
    assert outcome.differences == []
    assert outcome.gone["commitlog"] > SAMPLE / 2
    assert outcome.gone["consumequeue"] > SAMPLE / 2
    assert outcome.runs > outcome.deleting_runs
