"""Holes in queues: query, inspect and verify name the same messages that consumers do not get."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool import open as rmqtool_open
from rmqtool.clients.queue_view import QueueView, QueueViews
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.changed_rocksdb import changed, unit_key
from tests.commands.running import inspect, query, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.query.making import StoreMaker
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


def _stores_with_holes() -> Iterator[Any]:
    """Each hole in a store that was stopped or in one that was killed; the other one of both is rare."""
    for number, hole in enumerate(HOLES):
        for name in STORES:
            is_usual = name.endswith("-killed") == bool(number % 2)
            yield pytest.param(name, hole, marks=() if is_usual else pytest.mark.rare)


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "hole"), list(_stores_with_holes()))
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


ORDERS = ("--topic", "orders", "--queue", "0")
SHOWN = {
    # entry, entries, messages past, unreachable, what a group at 33 does not get of it
    "in the first file": (8, 4, 54, 58, 33),
    "in the last file": (62, 2, 2, 4, 4),
    "up to the end": (50, 16, 0, 16, 16),
    "garbage that ends it": (8, 4, 54, 58, 33),
    "last file": (60, 6, 0, 6, 6),
    "no directory": (0, 66, 0, 66, 33),
}


@pytest.fixture(params=SHOWN)
def holed(
    request: pytest.FixtureRequest, golden_store: GoldenStore, tmp_path: Path
) -> tuple[Path, tuple[int, int, int, int, int]]:
    """A store with a hole in queue 0 of orders."""
    store = copied(golden_store("5.5.1-clean"), tmp_path / "store")
    HOLES[request.param](store / "consumequeue" / "orders" / "0")
    return store, SHOWN[request.param]


@pytest.mark.one_in(2)
@pytest.mark.slow
def test_in_json(holed: tuple[Path, tuple[int, int, int, int, int]]) -> None:
    store, (first, entries, past, unreachable, unread) = holed
    hole = {
        "queue_offset": first, "entries": entries, "messages_past": past, "unreachable": unreachable,
        "last_queue_offset": 65, "ends_queue": True,
    }  # fmt: skip
    [line] = [
        each
        for each in query(store, "--group", "middle", "--json").lines
        if (each["topic"], each["queue_id"]) == ("orders", 0)
    ]
    assert (line["hole"], line["unreachable"]) == (hole, unread)
    assert line["state"] in ("hole", "no-queue")
    assert line["lag"] in (first - 33, None)
    [answer] = query(store, "--pull", *ORDERS, "--queue-offset", str(first), "--json").lines
    assert (answer["hole"], answer["messages"]) == (hole, [])
    [message] = query(store, *ORDERS, "--queue-offset", "65", "--trace", "--json").lines
    assert (message["topic"], message["queue_offset"]) == ("orders", 65)
    assert message["places"]["consume_queue"]["hole"] == hole
    document = json.loads(inspect(store, "--json").out)["result"]
    found = {(each["group"], each["topic"], each["queue_id"]): each["unreachable"] for each in document["consumers"]}
    assert {name: count for name, count in found.items() if count} == {
        ("middle", "orders", 0): unread, ("behind", "orders", 0): unreachable
    }  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.slow
def test_in_text(holed: tuple[Path, tuple[int, int, int, int, int]]) -> None:
    """Each answer names the hole, how many messages are out of reach, and the repair."""
    store, (first, entries, past, unreachable, unread) = holed
    offsets = f" (queue offsets {first} to 65)" if past else ""
    told = f"queue entries {first} to {first + entries - 1} are missing: {unreachable} messages of the log{offsets}"
    repair = f"repair: rmqtool rebuild-cq {store} --topic orders --queue 0"
    group = query(store, "--group", "middle").out
    assert told in group
    assert repair in group
    pull = query(store, "--pull", *ORDERS, "--queue-offset", str(first))
    assert told in pull.err
    assert repair in pull.err
    assert f"the consumer does not get {unreachable} of the log's messages" in pull.out
    trace = query(store, *ORDERS, "--queue-offset", "65", "--trace")
    assert repair in trace.err
    assert told in trace.out
    assert "beyond the queue's end" not in trace.err
    seen = inspect(store).out
    assert f"orders, queue 0: {told} are out of consumers' reach" in seen
    assert f"{unread} out of reach" in seen
    assert inspect(store, "--format", "nagios").status == 2
    metrics = inspect(store, "--format", "openmetrics").out
    assert (
        f'topic="orders",queue_id="0"}} {unreachable}\n' in metrics.partition("rmqtool_queue_unreachable_messages")[2]
    )


def test_only_the_entries_of_an_earlier_file(tmp_path: Path) -> None:
    """The recovery reads the last three files: what comes after the hole is consumed."""
    made = StoreMaker()
    for _ in range(150):
        made.add()
    snapshot = made.snapshot(tmp_path)
    units(8, 4)(tmp_path / "consumequeue" / "orders" / "0")
    [hole] = QueueViews(snapshot).of("orders", 0).holes
    assert (hole.queue_offset, hole.entries, hole.messages, hole.ends_queue) == (8, 4, 4, False)
    assert hole.told == "queue entries 8 to 11 are missing: 4 messages of the log are out of consumers' reach"
    assert [hole.unread_from(offset) for offset in (0, 8, 10, 12)] == [4, 4, 2, 0]


@pytest.mark.slow
def test_a_start_that_derives(golden_store: GoldenStore) -> None:
    """Messages that a killed broker has not dispatched are no hole: they count as lag."""
    store = golden_store("5.5.1-killed")
    view = view_of(store, "orders", 0)
    assert (view.holes, view.derived) == ((), 1)
    lines = [line for line in query(store, "--group", "behind", "--json").lines if line["topic"] == "orders"]
    assert {(line["state"], line["lag"] - line["max_offset"] + line["committed_offset"]) for line in lines} == {
        ("ok", 1)
    }
    assert {(line["hole"], line["after_next_start"]) for line in lines} == {(None, 1)}


@pytest.mark.parametrize("name", ["4.9.7-trimmed", "5.5.1-clean", "more/5.5.0-rocksdb", "5.5.1-trimmed"])
def test_sound_stores(name: str, golden_store: GoldenStore) -> None:
    assert seen(golden_store(name)) == {}


@pytest.mark.slow
def test_what_waits_past_a_hole(golden_store: GoldenStore, tmp_path: Path) -> None:
    """`pending` names messages that their queues do not lead to: of a level, and of a retry queue that is gone."""
    store = copied(golden_store("5.5.1-clean"), tmp_path / "store")
    units(0, 1)(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "3")
    shutil.rmtree(store / "consumequeue" / "%RETRY%billing")
    notes = {
        (note["what"], note["why"]) for note in rmqtool("pending", store, "--json").document["result"]["not_looked_at"]
    }
    assert notes == {
        (
            "2 messages of SCHEDULE_TOPIC_XXXX, queue 3",
            "queue entry 0 is missing: 2 messages of the log (queue offsets 0 to 1) are out of consumers' reach",
        ),
        (
            "16 messages of %RETRY%billing, queue 0",
            "queue entries 0 to 15 are missing: 16 messages of the log are out of consumers' reach",
        ),
    }


@pytest.mark.slow
def test_retries_that_were_consumed(golden_store: GoldenStore, tmp_path: Path) -> None:
    """They do not count as to be retried, and the next message is that of the queue with the largest lag."""
    store = copied(golden_store("5.5.1-clean"), tmp_path / "store")
    command = query(store, "--group", "billing").err
    assert "--topic %RETRY%billing --queue 0 --queue-offset 0 --trace" in command
    [before] = [each for each in inspect(store, "--json").document["result"]["groups"] if each["group"] == "billing"]
    path = store / "config" / "consumerOffset.json"
    content = path.read_text()
    table = content.index('"offsetTable":{') + len('"offsetTable":{')
    path.write_text(f'{content[:table]}"%RETRY%billing@billing":{{0:12}},{content[table:]}')
    [after] = [each for each in inspect(store, "--json").document["result"]["groups"] if each["group"] == "billing"]
    assert (before["retry_messages"], after["retry_messages"]) == (16, 4)


def test_offsets_in_python(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = copied(golden_store("5.5.1-clean"), tmp_path / "store")
    units(8, 4)(store / "consumequeue" / "orders" / "0")
    found = {(each.group, each.topic, each.queue_id): each for each in rmqtool_open(store).consumer_offsets}
    middle = found["middle", "orders", 0]
    assert (middle.lag, middle.unreachable) == (8 - 33, 33)
    assert found["middle", "orders", 1].unreachable == 0
