"""What waits in RocksDB: timers and half messages of `rocksdbstore`, messages of POP consumers in `kvStore`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqtool.pending.work import PendingWork
from tests.building import START_TIME
from tests.changed_rocksdb import half_row, number, write_rows
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.pending.waiting_store import REVIVE, WaitingStore, counts, rows_of, work_of

HALF, OP = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
SIDE = "more/5.5.0-rocksdb-side"
NOW = START_TIME + 60_000
SECOND = 1000


def timer_row(due: int, name: str, offset: int) -> tuple[bytes, bytes]:
    """A timer message of a unique key."""
    return number(due) + name.encode(), (100).to_bytes(4, "big") + number(offset)


def pop_row(visible: int, offset: int, topic: str = "tasks", group: str = "workers") -> tuple[bytes, bytes]:
    """A message that a consumer holds."""
    names = f"{group}@{topic}@".encode() + (0).to_bytes(4, "big") + b"@"
    return number(visible) + names + number(offset), b"{}"


def side(store: Path, timers: Mapping[bytes, bytes] | None = None, halves: Mapping[bytes, bytes] | None = None) -> Path:
    """The database beside the log."""
    write_rows(store / "rocksdbstore", {"timer": timers or {}, "trans": halves or {}})
    return store


def waiting_timers(work: PendingWork) -> list[tuple[str, str]]:
    """Kind and key of each, by the time when it is due."""
    return [(row["kind"], row["keys"][0]) for row in rows_of(work, "timer", "lost-timer")]


class TimerStore(WaitingStore):
    """Timer messages with unique keys of their own; the first ones are rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[bytes, bytes] = {}

    def named(self, name: str, due: int, *, is_row: bool = True) -> None:
        """A message due then; its row."""
        offset = self.timer(due, "orders", KEYS=name, UNIQ_KEY=name)
        if is_row:
            key, value = timer_row(due, name, offset)
            self.rows[key] = value

    def with_rows(self, root: Path, timeline: int | None, indexed_to: int) -> Path:
        """The store with its database."""
        progress = {b"sys_topic_scan_offset_checkpoint": number(indexed_to)}
        if timeline is not None:
            progress[b"timeline_checkpoint"] = number(timeline)
        return side(self.build(root), {**self.rows, **progress})


def test_timers(tmp_path: Path) -> None:
    """What was due before the time line was delivered; the queue is read on after the rows."""
    builder = TimerStore()
    builder.named("delivered", NOW - SECOND)
    builder.named("first", NOW)
    builder.named("later", NOW + SECOND)
    builder.named("also-read", NOW + 2 * SECOND)
    builder.named("read", NOW + 3 * SECOND, is_row=False)
    work = work_of(builder.with_rows(tmp_path, NOW, 3), NOW)
    assert waiting_timers(work) == [("timer", name) for name in ("first", "later", "also-read", "read")]
    assert {row["to_topic"] for row in rows_of(work)} == {"orders"}
    assert work.is_whole
    assert [note.what for note in work.notes.uncertain] == []


@pytest.mark.parametrize("named", ["gone", "orders+gone", "any+gone"])
def test_recalls(tmp_path: Path, named: str) -> None:
    """A recall that is not read yet takes a row back, by the unique key alone; not one at another time."""
    builder = TimerStore()
    builder.named("gone", NOW)
    builder.named("kept", NOW)
    builder.named("gone", NOW + 5 * SECOND)
    builder.timer(NOW, "orders", TIMER_DEL_UNIQKEY=named)
    work = work_of(builder.with_rows(tmp_path, NOW - SECOND, 3), NOW, "5.4.0")
    assert [(row["keys"][0], row["due_timestamp"]) for row in rows_of(work, "timer")] == [
        ("kept", NOW),
        ("gone", NOW + 5 * SECOND),
    ]
    assert not work.notes.uncertain


