"""Stores that real brokers wrote, derived again from their logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.rebuild.apply import write_output
from rmqtool.rebuild.options import Part
from rmqtool.rebuild.source import open_source
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.rebuild.plans import INDEX, QUEUES, files, options, plan

NAMES = stores.names()
SOUND = [name for name in NAMES if "-killed" not in name]
WHOLE = [name for name in SOUND if "-trimmed" not in name and "-shop" not in name]
BEHIND = {"4.9.7-killed": 1, "5.3.3-killed": 5, "5.5.1-killed": 8}
"""Queues that a kill left behind the log, of which a start would derive the last unit again."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SOUND)
def test_queues_are_those_of_the_broker(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """Consume queues and batch consume queues, byte for byte, with the units that retention has left."""
    root = golden_store(name)
    write_output(open_source(open_store(root), options(name, QUEUES)), tmp_path)

    assert files(tmp_path, ".") == files(root, "consumequeue", "batchconsumequeue")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", WHOLE)
def test_queues_in_the_brokers_own_order(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """From the log alone, as a broker that begins with nothing: the same bytes where nothing was deleted."""
    root = golden_store(name)
    write_output(open_source(open_store(root), options(name, QUEUES, "broker")), tmp_path)

    assert files(tmp_path, ".") == files(root, "consumequeue", "batchconsumequeue")


@pytest.mark.parametrize("name", WHOLE)
def test_index_files_are_those_of_the_broker(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """Header, slots, chains, entries and times, byte for byte; only their names are ours."""
    root = golden_store(name)
    write_output(open_source(open_store(root), options(name, INDEX)), tmp_path)

    ours, theirs = files(tmp_path, "."), files(root, "index")
    assert [ours[path] for path in sorted(ours)] == [theirs[path] for path in sorted(theirs)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_to_be_done_in_a_sound_store(golden_store: GoldenStore, name: str) -> None:
    """Also after retention, when old units stand before those of the log."""
    found = plan(name, golden_store(name), QUEUES)

    assert found.is_empty
    assert not found.is_lossy
    assert found.backup_bytes == 0
    assert all(queue.action == "keep" for queue in found.queues)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_killed_stores_lack_what_a_start_adds(golden_store: GoldenStore, name: str) -> None:
    """Nothing is dropped or changed; a queue that the kill left behind gets its last units."""
    found = plan(name, golden_store(name), QUEUES)

    changed = found.changed_queues
    assert len(changed) == BEHIND.get(name, 0)
    assert all(queue.difference.added and not queue.difference.dropped for queue in changed)
    assert not any(queue.difference.changed for queue in found.queues)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("5.5", "4.4.0"))])
def test_oracle_agrees_with_the_ranges(golden_store: GoldenStore, name: str) -> None:
    """Minimum and maximum of each queue are those that the release says after a start."""
    told = {
        (queue["kind"], queue["topic"], queue["queue_id"]): queue
        for queue in stores.oracle(name)["recovered"]["queues"]
    }
    for queue in plan(name, golden_store(name), QUEUES).queues:
        oracle = told[queue.kind, queue.name.topic, queue.name.queue_id]
        assert queue.max_offset == oracle["max_offset"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-clean", "5.5.0-clean"])
def test_same_log_same_tree(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """No clock and no chance: bytes, names and times of two runs are equal."""
    root = golden_store(name)
    for number in ("one", "two"):
        both: frozenset[Part] = frozenset(["queues", "index"])
        write_output(open_source(open_store(root), options(name, both)), tmp_path / number)

    assert files(tmp_path / "one", ".") == files(tmp_path / "two", ".")
    assert times(tmp_path / "one") == times(tmp_path / "two")


def times(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_trees_are_those_of_an_empty_store(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """Without any queue the default and the broker's own order give the same, whatever the sizes came from."""
    root = golden_store(name)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "commitlog").symlink_to(root / "commitlog")
    (bare / "config").symlink_to(root / "config")
    for order in ("stored", "broker"):
        write_output(open_source(open_store(bare), options(name, QUEUES, order)), tmp_path / order)

    assert files(tmp_path / "stored", ".") == files(tmp_path / "broker", ".")
