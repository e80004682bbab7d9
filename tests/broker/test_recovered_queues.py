"""Queues after their own recovery, most of them as columns, against the same of each queue by itself."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from rmqtool.base.files import UNLIMITED
from rmqtool.broker.load import load
from rmqtool.broker.queue_recovery import (
    KnownQueues,
    QueueKey,
    RecoveredQueue,
    RecoveredQueues,
    max_physical,
    recover_queue,
    wrote,
)
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE as BATCH_DTYPE
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import parse_version
from rmqtool.store.consume_queues import QueueTable
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.unchanged import unchanged

UNITS = 8
SIZE = UNITS * 20
FAR = (1 << 63) - 200
EDGE = 1 << 62
"""Offsets that no log reaches."""


def units(*offsets: int) -> bytes:
    return b"".join(build_unit(offset, 100, 0) for offset in offsets).ljust(SIZE, b"\0")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Queues with one file and several, full and empty ones, with nonsense, with files that are not loaded."""
    files = {
        "one/0": [units(100, 200)],
        "one/1": [units(*range(1000, 1800, 100))],
        "one/2": [units()],
        "one/3": [units(900, 5000, 300)],  # the last is not the greatest
        "two/0": [units(*range(0, 800, 100)), units(800)],
        "two/1": [units(*range(0, 800, 100)), units()],
        "two/2": [units(7), units(900)],  # the second is deleted
        "two/3": [units(*range(0, 800, 100)), b"short"],  # older brokers refuse to start, newer ones leave it out
        "two/4": [units(*range(0, 800, 100)), b""],
        "far/0": [units(FAR)],
        "empty/0": [],
        "twice/0": [units(400)],
        "twice/00": [units(600)],
        "again/0": [units()],
        "again/00": [units(600)],
        "edge/0": [units(EDGE)],
    }
    for name, queue in files.items():
        directory = tmp_path / "consumequeue" / name
        directory.mkdir(parents=True)
        for index, data in enumerate(queue):
            (directory / file_name(index * SIZE)).write_bytes(data)
    moved = tmp_path / "consumequeue" / "moved" / "0"  # where the position in the last file comes out as 0
    moved.mkdir(parents=True)
    (moved / file_name(SIZE - 40)).write_bytes(units(100, 200))
    batches = tmp_path / "batchconsumequeue" / "batches" / "0"
    batches.mkdir(parents=True)
    (batches / file_name(0)).write_bytes(bytes(4 * BATCH_DTYPE.itemsize))
    unit = np.ones(1, BATCH_DTYPE)
    (batches.parent / "1").mkdir()
    (batches.parent / "1" / file_name(0)).write_bytes(unit.tobytes().ljust(4 * unit.nbytes, b"\0"))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / file_name(0)).write_bytes(bytes(1 << 12))
    return tmp_path


def recovered(path: Path, version: str) -> tuple[RecoveredQueues, dict[QueueKey, RecoveredQueue], RecoveryRules]:
    """The queues that a release has loaded, and what its rules make of each of them."""
    with unchanged(path):
        snapshot = Snapshot(open_store(path))
        rules = RecoveryRules.of(parse_version(version), snapshot.store.conf)
        loaded = load(snapshot, rules)
        each = {}
        for index, queue in enumerate([*snapshot.queues][: loaded.queue_count]):
            found = recover_queue(loaded.with_fewer_files.get(index, queue))
            each[queue.kind, queue.topic, queue.queue_id] = found
        return KnownQueues(snapshot.queues).of(loaded, UNLIMITED), each, rules


@pytest.mark.parametrize("version", ["4.4.0", "4.9.2", "4.9.7", "5.3.3"])
def test_all_is_as_the_recovery_of_each_queue_leaves_it(store: Path, version: str) -> None:
    found, each, rules = recovered(store, version)
    assert {key: found.get(key) for key in found.keys()} == each  # noqa: SIM118 - no mapping
    assert found.topics == {topic for _, topic, _ in each}
    assert found.get(("simple", "none", 0)) is None
    assert [*found.deleting()] == [key for key, one in each.items() if one.deleted]
    assert [*found.without_unit()] == [key for key, one in each.items() if one.files and not wrote(one)]
    for offset in (0, 200, 201, 400, 401, 800, 1700, 1701, 5000, 5001, EDGE, EDGE + 1, FAR, FAR + 1):
        reaching = [key for key, one in each.items() if not wrote(one) or one.highest >= offset]
        assert [*found.reaching(offset)] == reaching, offset
    keys = [*each]
    some: list[list[QueueKey]] = [[], keys, keys[:3], keys[5:], [("simple", "far", 0)], [("simple", "none", 0)]]
    for but in some:
        ends = [max_physical(one.last, one.queue.kind, rules) for key, one in each.items() if key not in but]
        assert found.max_physical(rules, but=but) == max(ends, default=-1)


