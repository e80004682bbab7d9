"""Holes of a queue: what each takes from a group at an offset, how it reads, and what a start leaves of it."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rmqtool.base.errors import UnreadableError
from rmqtool.base.mapped_files import MappedFiles
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.clients.queue_view import (
    SAMPLE_BYTES,
    LoggedMessages,
    LogReader,
    QueueHole,
    QueueView,
    QueueViews,
    _without,
)
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, PRE_BLANK_MESSAGE_SIZE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import INNER_BATCH
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.store.lock import Holder
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME, LogBuilder, message
from tests.changed_rocksdb import changed, end_value, min_key, unit_key, unit_value, write_queues
from tests.query import making
from tests.query.making import StoreMaker

HOLE = QueueHole(10, 4, 3, 0, 13, ends_queue=False)
"""Entries 10 to 13, of which the log has three messages."""
END = QueueHole(20, 2, 6, 4, 25, ends_queue=True)
"""The queue ends before entries 20 and 21; the log has both messages and four past them."""
BEGAN_AGAIN = QueueHole(5, 1, 3, 0, 5, ends_queue=True)
"""A queue whose messages have fewer queue offsets than they are."""


@pytest.mark.parametrize(
    ("hole", "committed", "unread"),
    [
        (HOLE, 0, 3), (HOLE, 10, 3), (HOLE, 11, 3), (HOLE, 12, 2), (HOLE, 13, 1), (HOLE, 14, 0), (HOLE, 99, 0),
        (END, 20, 6), (END, 21, 5), (END, 25, 1), (END, 26, 0), (BEGAN_AGAIN, 5, 3), (BEGAN_AGAIN, 6, 0),
    ],
)  # fmt: skip
def test_what_a_group_has_still_to_get(hole: QueueHole, committed: int, unread: int) -> None:
    """As many as are left of the hole, of which some may have no message."""
    assert hole.unread_from(committed) == unread


def test_a_view_sums_its_holes() -> None:
    view = QueueView((HOLE, END))
    assert (view.unreachable, view.end) == (9, END)
    assert QueueView((HOLE,)).end is None
    found = [view.hole_at(offset) for offset in (9, 10, 13, 14, 20, 25, 26)]
    assert found == [None, HOLE, HOLE, None, END, END, None]
    assert [view.from_offset(offset) for offset in (0, 13, 14, 26)] == [(HOLE, 9), (HOLE, 7), (END, 6), (END, 0)]
    assert QueueView((HOLE,)).from_offset(14) == (None, 0)


@pytest.mark.parametrize(
    ("hole", "told"),
    [
        (HOLE, "queue entries 10 to 13 are missing: 3 messages of the log are"),
        (END, "queue entries 20 to 21 are missing: 6 messages of the log (queue offsets 20 to 25) are"),
        (QueueHole(7, 1, 1, 0, 7, ends_queue=False), "queue entry 7 is missing: 1 message of the log is"),
        (
            QueueHole(7, 0, 2, 2, 8, ends_queue=True),
            "the queue ends before entry 7: 2 messages of the log (queue offsets 7 to 8) are",
        ),
    ],
)
def test_a_hole_in_words(hole: QueueHole, told: str) -> None:
    assert hole.told == f"{told} out of consumers' reach"


@pytest.mark.parametrize(
    ("derived", "left"),
    [
        (1, QueueHole(20, 2, 5, 3, 24, ends_queue=True)),
        (4, QueueHole(20, 2, 2, 0, 21, ends_queue=True)),
        (5, QueueHole(20, 1, 1, 0, 20, ends_queue=True)),
    ],
)
def test_a_start_derives_the_last_messages(derived: int, left: QueueHole) -> None:
    assert _without(END, derived) == left


def test_messages_of_the_log_by_offset() -> None:
    logged = LoggedMessages(np.array([4, 5, 8]), np.array([1, 3, 1]), np.array([100, 200, 300]))
    assert logged.behind(200).queue_offsets.tolist() == [8]
    assert logged.behind(99).queue_offsets.tolist() == [4, 5, 8]
    assert logged.within(4, 8).physical_offsets.tolist() == [100, 200]
    assert logged.within(5, 9).counts.tolist() == [3, 1]


@pytest.fixture
def made() -> StoreMaker:
    """Five files of thirty entries of one queue."""
    store = StoreMaker()
    for _ in range(150):
        store.add()
    return store


SIZE = len(message())
LEAD_NOWHERE = build_unit(1 << 30, SIZE, 0)
DERIVES_NOTHING = Version(5, 3, 1)
"""A start of it after a clean stop."""


def written(made: StoreMaker, root: Path, version: Version = DERIVES_NOTHING) -> Snapshot:
    return Snapshot(open_store(made.write(root)), version)


def overwrite(store: Path, number: int, data: bytes) -> None:
    """Write units of the queue from a number on, in one file."""
    file, at = divmod(number * 20, making.QUEUE_FILE)
    with (store / "consumequeue" / "orders" / "0" / file_name(file * making.QUEUE_FILE)).open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def holes(snapshot: Snapshot, most: int = SAMPLE_BYTES, topic: str = "orders", first: int = 0) -> list[QueueHole]:
    return [*QueueViews(snapshot, most).of(topic, 0, first).holes]


def test_a_queue_that_is_missing(made: StoreMaker, tmp_path: Path) -> None:
    """All of its messages; where it began again it has fewer queue offsets than messages."""
    for number in (5, 6, 0):
        made.log.add(topic="carts", queue_offset=number)
    for number in (7, 8):
        made.log.add(topic="bills", queue_offset=number)
    made.log.add(topic="rates")
    snapshot = written(made, tmp_path)
    assert holes(snapshot, topic="rates") == [QueueHole(0, 1, 1, 0, 0, ends_queue=True)]
    assert holes(snapshot, topic="bills") == [QueueHole(7, 2, 2, 0, 8, ends_queue=True)]
    assert holes(snapshot, topic="carts") == [QueueHole(5, 1, 3, 0, 5, ends_queue=True)]
    assert holes(snapshot, topic="orders") == holes(snapshot, topic="others") == []
    assert {*QueueViews(snapshot).missing()} == {("carts", 0), ("bills", 0), ("rates", 0)}


def test_the_first_file_of_a_queue_is_missing(made: StoreMaker, tmp_path: Path) -> None:
    """What the log has of it, for whoever begins before it."""
    snapshot = written(made, tmp_path)
    (tmp_path / "consumequeue" / "orders" / "0" / file_name(0)).unlink()
    assert holes(snapshot) == [QueueHole(0, 30, 30, 0, 29, ends_queue=False)]
    assert holes(snapshot, first=10) == [QueueHole(10, 20, 20, 0, 29, ends_queue=False)]
    assert holes(snapshot, first=30) == holes(snapshot, first=31) == []
    overwrite(tmp_path, 30, bytes(20))
    snapshot = Snapshot(snapshot.store, DERIVES_NOTHING)
    assert holes(snapshot) == [
        QueueHole(0, 30, 30, 0, 29, ends_queue=False),
        QueueHole(30, 1, 1, 0, 30, ends_queue=False),
    ]


def test_a_single_entry_is_left(tmp_path: Path) -> None:
    """Before and after it the log has more."""
    made = StoreMaker()
    for _ in range(33):
        made.add()
    made.units["orders", 0][31:] = []
    snapshot = written(made, tmp_path)
    (tmp_path / "consumequeue" / "orders" / "0" / file_name(0)).unlink()
    assert holes(snapshot) == [
        QueueHole(0, 30, 30, 0, 29, ends_queue=False),
        QueueHole(31, 2, 2, 0, 32, ends_queue=True),
    ]


@pytest.mark.parametrize("most", [SAMPLE_BYTES, 60 * SIZE])
@pytest.mark.parametrize("unit", [bytes(20), LEAD_NOWHERE])
def test_holes_of_earlier_files(unit: bytes, most: int, made: StoreMaker, tmp_path: Path) -> None:
    """The recovery reads the last three: what comes after them is consumed."""
    snapshot = written(made, tmp_path)
    overwrite(tmp_path, 0, 3 * unit)
    overwrite(tmp_path, 8, unit)
    assert holes(snapshot, most) == [
        QueueHole(0, 3, 3, 0, 2, ends_queue=False),
        QueueHole(8, 1, 1, 0, 8, ends_queue=False),
    ]
    overwrite(tmp_path, 9, 3 * unit)
    snapshot = Snapshot(snapshot.store, DERIVES_NOTHING)
    assert holes(snapshot, most, first=10) == [QueueHole(10, 2, 2, 0, 11, ends_queue=False)]  # for who begins in it


@pytest.mark.parametrize("other", [3, 7])
def test_a_unit_that_leads_back(other: int, made: StoreMaker, tmp_path: Path) -> None:
    """To a message that another one is for."""
    made.units["orders", 0][8] = made.units["orders", 0][other]
    assert holes(written(made, tmp_path)) == [QueueHole(8, 1, 1, 0, 8, ends_queue=False)]


def test_the_first_file_of_a_queue_whose_messages_are_misplaced(tmp_path: Path) -> None:
    """What its first entry leads to is not missing, though its own queue offset is below the minimum."""
    made = StoreMaker()
    for number in range(150):
        made.add(queue_offset=max(0, number - 1))
    snapshot = written(made, tmp_path)
    (tmp_path / "consumequeue" / "orders" / "0" / file_name(0)).unlink()
    assert holes(snapshot)[0] == QueueHole(0, 30, 30, 0, 29, ends_queue=False)


@pytest.mark.parametrize("most", [SAMPLE_BYTES, 10 * SIZE, 2 * SIZE])
@pytest.mark.parametrize("gone", [(), (140,), (149,), (140, 149)])
def test_entries_past_the_end(most: int, gone: tuple[int, ...], made: StoreMaker, tmp_path: Path) -> None:
    """All messages after the first hole of the last files are lost with it, whether they have an entry or not."""
    for number in (130, 131, *gone):
        made.units["orders", 0][number] = bytes(20)
    assert holes(written(made, tmp_path), most) == [QueueHole(130, 2, 20, 18, 149, ends_queue=True)]


@pytest.mark.parametrize("first", [130, 148])
def test_a_single_entry_past_the_end(first: int, made: StoreMaker, tmp_path: Path) -> None:
    gone = 149 - first
    made.units["orders", 0][first:149] = [bytes(20)] * gone
    assert holes(written(made, tmp_path)) == [QueueHole(first, gone, gone + 1, 1, 149, ends_queue=True)]


@pytest.mark.parametrize("first", [1, 8])
@pytest.mark.parametrize(("most", "messages"), [(SAMPLE_BYTES, 1), (2 * SIZE, 1), (2 * SIZE - 1, 2)])
def test_a_hole_in_which_the_log_has_less(first: int, most: int, messages: int, tmp_path: Path) -> None:
    """Of two missing entries one has no message; where that is too much to read, both are taken to have one."""
    made = StoreMaker()
    for _ in range(9):
        made.add("basket")
    for number in range(150):
        if number != first + 1:
            made.add(queue_offset=number)
    made.units["orders", 0].insert(first + 1, bytes(20))
    made.units["orders", 0][first] = bytes(20)
    hole = QueueHole(first, 2, messages, 0, first + 1, ends_queue=False)
    snapshot = written(made, tmp_path)
    assert holes(snapshot, most) == holes(snapshot, most, first=first) == [hole]


def test_records_of_a_whole_queue_are_not_read_one_by_one(
    made: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogReader, "count_at", lambda *_: pytest.fail("a record is read"))
    assert holes(written(made, tmp_path)) == []


@pytest.mark.parametrize("version", [Version(4, 4, 0), DERIVES_NOTHING])
@pytest.mark.parametrize(
    ("most", "hole"),
    [
        (SAMPLE_BYTES, QueueHole(7, 18, 17, 0, 24, ends_queue=True)),
        (5 * SIZE, QueueHole(5, 20, 20, 0, 24, ends_queue=True)),
    ],
)
def test_a_queue_that_has_expired(most: int, hole: QueueHole, version: Version, tmp_path: Path) -> None:
    """What led below the log consumers have no more; the log may have more than the part that is read."""
    made = StoreMaker()
    made.log = LogBuilder(1 << 16, start_offset=1 << 16)
    made.units["orders", 0] = [build_unit(0, SIZE, 0)] * 5
    for number in (7, 8, 9, *range(11, 25)):
        made.log.add(queue_offset=number)
    assert holes(written(made, tmp_path, version), most) == [hole]


@pytest.mark.parametrize(("newest", "messages"), [(156, 6), (8, 6), (7, 6), (6, 11)])
def test_messages_past_the_end(newest: int, messages: int, made: StoreMaker, tmp_path: Path) -> None:
    """Those that the log has; where it is read from behind the last entry on, all that it may have."""
    for number in (150, 151, 155, 156, 157, 160):
        made.log.add(queue_offset=number)
    assert holes(written(made, tmp_path), newest * SIZE) == [QueueHole(150, 11, messages, 0, 160, ends_queue=True)]


def test_filler_units_lead_nowhere(tmp_path: Path) -> None:
    """A queue that a start has made in its middle begins with them, and the log begins at 0."""
    made = StoreMaker()
    for _ in range(8):
        made.add()
    made.units["orders", 0][:5] = [build_unit(0, PRE_BLANK_MESSAGE_SIZE, 0)] * 5
    assert holes(written(made, tmp_path)) == [QueueHole(0, 5, 5, 0, 4, ends_queue=False)]
    overwrite(tmp_path, 5, bytes(20))
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    for first in (0, 3):
        assert holes(snapshot, first=first) == [QueueHole(first, 6 - first, 8 - first, 2, 7, ends_queue=True)]
    made.units["orders", 0][5:] = []
    snapshot = written(made, tmp_path / "alone")
    for first in (0, 3):
        assert holes(snapshot, first=first) == [QueueHole(0, 8, 8, 0, 7, ends_queue=True)]


def test_files_without_a_unit(tmp_path: Path) -> None:
    """All that the log has."""
    made = StoreMaker()
    for _ in range(5):
        made.add()
    made.units["orders", 0] = []
    assert holes(written(made, tmp_path)) == [QueueHole(0, 5, 5, 0, 4, ends_queue=True)]


def test_holes_between_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of no size leads nowhere; of many rows the last ones are looked at."""
    log = LogBuilder(1 << 16).add_all({"queue_offset": number} for number in range(10))
    rows = [("orders", 0, number, unit_value(at, 0 if number == 6 else SIZE, 0, START_TIME))
            for number, at in enumerate(log.offsets) if number not in (7, 9)]  # fmt: skip
    write_queues(log.write(tmp_path), rows, log.end)
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    end = QueueHole(9, 1, 1, 0, 9, ends_queue=True)
    assert holes(snapshot) == [QueueHole(6, 2, 2, 0, 7, ends_queue=False), end]
    assert holes(snapshot, first=7) == [QueueHole(7, 1, 1, 0, 7, ends_queue=False), end]
    monkeypatch.setattr("rmqtool.clients.queue_view.MOST_UNITS", 1)
    assert holes(snapshot, first=3) == [end]
    with changed(tmp_path / "consumequeue") as families:
        for number in range(9):
            del families["default"][unit_key("orders", 0, number)]
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    assert holes(snapshot) == [QueueHole(0, 10, 10, 0, 9, ends_queue=True)]