def test_without_a_time_line(tmp_path: Path) -> None:
    """A start goes on ten seconds ago: what was due before then would never come."""
    builder = TimerStore()
    for name, seconds in (("lost", -11), ("overdue", -9), ("waits", 9)):
        builder.named(name, NOW + seconds * SECOND)
    work = work_of(builder.with_rows(tmp_path, None, 3), NOW)
    assert waiting_timers(work) == [("lost-timer", "lost"), ("timer", "overdue"), ("timer", "waits")]
    assert work.owed.messages == 2


def test_of_any_size(tmp_path: Path) -> None:
    """The buffer grows, other than that of the wheel, also for a message that is no row yet."""
    builder = TimerStore()
    builder.named("row", NOW + SECOND)
    builder.named("unread", NOW + 2 * SECOND, is_row=False)
    work = work_of(builder.with_rows(tmp_path, NOW, 1), NOW, version="5.5.0", conf="maxMessageSize=10")
    assert waiting_timers(work) == [("timer", "row"), ("timer", "unread")]


def test_rows_lead_to_the_log(tmp_path: Path) -> None:
    """Not by the queue, of which only the last message is left; where nothing begins is said."""
    builder = TimerStore()
    for name in ("one", "two", "three"):
        builder.named(name, NOW)
    key, value = timer_row(NOW, "nowhere", 11)
    builder.rows[key] = value
    store = builder.with_rows(tmp_path, NOW, 3)
    (file,) = (store / "consumequeue" / "rmq_sys_wheel_timer" / "0").iterdir()
    units = file.read_bytes()
    file.write_bytes(b"\0" * 40 + units[40:])
    work = work_of(store, NOW)
    assert {name for _, name in waiting_timers(work)} == {"one", "two", "three"}
    assert "1 message of rmq_sys_wheel_timer, queue 0" in [note.what for note in work.notes.unread]


def test_timers_that_the_setting_leaves_there(tmp_path: Path) -> None:
    """With timerRocksDBEnable=false nobody reads them."""
    builder = TimerStore()
    builder.named("one", NOW)
    work = work_of(builder.with_rows(tmp_path, NOW, 1), NOW, conf="timerRocksDBEnable=false")
    assert counts(work) == {}
    assert [note.what for note in work.notes.unread] == ["timer messages"]


def test_halves(tmp_path: Path) -> None:
    """Rows, and what is behind them in the queue; not what an op message ends, or was asked for too often."""
    builder = WaitingStore()
    named = {"REAL_TOPIC": "payments", "REAL_QID": "0", "PGROUP": "payers"}
    offsets = [builder.message(HALF, **named, KEYS=f"HALF-{at}") for at in range(6)]
    builder.message(OP, 0, b"\0", TAGS="d", TRANS_OFFSET=str(offsets[2]))
    builder.message(OP, 0, b"\0", TAGS="d", TRANS_OFFSET="none")
    rows = [half_row(offsets[0]), half_row(offsets[2]), half_row(offsets[3], 15), half_row(offsets[4], 16)]
    store = side(builder.build(tmp_path), halves={**dict(rows), b"lastOffsetPy": number(offsets[4])})
    found = rows_of(work_of(store), "half")
    assert [row["keys"] for row in found] == [["HALF-0"], ["HALF-3"], ["HALF-5"]]
    assert {(row["topic"], row["to_topic"], row["group"], row["due_timestamp"]) for row in found} == {
        (HALF, "payments", "payers", START_TIME + 6000)
    }
    assert work_of(store).is_whole
    assert counts(work_of(store, conf="transactionCheckMax=14")) == {"half": 2}


def test_pops(tmp_path: Path) -> None:
    """Beside those of check points; what the queue does not hold never comes again."""
    builder = WaitingStore()
    for _ in range(4):
        builder.message("tasks")
    builder.check_point(topic=REVIVE, so=3, n=1, bm=0, pt=NOW, it=SECOND)
    store = builder.build(tmp_path)
    rows = [pop_row(NOW + 5, 0), pop_row(NOW - 5, 2), pop_row(NOW, 9), pop_row(NOW, 0, "../x")]
    write_rows(store / "kvStore", {"popState": dict(rows)})
    work = work_of(store, NOW)
    assert [(row["queue_offset"], row["due_timestamp"], row["group"]) for row in rows_of(work)] == [
        *((2, NOW - 5, "workers"), (0, NOW + 5, "workers"), (3, NOW + SECOND, "workers")),
    ]
    assert [note.what for note in work.notes.uncertain] == ["2 messages that POP consumers took"]


