"""Topics, groups and offsets in RocksDB of real brokers: sound ones are clean, and lost offsets are found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.findings.finding import Finding
from tests.changed_rocksdb import add_family, drop_family
from tests.conftest import GoldenStore
from tests.real_broker.harness import Harness, HarnessError
from tests.real_broker.random_rocksdb import settings_of
from tests.verify.verifying import codes_of, verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]
SEED = 7
MESSAGES = 60
RETRYING = "2 groups consumed: group-1, group-1_topic-0"


def lost_in(root: Path, version: str) -> list[Finding]:
    return [finding for finding in verify(root, version=version).findings if finding.code == "config.missing"]


def take_offsets(root: Path, mode: str) -> tuple[str, str]:
    """Take the committed offsets away; where they were, and how that is said after the next start of a broker."""
    if mode == "single":
        drop_family(root / "config" / "metadata", "consumerOffset")
        return "config/metadata", f"it has no column family consumerOffset, and {RETRYING}"
    shutil.rmtree(root / "config" / "consumerOffsets")
    return "config/consumerOffsets", f"it is empty, and {RETRYING}"


@pytest.mark.rare
@pytest.mark.parametrize(("version", "mode"), [("5.3.3", "rocksdb"), ("5.4.0", "single"), ("5.5.0", "rocksdb")])
def test_lost_offsets(harness: Callable[[str], Harness], tmp_path: Path, version: str, mode: str) -> None:
    """All groups show that a database is gone; of what a broker makes when it starts, only those with retries."""
    broker, settings, root = harness(version), settings_of(version, mode), tmp_path / "store"
    root.mkdir()
    facts = broker.write_random(root, settings, SEED, MESSAGES)
    assert verify(root, version=version).verdict == "clean"
    place, empty = take_offsets(root, mode)
    [gone] = lost_in(root, version)
    assert (gone.severity, gone.file) == ("error", place)
    if mode == "single":
        assert gone.message == empty
    else:
        groups = {group for group in facts["groups"] if group.startswith("group-")}
        assert gone.message.startswith(f"the database is not there, and {len(groups) + 1} groups consumed: ")
    broker.write_random(root, settings, SEED, 0)
    [gone] = lost_in(root, version)
    assert (gone.file, gone.message) == (place, empty)


@pytest.mark.parametrize(("version", "mode"), [("5.3.3", "rocksdb"), ("5.4.0", "single")])
def test_a_broker_that_is_killed_at_once(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, mode: str
) -> None:
    """Offsets that are not there are a doubt, and no finding."""
    root = tmp_path / "store"
    root.mkdir()
    harness(version).write_random(root, settings_of(version, mode), SEED, MESSAGES, killed=True)
    assert lost_in(root, version) == []
    take_offsets(root, mode)
    outcome = verify(root, version=version)
    assert [finding for finding in outcome.findings if finding.code == "config.missing"] == []
    assert "committed offsets" in {gap.what for gap in outcome.gaps}


def test_a_column_family_that_no_broker_knows(
    harness: Callable[[str], Harness], unpacked: GoldenStore, tmp_path: Path
) -> None:
    """The broker does not load the queues, and verify says so."""
    root = Path(shutil.copytree(unpacked("more/5.5.0-rocksdb"), tmp_path / "store"))
    settings = settings_of("5.5.0", "rocksdb")
    add_family(root / "consumequeue", "foreign")
    with pytest.raises(HarnessError, match="refuses to load"), harness("5.5.0").hold(root, 0, settings):
        pass
    assert "consumequeue.database" in codes_of(verify(root, version="5.5.0"))
