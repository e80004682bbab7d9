"""Starts on queues that are written twice, into files and RocksDB: which rows are made, which are not, as predicted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.broker.prediction import QueueChange
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.consume_queues import queue_in
from rmqtool.store.queue_units import queue_range
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.changed_rocksdb import changed, end_value, max_key
from tests.copies import copied
from tests.real_broker.harness import GEOMETRY, Harness
from tests.verify.verifying import verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]
TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
LIGHT = {**TWICE, "combineCQUseRocksdbForLmq": "true"}
ALL_FILES = {"combineCQMaxExtraSearchCommitLogFiles": "1000000", "commitLogRecoverMaxNum": "1000000"}
QUEUE = "live", 0
SIZE = 18 << 16  # of a log, bytes


def database_of(root: Path) -> QueueDatabase:
    database = Snapshot(open_store(root)).database
    assert database is not None
    return database


def offsets_of(root: Path) -> list[int]:
    """Queue offsets that have a row."""
    offsets: list[int] = database_of(root).units(QUEUE, 0, 1 << 40).offsets.tolist()
    return offsets


def end_of(root: Path) -> int:
    """Where the row of the queue's end puts it."""
    last = database_of(root).lasts.get(QUEUE)
    return last.queue_offset + 1 if last else 0


def in_files(root: Path) -> tuple[int, int]:
    [queue] = [each for each in Snapshot(open_store(root)).queues if (each.topic, each.queue_id) == QUEUE]
    assert queue.database is None
    found = queue_range(queue, 0, Snapshot(open_store(root)).release)
    return found.min_offset, found.max_offset


def predicted(root: Path, version: str, settings: dict[str, str]) -> QueueChange | None:
    """What happens to the rows."""
    outcome = verify(root, version=version, conf=BrokerConf({**GEOMETRY, **settings}))
    assert outcome.start is not None
    assert outcome.start.refuses is None
    changes = [each for each in outcome.start.queues if each.in_rocksdb]
    lost = [each for each in outcome.findings if each.code == "start.rows-lost"]
    assert sum(each.count for each in lost) == sum(each.lost for each in changes)
    assert all(each.severity == "warning" for each in lost)
    assert len(changes) <= 1
    return changes[0] if changes else None


def rows_are(root: Path, before: int, change: QueueChange) -> bool:
    """Whether a queue of which `before` messages had rows has those that a start was predicted to make.

    A queue in files that fell far behind its log gets units out of place, and the rows are set to begin at its end:
    nobody reads those that were made, whose queue offsets are those of the log.
    """
    offsets, first = offsets_of(root), before + change.lost
    if change.min_offset == change.max_offset:
        return len(offsets) == before + change.dispatched
    return offsets == [*range(before), *range(first, first + change.dispatched)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(
    ("version", "settings", "all_files"),
    [("5.3.3", TWICE, {}), ("5.4.0", TWICE, ALL_FILES), ("5.5.0", LIGHT, ALL_FILES)],
)
def test_after_a_kill(
    harness: Callable[[str], Harness],
    tmp_path: Path,
    version: str,
    settings: dict[str, str],
    all_files: dict[str, str],
    flushed: bool,
) -> None:
    """Rows are made of the files that are scanned; the files of the queue have all messages."""
    broker, root = harness(version), tmp_path / "store"
    root.mkdir()
    if flushed:
        broker.append(root, 500, settings, 2000)
    before = len(offsets_of(root)) if flushed else 0
    broker.append_and_kill(root, SIZE, settings)
    change = predicted(root, version, settings)
    assert change is not None
    assert change.max_offset_before == before
    whole = copied(root, tmp_path / "whole")
    with broker.hold(root, 0, settings):
        pass
    assert end_of(root) == change.max_offset == in_files(root)[1]
    assert rows_are(root, before, change)
    if all_files:
        every = predicted(whole, version, {**settings, **all_files})
        assert every is not None
        is_searched = flushed or version != "5.5.0"  # since 5.5.0 not where there is no row
        assert (every.lost == 0) or not is_searched
        with broker.hold(whole, 0, {**settings, **all_files}):
            pass
        assert rows_are(whole, before, every)
        assert end_of(whole) == every.max_offset == in_files(whole)[1]


@pytest.mark.rare
@pytest.mark.parametrize(("version", "settings"), [("5.4.0", TWICE), ("5.5.0", LIGHT)])
def test_without_any_file_of_a_queue(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, settings: dict[str, str]
) -> None:
    """They are made again, as predicted, though there are rows of all messages."""
    broker, root = harness(version), tmp_path / "store"
    root.mkdir()
    broker.append(root, 500, settings, 2000)
    before = in_files(root)
    for path in [path for path in (root / "consumequeue").iterdir() if path.is_dir()]:
        shutil.rmtree(path)
    outcome = verify(root, version=version, conf=BrokerConf({**GEOMETRY, **settings}))
    assert outcome.start is not None
    ends = {(each.topic, each.queue_id): each.max_offset for each in outcome.start.queues if not each.in_rocksdb}
    with broker.hold(root, 0, settings):
        pass
    assert before[1] > 1
    assert (in_files(root), ends) == (before, {QUEUE: before[1]})


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("end", [3, 0])
@pytest.mark.parametrize(("version", "settings"), [("5.3.3", TWICE), ("5.4.0", TWICE), ("5.5.0", LIGHT)])
def test_rows_that_end_elsewhere(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, settings: dict[str, str], end: int
) -> None:
    """The combined store sets their end, and their beginning, to that of the files; before it they stay."""
    broker, root = harness(version), tmp_path / "store"
    root.mkdir()
    broker.append(root, 100, settings)
    count = in_files(root)[1]
    with changed(root / "consumequeue") as families:
        if end:
            families["offset"][max_key(*QUEUE)] = end_value(0, end - 1)
        else:
            families["offset"].delete(max_key(*QUEUE))
    change = predicted(root, version, settings)
    with broker.hold(root, 0, settings):
        pass
    assert in_files(root) == (0, count)
    if version == "5.3.3":
        assert change is None
        assert end_of(root) == end
        return
    assert change is not None
    assert (change.min_offset, change.max_offset, change.lost) == (count, count, count)
    assert end_of(root) == count
    loaded = queue_range(queue_in(database_of(root), *QUEUE), 0, Snapshot(open_store(root)).release)
    assert (loaded.min_offset, loaded.max_offset) == (count, count)
    with RocksDb(root / "consumequeue") as opened:
        [minimum] = [value for key, value in opened.rows("offset") if b"\x01live\x01min\x01" in key]
    assert minimum == end_value(0, count)
