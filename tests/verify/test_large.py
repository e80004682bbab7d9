"""Memory and descriptors stay bounded on a store with many queues and index units (`tests.verify.large` has more)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unchanged import unchanged
from tests.verify.large import MOST_MEMORY, make_large, measure

QUEUES = 10_000
UNITS = 1_000_000


@pytest.mark.slow
def test_many_queues(tmp_path: Path) -> None:
    """More queues than a process may have files open, and every one is looked at."""
    store = make_large(tmp_path / "store", QUEUES, UNITS)
    with unchanged(store):
        peak, document = measure(store)
    assert document["result"]["verdict"] == "clean"
    checked = {check["code"]: check["checked"] for check in document["result"]["checks"]}
    assert checked["consumequeue.file-size"] == QUEUES
    assert checked["index.missing"] == UNITS
    assert peak < MOST_MEMORY
