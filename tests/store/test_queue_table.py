"""Queues as columns: each is given as it was listed, and found by its name."""

from __future__ import annotations

import os
import pickle
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from rmqtool.store.consume_queues import Kind, Queue, QueueTable, list_queues
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.unchanged import unchanged

KINDS: tuple[Kind, ...] = ("simple", "batch")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Queues with no, one and several files, batch queues, and what no broker writes."""
    sizes = {
        "consumequeue/a/0/00000000000000000000": 40,
        "consumequeue/a/1/00000000000000000160": 160,
        "consumequeue/a/1/00000000000000000320": 160,
        "consumequeue/a/1/00000000000000000480": 0,
        "consumequeue/a/10/00000000000000000000": 160,
        "consumequeue/b/0/x": 3,
        "consumequeue/b/0/00000000000000000000": 40,
        "consumequeue/b/00/00000000000000000000": 40,
        "consumequeue/b/1/sub/00000000000000000000": 40,
        "consumequeue/c/07/00000000000000000000": 40,
        "consumequeue/%RETRY%g/0/00000000000000000000": 40,
        "batchconsumequeue/a/0/00000000000000000000": 46,
        "batchconsumequeue/z/3/00000000000000000046": 46,
    }
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "consumequeue" / "a" / "9").mkdir()
    os.makedirs(os.fsencode(tmp_path) + b"/consumequeue/\xff/0")
    return tmp_path


def table_of(path: Path) -> QueueTable:
    with unchanged(path):
        return Snapshot(open_store(path)).queues


def listed(path: Path) -> list[Queue]:
    return [*list_queues(open_store(path))]


def test_each_queue_is_given_as_it_was_listed(store: Path) -> None:
    table, wanted = table_of(store), listed(store)
    assert [*table] == wanted
    assert [queue.files.strays for queue in table] == [queue.files.strays for queue in wanted]
    assert sum(bool(queue.files.strays) for queue in wanted) == 2
    assert len(table) == len(wanted) == 12
    assert [table[index] for index in range(-12, 12)] == wanted * 2
    assert table[2:5] == wanted[2:5]
    with pytest.raises(IndexError):
        table[12]
    assert table.filled == sum(bool(queue.files.files) for queue in wanted)
    assert [*pickle.loads(pickle.dumps(table))] == wanted


def test_a_relative_path_is_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store)
    assert [*table_of(Path())] == listed(Path())


def test_a_queue_is_found_by_its_directory(store: Path) -> None:
    """That is its number without zeros before it; one without files is as none."""
    table, root = table_of(store), open_store(store).root
    for kind, directory in zip(KINDS, ("consumequeue", "batchconsumequeue"), strict=True):
        for topic in ("a", "b", "c", "z", "", "%RETRY%g", "zz", os.fsdecode(b"\xff")):
            for queue_id in (0, 1, 3, 7, 9, 10, 11):
                path = root / directory / topic / str(queue_id)
                has_file = path.is_dir() and any(each.is_file() and each.name != "x" for each in path.iterdir())
                queue = table.find(kind, topic, queue_id)
                assert (queue is not None) == has_file, path
                assert queue is None or (queue.files.files[0].path.parent == path and queue.kind == kind)


def test_of_two_directories_of_one_queue_the_last_counts(store: Path) -> None:
    table = table_of(store)
    assert [table.key(index) for index in table.repeated] == [("simple", "b", 0)]
    index = table.index_of("simple", "b", 0)
    assert index == table.repeated[0] + 1
    assert table[index].files.files[0].path.parent.name == "00"
    keys = [table.key(index) for index in range(len(table))]
    assert [table.index_of(*key) for key in keys] == [len(keys) - 1 - keys[::-1].index(key) for key in keys]
    assert table.index_of("batch", "b", 0) is None
    assert table.index_of("simple", "a", 2) is None


def test_the_usual_size_is_that_of_most_files(store: Path) -> None:
    table = table_of(store)
    for kind in KINDS:
        of_kind = [queue for queue in listed(store) if queue.kind == kind]
        sizes = Counter(file.size for queue in of_kind for file in queue.files.files if file.size)
        assert table.usual_file_size(kind) == max(sizes, key=lambda size: (sizes[size], size))
        assert table.count_of(kind) == len(of_kind)
    shutil.rmtree(store / "batchconsumequeue")
    assert table_of(store).usual_file_size("batch") == 0


def test_queues_of_other_files_than_usual_are_named(store: Path) -> None:
    """Those with a file of another size or with strays are among them, usual ones are not; and each topic's first."""
    table, queues, sizes = table_of(store), listed(store), {"simple": 160, "batch": 46}
    named = {*table.not_all_of({"simple": 160, "batch": 46})}
    for index, queue in enumerate(queues):
        other = queue.files.strays or any(file.size != sizes[queue.kind] for file in queue.files.files)
        assert index in named or not other
    usual = {("simple", "a", 9), ("simple", "a", 10), ("batch", "a", 0), ("batch", "z", 3)}
    assert {(queue.kind, queue.topic, queue.queue_id) for queue in queues} >= usual
    assert not usual & {table.key(index) for index in named}
    topics = [(queue.kind, queue.topic) for queue in queues]
    assert [*table.firsts_of_topics] == [topics.index(topic) for topic in dict.fromkeys(topics)]


@pytest.mark.parametrize("name", ["4.9.7-shop", "more/5.3.3-rocksdb-twice", "more/5.5.0-rocksdb"])
def test_queues_of_real_stores(golden_store: GoldenStore, name: str) -> None:
    """Those in RocksDB as well."""
    path = golden_store(name)
    snapshot = Snapshot(open_store(path))
    in_files = [] if snapshot.store.reads_only_rocksdb else listed(path)
    assert [queue for queue in snapshot.queues if not queue.database] == in_files
    in_rocksdb = [(queue.topic, queue.queue_id) for queue in snapshot.queues if queue.database]
    names = {(queue.topic, queue.queue_id) for queue in in_files}
    assert in_rocksdb == sorted(set(snapshot.database.lasts if snapshot.database else ()) - names)
    assert bool(in_rocksdb) == (name == "more/5.5.0-rocksdb")
    assert all(queue.database is snapshot.database for queue in snapshot.queues if queue.database)
    assert snapshot.queues.filled == len(in_files) + len(in_rocksdb)


@pytest.mark.slow
def test_a_queue_with_one_file_takes_little(tmp_path: Path) -> None:
    """Its topic, and some numbers."""
    for number in range(500):
        path = tmp_path / "consumequeue" / f"topic-{number:03d}" / "0" / "00000000000000000000"
        path.parent.mkdir(parents=True)
        path.touch()
    table_of(tmp_path)
    tracemalloc.start()
    try:
        table = table_of(tmp_path)
        held = tracemalloc.get_traced_memory()[0]
        del table
        assert held - tracemalloc.get_traced_memory()[0] < 160 * 500
    finally:
        tracemalloc.stop()