@pytest.mark.parametrize("most", [SAMPLE_BYTES, 5 * SIZE])
def test_of_many_entries_the_last_ones_are_compared(
    most: int, made: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before are no hole, however far they are."""
    monkeypatch.setattr("rmqtool.clients.queue_view.MOST_UNITS", 50)
    snapshot = written(made, tmp_path)
    assert holes(snapshot, most) == []
    for number in (8, 110, 120):
        overwrite(tmp_path, number, bytes(20))
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    found = [QueueHole(110, 1, 40, 39, 149, ends_queue=True)]
    assert holes(snapshot, most) == holes(snapshot, most, first=110) == found


def batches(made: StoreMaker) -> list[int]:
    """The physical offsets of eight batches of three messages."""
    topic = {"topicName": "bulk", "readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": "BatchCQ"}}
    made.config["topics.json"] = {"topicConfigTable": {"bulk": topic}}
    of_each = [{"INNER_BASE": str(base), "INNER_NUM": "3"} for base in range(0, 24, 3)]
    return [made.log.add(topic="bulk", sys_flag=INNER_BATCH, properties=properties) for properties in of_each]


@pytest.mark.parametrize("first", [0, 4, 9, 12, 15])
def test_of_many_batches_the_last_ones_are_compared(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their queue offsets are not the numbers of their entries."""
    made = StoreMaker()
    units = np.zeros(10, BATCH_UNIT_DTYPE)
    units["physical_offset"][:8], units["message_size"][:8] = batches(made), SIZE
    units["base_queue_offset"], units["batch_size"][:8] = np.arange(0, 30, 3), 3
    directory = made.write(tmp_path) / "batchconsumequeue" / "bulk" / "0"
    directory.mkdir(parents=True)
    (directory / file_name(0)).write_bytes(units.tobytes())
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    for most_units in (100, 4):
        monkeypatch.setattr("rmqtool.clients.queue_view.MOST_UNITS", most_units)
        assert holes(snapshot, topic="bulk", first=first) == []
    units[5] = np.zeros(1, BATCH_UNIT_DTYPE)[0]
    (directory / file_name(0)).write_bytes(units.tobytes())
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    assert holes(snapshot, topic="bulk", first=first) == [QueueHole(15, 3, 9, 6, 23, ends_queue=True)]


@pytest.mark.parametrize("most", [SAMPLE_BYTES, 10])
def test_rows_of_batches(most: int, tmp_path: Path) -> None:
    """They have one at their first queue offset only; the log says how many messages each has."""
    made = StoreMaker()
    offsets = batches(made)
    rows = [("bulk", 0, 3 * number, unit_value(at, SIZE, 0, START_TIME)) for number, at in enumerate(offsets)]
    write_queues(made.write(tmp_path), rows, made.log.end)
    with changed(tmp_path / "consumequeue") as families:  # a broker that was asked for the minimum
        families["offset"][min_key("bulk", 0)] = end_value(offsets[0], 0)
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    assert holes(snapshot, most, topic="bulk") == []
    reader, name = LogReader(snapshot), QueueName("bulk", 0)
    assert (reader.count_at(name, offsets[3]), reader.belongs(name, 9, offsets[3])) == (3, True)
    with changed(tmp_path / "consumequeue") as families:
        del families["default"][unit_key("bulk", 0, 6)]
    found = QueueHole(6, 3, 3, 0, 8, ends_queue=False)
    assert holes(Snapshot(open_store(tmp_path), DERIVES_NOTHING), topic="bulk") == [found]


@pytest.mark.parametrize("target", [1 << 30, 150 * SIZE])
def test_a_last_unit_that_leads_nowhere(target: int, made: StoreMaker, tmp_path: Path) -> None:
    """The queue ends before it."""
    made.units["orders", 0][149] = build_unit(target, SIZE, 0)
    assert holes(written(made, tmp_path)) == [QueueHole(149, 1, 1, 0, 149, ends_queue=True)]


def test_a_start_leaves_holes_of_earlier_files(made: StoreMaker, tmp_path: Path) -> None:
    """It derives what is past the queue's end only."""
    made.units["orders", 0].pop()
    snapshot = written(made, tmp_path, Version(4, 9, 8))
    overwrite(tmp_path, 8, bytes(40))
    view = QueueViews(snapshot).of("orders", 0)
    assert (view.holes, view.derived) == ((QueueHole(8, 2, 2, 0, 9, ends_queue=False),), 1)


@pytest.mark.parametrize("most", [1 << 16, (1 << 16) - 1])
def test_a_start_that_reads_more_than_may_be_read(most: int, made: StoreMaker, tmp_path: Path) -> None:
    """What it derives is not known then, and all is missing."""
    made.units["orders", 0].pop()
    view = QueueViews(written(made, tmp_path, Version(4, 9, 8)), most).of("orders", 0)
    assert (view.derived, view.unreachable) == ((1, 0) if most == 1 << 16 else (0, 1))


def test_a_start_that_derives_some(made: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones; those that it misplaces nobody gets."""
    del made.units["orders", 0][145:]
    served = SimpleNamespace(derived=3, misplaced=1)
    monkeypatch.setattr(QueueViews, "_served", {QueueName("orders", 0): served})
    view = QueueViews(written(made, tmp_path)).of("orders", 0)
    assert (view.holes, view.derived) == ((QueueHole(145, 3, 3, 0, 147, ends_queue=True),), 2)
    made = StoreMaker()
    for _ in range(150):
        made.add()
    snapshot = written(made, tmp_path / "whole")
    overwrite(tmp_path / "whole", 8, bytes(20))
    view = QueueViews(snapshot).of("orders", 0)
    assert (view.holes, view.derived) == ((QueueHole(8, 1, 1, 0, 8, ends_queue=False),), 0)  # nothing past its end


def test_all_entries_are_past_the_end(tmp_path: Path) -> None:
    """The first one is missing, for whoever begins later, too."""
    made = StoreMaker()
    for _ in range(20):
        made.add()
    made.units["orders", 0][0] = bytes(20)
    assert holes(written(made, tmp_path), first=10) == [QueueHole(0, 1, 20, 19, 19, ends_queue=True)]


def test_nothing_is_said_while_a_broker_runs(made: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves what it remembers."""
    made.log.add(topic="bills")
    made.units["orders", 0].pop()
    snapshot = written(made, tmp_path)
    orders = snapshot.queue("orders", 0)
    assert orders is not None
    for holder in (None, Holder(7, "lock")):
        monkeypatch.setattr(Snapshot, "holder", holder)
        views = QueueViews(snapshot)
        is_said = holder is None
        assert bool(views.of("orders", 0).holes) == is_said
        assert bool([*views.missing()]) == is_said
        assert (views.with_holes([(orders.queue, orders.range)], []) != {}) == is_said
        assert views.passed_by_log(orders.queue, orders.range) == is_said
        assert not views.passed_by_log(orders.queue, QueueRange(0, 150))


def test_a_log_that_cannot_be_read(made: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it says so; nothing is said of queues."""
    made.units["orders", 0].pop()
    snapshot = written(made, tmp_path)
    orders = snapshot.queue("orders", 0)
    assert orders is not None

    def failing(_: LogReader) -> object:
        raise UnreadableError("cannot read", file=tmp_path)

    monkeypatch.setattr(LogReader, "newest", failing)
    views = QueueViews(snapshot)
    assert (views.of("orders", 0), [*views.missing()]) == (QueueView(), [])
    assert (views.with_holes([(orders.queue, orders.range)], []), views.logged_after("orders", 0, 0)) == ({}, None)
    assert not views.passed_by_log(orders.queue, orders.range)


def test_a_log_where_each_read_is_a_request(made: StoreMaker, tmp_path: Path) -> None:
    """Little of it is read, and only queues are looked at that end early."""
    overwrite(made.write(tmp_path), 8, bytes(20))
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    assert LogReader(snapshot, 7).most_bytes == 7
    orders = snapshot.queue("orders", 0)
    assert orders is not None
    for is_remote in (False, True):
        snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
        (file,) = snapshot.log.files
        snapshot.log = MappedFiles((file._replace(modified_ns=file.path.stat().st_mtime_ns if is_remote else None),))
        assert LogReader(snapshot).most_bytes == (1 << 20 if is_remote else SAMPLE_BYTES)
        for early in ((), (QueueName("orders", 0),)):
            found = QueueViews(snapshot).with_holes([(orders.queue, orders.range)], early)
            assert bool(found) == (bool(early) or not is_remote)


@pytest.mark.parametrize(("changed", "is_deleted"), [(2_000_000, True), (1_000, False)])
def test_a_topic_that_was_deleted(changed: int, is_deleted: bool, made: StoreMaker, tmp_path: Path) -> None:
    """Nobody misses its messages, unless one was stored since topics.json was changed last."""
    for queue_id, stored in enumerate((1_000_000, 1_500_000)):
        made.log.add(topic="bills", queue_id=queue_id, store_timestamp=stored)
    orders = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4}
    made.config["topics.json"] = {"topicConfigTable": {"orders": orders}, "dataVersion": {"timestamp": changed}}
    snapshot = written(made, tmp_path)
    left = [] if is_deleted else [QueueHole(0, 1, 1, 0, 0, ends_queue=True)]
    assert [[*QueueViews(snapshot).of("bills", queue_id).holes] for queue_id in (0, 1)] == [left, left]


def test_a_start_that_waits_for_ever_derives_nothing(tmp_path: Path) -> None:
    """As those from 4.5.1 to 4.9.8 do where a file of the log is missing (`ReputMessageService#doReput`)."""
    made = StoreMaker(1024)
    for number in range(60):
        made.log.add(queue_offset=number)
    made.log.write(tmp_path)
    for is_whole in (True, False):
        snapshot = Snapshot(open_store(tmp_path), Version(4, 9, 8))
        view = QueueViews(snapshot).of("orders", 0)
        assert (view.derived, view.unreachable > 0) == ((60, False) if is_whole else (0, True))
        (tmp_path / "commitlog" / file_name(2048)).unlink(missing_ok=True)


def test_a_hole_for_programs() -> None:
    assert END.as_json() == {
        "queue_offset": 20, "entries": 2, "messages_past": 4, "unreachable": 6, "last_queue_offset": 25,
        "ends_queue": True,
    }  # fmt: skip


def test_the_end_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is searched for, and a hole passed over: the queue is as consumers see it."""
    monkeypatch.setattr(making, "QUEUE_FILE", 100_000)
    made = StoreMaker(1 << 17)
    for _ in range(400):
        made.add()
    views = QueueViews(written(made, tmp_path))
    whole = views.loaded("orders", 0)
    assert (whole and whole.range.max_offset, views.loaded("others", 0)) == (400, None)
    made_once = QueueViews.of_snapshot(views._snapshot)
    assert (made_once.of("orders", 0), QueueViews.of_snapshot(views._snapshot)) == (QueueView(), made_once)
    overwrite(tmp_path, 250, bytes(20))
    snapshot = Snapshot(open_store(tmp_path), DERIVES_NOTHING)
    holed, loaded = snapshot.queue("orders", 0), QueueViews(snapshot).loaded("orders", 0)
    assert (holed and holed.range.max_offset, loaded and loaded.range.max_offset) == (400, 250)


def test_which_queues_are_looked_at(made: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are large or many, those that end early, and those of which the newest part of the log has more."""
    for _ in range(10):
        made.add("bills")
    made.units["bills", 0].pop()
    made.log.add(topic="rates")
    snapshot = written(made, tmp_path)
    overwrite(tmp_path, 8, bytes(20))
    queues = [(queue, loaded.range) for queue in snapshot.queues
              if (loaded := snapshot.queue(queue.topic, queue.queue_id))]  # fmt: skip
    orders, newest = QueueName("orders", 0), {QueueName("bills", 0), QueueName("rates", 0)}
    all_of_them = {orders, *newest}
    size = sum(file.size for queue, _ in queues for file in queue.files.files)
    for most, early, found in (
        (2 * SIZE, [], newest), (2 * SIZE, [orders], all_of_them), (size, [], all_of_them), (size - 1, [], newest)
    ):  # fmt: skip
        assert QueueViews(snapshot, most).with_holes(queues, early).keys() == found
    for few, found in ((len(queues), all_of_them), (len(queues) - 1, newest)):
        monkeypatch.setattr("rmqtool.clients.queue_view._FEW_QUEUES", few)
        assert QueueViews(snapshot).with_holes(queues, []).keys() == found
    assert QueueViews(snapshot).loaded("orders", 0) is snapshot.queue("orders", 0)


@pytest.mark.parametrize("most", [SAMPLE_BYTES, 3 * SIZE, 2 * SIZE])
def test_the_message_of_a_missing_entry(most: int, tmp_path: Path) -> None:
    """In the newest part of the log, or between the messages of its neighbours; None where the log has none."""
    made = StoreMaker()
    at = {number: made.add(queue_offset=number) for number in range(60) if number != 30}
    made.log.add(topic="bills")
    made.units["orders", 0].insert(30, bytes(20))
    for number in (0, 12, 20, 21, 59):
        made.units["orders", 0][number] = bytes(20)
    views = QueueViews(written(made, tmp_path), most)
    for number in (0, 5, 12, 29, 30, 59, 60):
        assert views.logged_at("orders", 0, number) == at.get(number)
    assert views.logged_at("others", 0, 0) is None
    assert views.logged_at("bills", 0, 0) == made.offsets[-1]
    assert [views.logged_at("bills", 0, number) for number in (-1, 1)] == [None, None]
    assert [views.logged_at("orders", 0, number) for number in (20, 21)] == (
        [at[20], at[21]] if most > 2 * SIZE else [None, None]
    )
    assert views.logged_after("orders", 0, at[58]) == ([at[59]] if most > 2 * SIZE else None)
    assert views.logged_after("orders", 0, at[57]) == (None if most < SAMPLE_BYTES else [at[58], at[59]])


def test_a_store_without_a_log(made: StoreMaker, tmp_path: Path) -> None:
    """Nothing is said of its queues."""
    snapshot = written(made, tmp_path)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    views = QueueViews(Snapshot(snapshot.store, DERIVES_NOTHING))
    assert (views.of("orders", 0), [*views.missing()]) == (QueueView(), [])
    assert (views.logged_at("orders", 0, 3), views.logged_after("orders", 0, 0)) == (None, [])


def test_how_many_queue_offsets_a_record_takes(made: StoreMaker, tmp_path: Path) -> None:
    """One, where it is none of the queue, or there is no record."""
    reader = LogReader(written(made, tmp_path))
    name, other = QueueName("orders", 0), QueueName("others", 0)
    assert [reader.count_at(*each) for each in ((name, SIZE), (other, SIZE), (name, SIZE + 1))] == [1, 1, 1]
    assert [reader.belongs(*each) for each in ((name, 1, SIZE), (name, 2, SIZE), (other, 1, SIZE), (name, 1, 9))] == [
        True, False, False, False
    ]  # fmt: skip


@pytest.mark.parametrize("conf", [None, "broker conf"])
def test_the_command_that_makes_a_queue_whole(made: StoreMaker, tmp_path: Path, conf: str | None) -> None:
    """With the broker.conf that was given."""
    path = str(tmp_path / conf) if conf else None
    snapshot = Snapshot(open_store(made.write(tmp_path / "store"), BrokerConf(path=path)))
    words = shlex.split(QueueViews(snapshot).repair_of("%RETRY%a b", 3))
    options = ["--broker-conf", path] if path else []
    store = str(tmp_path / "store")
    assert words == ["rmqtool", "rebuild-cq", store, *options, "--topic", "%RETRY%a b", "--queue", "3"]