@pytest.mark.parametrize(
    ("family", "row"),
    [
        ("timer", (b"short", bytes(12))),
        ("timer", (number(NOW) + b"key", bytes(11))),
        ("timer", (b"timeline_checkpoint", b"")),
        ("trans", (number(5) + b"@a@b", bytes(7))),
        ("popState", (b"workers@tasks", b"{}")),
    ],
)
def test_rows_of_nobody(tmp_path: Path, family: str, row: tuple[bytes, bytes]) -> None:
    """They are said, and the rest is looked at."""
    builder = TimerStore()
    builder.message("tasks")
    builder.named("one", NOW)
    builder.message(HALF)
    builder.delay(1)
    store = builder.build(tmp_path)
    progress = {b"lastOffsetPy": number(0)}
    families = {"timer": {**builder.rows, b"timeline_checkpoint": number(NOW)}, "trans": progress, "popState": {}}
    families[family] = {**families[family], row[0]: row[1]}
    write_rows(store / "rocksdbstore", {name: families[name] for name in ("timer", "trans")})
    write_rows(store / "kvStore", {"popState": families["popState"]})
    work = work_of(store, NOW)
    (note,) = work.notes.unread
    assert "a row is not of a broker" in note.why
    expected = {"delay", "timer", "half"} - {{"timer": "timer", "trans": "half"}.get(family)}
    assert counts(work).keys() == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rocksdbstore", "kvStore"])
def test_a_damaged_database(tmp_path: Path, name: str) -> None:
    """Each of its files cut or gone: what it held is not known, and nothing else changes."""
    builder = TimerStore()
    builder.message("tasks")
    builder.named("one", NOW)
    builder.delay(1)
    store = builder.with_rows(tmp_path / "store", NOW, 1)
    write_rows(store / "kvStore", {"popState": dict([pop_row(NOW, 0)])})
    assert counts(work_of(store, NOW)) == {"timer": 1, "delay": 1, "pop": 1}
    kind = {"rocksdbstore": "timer", "kvStore": "pop"}[name]
    (table,) = (store / name).glob("*.sst")
    whole = table.read_bytes()
    for damaged in (None, whole[: len(whole) // 2], bytes(len(whole))):
        table.unlink()
        if damaged is not None:
            table.write_bytes(damaged)
        work = work_of(store, NOW)
        assert not work.is_whole
        assert {**counts(work), kind: 1} == {"timer": 1, "delay": 1, "pop": 1}
        assert kind not in counts(work)
        table.write_bytes(whole)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be there is said with how to get it; ordinary files are looked at."""
    builder = TimerStore()
    builder.message("tasks")
    builder.named("one", NOW)
    builder.message(HALF)
    builder.delay(1)
    store = builder.with_rows(tmp_path, NOW, 1)
    write_rows(store / "kvStore", {"popState": dict([pop_row(NOW, 0)])})
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    work = work_of(store, NOW)
    assert counts(work) == {"delay": 1}
    assert sorted(note.what for note in work.notes.unread) == [
        "half messages of RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "messages that POP consumers took",
        "timer messages",
    ]


def test_the_store_of_a_broker(golden_store: GoldenStore) -> None:
    """A shop with timers in RocksDB: the two that its clients did not get."""
    facts = stores.oracle(SIDE)["facts"]["keys"]
    store = golden_store(SIDE)
    work = work_of(store, NOW * 2)
    assert {key for row in rows_of(work, "timer") for key in row["keys"]} == set(facts["timed_waiting"])
    assert {key for row in rows_of(work, "half") for key in row["keys"]} == set(facts["pending"])
    assert work.is_whole
