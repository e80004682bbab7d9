"""Random stores of real brokers, with and without RocksDB: queues, units, pulls, keys and offsets as these answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.real_broker.harness import Harness
from tests.real_broker.predicted_ranges import range_on_disk
from tests.real_broker.random_rocksdb import VERSIONS, differences, modes_of

pytestmark = [pytest.mark.broker, pytest.mark.slow]
CASES = [(version, mode) for version in VERSIONS for mode in modes_of(version)]
SEED = 7
SEED_OF_LATE_ROWS = 4
"""Of which the search for the minimum of the batch queue's rows does not find the first."""


@pytest.mark.one_in(12)
@pytest.mark.parametrize(("version", "mode"), CASES[::-1])
def test_a_random_store(harness: Callable[[str], Harness], tmp_path: Path, version: str, mode: str) -> None:
    """Of each mode that a release has; `make randoms` writes more of them."""
    assert differences(harness(version), mode, SEED, tmp_path) == []


@pytest.mark.rare
@pytest.mark.one_in(12)
@pytest.mark.parametrize(("version", "mode"), CASES)
def test_after_a_kill(harness: Callable[[str], Harness], tmp_path: Path, version: str, mode: str) -> None:
    """The next start leaves what we say; what was killed has no false finding."""
    assert differences(harness(version), mode, SEED, tmp_path, killed=True) == []


@pytest.mark.rare
@pytest.mark.one_in(4)
def test_batches_written_twice(harness: Callable[[str], Harness], tmp_path: Path) -> None:
    """Files and rows of a batch queue have ranges of their own: a broker answers with those of what it reads."""
    broker, root = harness("5.3.3"), tmp_path / "store"
    assert differences(broker, "twice", SEED_OF_LATE_ROWS, tmp_path, killed=True) == []
    snapshot = Snapshot(open_store(root), parse_version(broker.version))
    in_files, in_rows = (range_on_disk(snapshot, ("batches", 0), in_rocksdb=each) for each in (False, True))
    assert in_rows != in_files
    facts = broker.write_random(root, {"storeType": "defaultRocksDB"}, SEED_OF_LATE_ROWS, 0)
    [answer] = [(each["min_offset"], each["max_offset"]) for each in facts["queues"] if each["topic"] == "batches"]
    assert answer == in_rows
