"""Holes in queues: query, inspect and verify name the same messages that consumers do not get."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.clients.holes import QueueView
from rmqtool.clients.queue_view import QueueViews
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.changed_rocksdb import changed, unit_key
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.verifying import verify

Damage = Callable[[Path], object]
GARBAGE = bytes(range(1, 21))  # a unit that counts as written, and leads far beyond the log
NEGATIVE = b"\xab" * 20  # one that does not


def units(first: int, count: int, data: bytes = bytes(20), size: int = 20) -> Damage:
    """Overwrite units, by their number in the queue."""

    def apply(queue: Path) -> None:
        for number in range(first, first + count):
            for file in sorted(queue.iterdir()):
                position = number * size - int(file.name)
                if 0 <= position < file.stat().st_size:
                    with file.open("r+b") as opened:
                        opened.seek(position)
                        opened.write(data[:size].ljust(size, b"\0"))

    return apply


def without(*numbers: int) -> Damage:
    """Remove files of the queue, by their number."""

    def apply(queue: Path) -> None:
        files = sorted(queue.iterdir())
        for number in numbers:
            files[number].unlink()

    return apply


HOLES: dict[str, Damage] = {
    "in the first file": units(8, 4),
    "in the last file": units(62, 2),
    "at the start": units(0, 3),
    "two": lambda queue: (units(8, 4)(queue), units(40, 2)(queue)),
    "at a file's end": units(29, 1),
    "up to the end": units(50, 16),
    "all of it": units(0, 90),
    "garbage": units(8, 4, GARBAGE),
    "garbage that ends it": units(8, 4, NEGATIVE),
    "garbage at the end": units(62, 4, NEGATIVE),
    "first file": without(0),
    "middle file": without(1),
    "last file": without(2),
    "last two files": without(1, 2),
    "no file": without(0, 1, 2),
    "no directory": shutil.rmtree,
}
"""Of a queue of 66 messages in files of 30 units."""
QUEUES = (("orders", 0), ("%LMQ%device-1", 0), ("telemetry", 1))
STORES = ("4.9.7-clean", "5.5.1-clean", "5.3.3-killed")


def view_of(store: Path, topic: str, queue_id: int) -> QueueView:
    return QueueViews(Snapshot(open_store(store))).of(topic, queue_id)


def unreachable(store: Path) -> dict[tuple[str, int], int]:
    """By queue, what verify counts."""
    clients = verify(store).clients
    assert clients is not None
    return {(queue.topic, queue.queue_id): queue.messages for queue in clients.unreachable.queues}


def seen(store: Path) -> dict[tuple[str, int], int]:
    """The same by the views of all queues."""
    snapshot = Snapshot(open_store(store))
    views = QueueViews(snapshot)
    names = {(queue.topic, queue.queue_id) for queue in snapshot.queues} | set(views.missing())
    return {name: view.unreachable for name in names if (view := views.of(*name)).unreachable}


@pytest.mark.slow
@pytest.mark.parametrize("hole", HOLES)
@pytest.mark.parametrize("name", STORES)
def test_as_verify(name: str, hole: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """What a start derives again is no hole."""
    store = copied(golden_store(name), tmp_path / "store")
    for topic, queue_id in QUEUES:
        HOLES[hole](store / "consumequeue" / topic / str(queue_id))
    assert seen(store) == unreachable(store)


BATCH_HOLES: dict[str, Damage] = {
    "in the first file": units(3, 2, size=46),
    "in the last file": units(12, 1, size=46),
    "first file": without(0),
    "last file": without(1),
    "garbage that ends it": units(3, 2, NEGATIVE * 3, size=46),
    "no directory": shutil.rmtree,
}


@pytest.mark.slow
@pytest.mark.parametrize("hole", BATCH_HOLES)
@pytest.mark.parametrize("name", ["5.3.3-clean", "5.5.1-clean"])
def test_batches_as_verify(name: str, hole: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    store = copied(golden_store(name), tmp_path / "store")
    BATCH_HOLES[hole](store / "batchconsumequeue" / "bulk-inner" / "0")
    assert seen(store) == unreachable(store) != {}


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [range(4, 6), range(3), range(15, 17), range(17)])
def test_rows_as_verify(numbers: range, golden_store: GoldenStore, tmp_path: Path) -> None:
    store = copied(golden_store("more/5.5.0-rocksdb"), tmp_path / "store")
    with changed(store / "consumequeue") as families:
        for number in numbers:
            for topic in ("orders", "%LMQ%alice"):
                del families["default"][unit_key(topic, 0, number)]
    assert seen(store) == unreachable(store) != {}