@pytest.mark.parametrize(("name", "count"), [("empty", 0), ("one", 40), ("two", SIZE), ("moved", 0)])
def test_how_much_is_written_in_the_last_file(store: Path, name: str, count: int) -> None:
    """As a cut counts it: from multiples of the file size (`MappedFileQueue#truncateDirtyFiles`)."""
    queue = recovered(store, "4.9.7")[0].get(("simple", name, 3 if name == "two" else 0))
    assert queue is not None
    assert wrote(queue) == count


def test_queues_with_fewer_files_are_known_with_and_without_them(store: Path) -> None:
    found, each, _ = recovered(store, "4.9.2")
    fewer = [*found.with_fewer_files()]
    assert fewer == [("simple", "two", 3), ("simple", "two", 4)]
    for key in fewer:
        queue = found.on_disk(key)
        assert queue is not None
        assert len(queue.files.files) == 2
        assert len(each[key].queue.files.files) == 1


def test_an_old_release_loads_no_batches(store: Path) -> None:
    assert recovered(store, "4.9.7")[0].on_disk(("batch", "batches", 0)) is None
    assert recovered(store, "5.3.3")[0].on_disk(("batch", "batches", 0)) is not None
    snapshot = Snapshot(open_store(store))
    known = KnownQueues(snapshot.queues)
    for version, count in (("5.3.3", 1), ("4.9.7", 0)):  # also where a newer one has found them before
        loaded = load(snapshot, RecoveryRules.of(parse_version(version), snapshot.store.conf))
        assert sum(kind == "batch" for kind, *_ in known.of(loaded, UNLIMITED).keys()) == 2 * count  # noqa: SIM118 - no mapping


def test_what_one_release_has_found_is_not_read_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot(open_store(store))
    known = KnownQueues(snapshot.queues)
    read: list[str] = []

    def reading(queue: object, opened: object) -> RecoveredQueue:
        read.append("queue")
        return recover_queue(queue, opened)  # type: ignore[arg-type]

    monkeypatch.setattr("rmqtool.broker.queue_recovery.recover_queue", reading)
    loaded = load(snapshot, RecoveryRules.of(parse_version("5.3.3"), snapshot.store.conf))
    known.of(loaded, UNLIMITED)
    assert len(read) == len(snapshot.queues)
    known.of(loaded, UNLIMITED)
    assert len(read) == len(snapshot.queues)


@pytest.mark.slow
def test_a_usual_queue_takes_little(tmp_path: Path) -> None:
    for number in range(500):
        path = tmp_path / "consumequeue" / f"topic-{number:03d}" / "0" / file_name(0)
        path.parent.mkdir(parents=True)
        path.write_bytes(units(100, 200))
    queues: QueueTable = Snapshot(open_store(tmp_path)).queues
    tracemalloc.start()
    try:
        known = KnownQueues(queues)
        for index, queue in enumerate(queues):
            known.add(index, recover_queue(queue))
        held = tracemalloc.get_traced_memory()[0]
        del known, queue
        assert held - tracemalloc.get_traced_memory()[0] < 60 * 500
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("count", "farthest"),
    [(0, 0), (1, 0), (199, 0), (200, 7), (201, 0), (999, 700), (1000, 250), (1001, 0), (4999, 4998)],
)
def test_a_file_of_many_units(tmp_path: Path, count: int, farthest: int) -> None:
    """All are read, in pieces: any of them may point farthest, and the end is after the last."""
    directory = tmp_path / "consumequeue" / "many" / "0"
    directory.mkdir(parents=True)
    offsets = [100 * number for number in range(count)]
    offsets[farthest : farthest + 1] = [FAR] if count else []
    data = b"".join(build_unit(offset, 100, 0) for offset in offsets)
    (directory / file_name(0)).write_bytes(data.ljust(5000 * 20, b"\0"))
    (tmp_path / "commitlog").mkdir()
    (queue,) = Snapshot(open_store(tmp_path)).queues
    found = recover_queue(queue)
    assert (found.written, found.highest) == (count, FAR if count else -1)
    assert (found.last is not None and int(found.last["physical_offset"])) == (count > 0 and offsets[-1])
