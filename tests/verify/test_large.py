"""Memory and descriptors stay bounded on a store with many queues and index units (`tests.verify.large` has more)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unchanged import unchanged
from tests.verify.large import MOST_MEMORY, make_large, measure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queues", "units", "most_memory"),
    [(2_000, 200_000, MOST_MEMORY // 2), pytest.param(10_000, 1_000_000, MOST_MEMORY, marks=pytest.mark.rare)],
)
def test_many_queues(tmp_path: Path, queues: int, units: int, most_memory: int) -> None:
    """More queues than a process may have files open, and every one is looked at."""
    store = make_large(tmp_path / "store", queues, units)
    with unchanged(store):
        peak, document = measure(store)
    assert document["result"]["verdict"] == "clean"
    checked = {check["code"]: check["checked"] for check in document["result"]["checks"]}
    assert checked["consumequeue.file-size"] == queues
    assert checked["index.missing"] == units
    assert peak < most_memory
