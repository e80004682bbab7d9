"""Timer messages that a start delivers, those that it never would, and those that was recalled."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.file_name import file_name
from tests.building import START_TIME
from tests.pending.waiting_store import WaitingStore, counts, rows_of, work_of
from tests.verify.lost_parts import files_of, without, zero
from tests.verify.timer_store import (
    PUT_OFF,
    TIMERS,
    due_of,
    size_of,
    store_with_timers,
    store_with_timers_put_off,
    write_check,
)

WEEK = 7 * 86_400_000


def log_zeroed(store: Path) -> None:
    """The timer log holds only zeros."""
    for path in files_of(store, "timerlog"):
        zero(path)


def log_cut(store: Path) -> None:
    """The last file of the timer log is gone."""
    max((store / "timerlog").iterdir()).unlink()


def test_what_waits(tmp_path: Path) -> None:
    """All but the one that was delivered, in the order of their times."""
    rows = rows_of(work_of(store_with_timers(tmp_path), due_of(3) + 1))
    assert [(row["kind"], row["queue_offset"], row["due_timestamp"]) for row in rows] == [
        ("timer", number, due_of(number)) for number in range(1, TIMERS)
    ]
    assert {(row["to_topic"], row["to_queue_id"]) for row in rows} == {("orders", 0)}


@pytest.mark.parametrize("lose", [without("timerlog"), log_zeroed], ids=["gone", "zeroed"])
def test_without_the_timer_log(tmp_path: Path, lose: Callable[[Path], object]) -> None:
    """None of 30 came with a real 5.3.3: they are told apart, and are not owed."""
    store = store_with_timers(tmp_path)
    lose(store)
    work = work_of(store)
    assert counts(work) == {"lost-timer": TIMERS - 1}
    assert work.owed.messages == 0


@pytest.mark.parametrize(("version", "lost"), [("5.3.3", 3), ("5.5.0", 1), ("5.5.1", 0)])
def test_one_that_the_timer_cannot_read(tmp_path: Path, version: str, lost: int) -> None:
    """Before 5.4.0 a start does not get beyond it."""
    store = store_with_timers(tmp_path, large=6)
    log_zeroed(store)
    write_check(store, queue_offset=1)
    work = work_of(store, conf=f"maxMessageSize={size_of(store, 5)}", version=version)
    left = {"timer": TIMERS - 1 - lost}
    assert counts(work) == ({**left, "lost-timer": lost} if lost else left)


@pytest.mark.parametrize(("version", "lost"), [("5.3.3", 3), ("5.5.0", 1), ("5.5.1", 0)])
def test_one_of_the_timer_log_that_is_too_large(tmp_path: Path, version: str, lost: int) -> None:
    """As when maxMessageSize is made smaller: the timer reads it again when it is due."""
    store = store_with_timers(tmp_path, large=6)
    work = work_of(store, conf=f"maxMessageSize={size_of(store, 5)}", version=version)
    left = {"timer": TIMERS - 1 - lost}
    assert counts(work) == ({**left, "lost-timer": lost} if lost else left)


@pytest.mark.parametrize(("lost", "count"), [("*", PUT_OFF), (file_name(0), 0)], ids=["all", "oldest"])
def test_messages_that_were_put_off(tmp_path: Path, lost: str, count: int) -> None:
    """Each of their copies is a message of the queue, and only the newest waits: lost, it is so once."""
    store = store_with_timers_put_off(tmp_path)
    for path in (store / "timerlog").glob(lost):
        path.unlink()
    assert counts(work_of(store)).get("lost-timer", 0) == count


def test_without_the_last_file_of_the_timer_log(tmp_path: Path) -> None:
    """The queue is read again after the last unit that is left: its messages are delivered once."""
    store = store_with_timers(tmp_path)
    log_cut(store)
    assert counts(work_of(store)) == {"timer": TIMERS - 1}


@pytest.mark.parametrize("size", [None, 0, 10])
def test_without_the_check(tmp_path: Path, size: int | None) -> None:
    """The queue is read from the beginning: all of it comes, and that some of it came before is said."""
    store = store_with_timers(tmp_path)
    path = store / "config" / "timercheck"
    if size is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:size])
    work = work_of(store)
    assert counts(work)["timer"] == TIMERS


def test_delivered_ones_of_a_lost_check(tmp_path: Path) -> None:
    """Messages that were due while the broker ran are not known to wait."""
    store = store_with_timers(tmp_path)
    shutil.rmtree(store / "timerlog")
    (store / "config" / "timercheck").unlink()
    builder = WaitingStore()
    builder.timer(START_TIME - 5000)
    builder.timer(START_TIME + 60_000)
    store = builder.build(tmp_path / "other")
    work = work_of(store)
    assert counts(work) == {"timer": 2}
    assert [note.what for note in work.notes.uncertain] == ["a delivery of 1 timer message"]


def test_a_broker_that_is_stopped_for_a_week(tmp_path: Path) -> None:
    """A start begins to read the wheel a week back, less a minute: what was due before never comes."""
    store = store_with_timers(tmp_path)
    late = due_of(3) + WEEK - 60_000 + 1000
    found = rows_of(work_of(store, late))
    assert [row["queue_offset"] for row in found if row["kind"] == "timer"] == list(range(4, TIMERS))
    assert [row["queue_offset"] for row in found if row["kind"] == "lost-timer"] == [1, 2, 3]


def test_messages_that_are_not_read_yet(tmp_path: Path) -> None:
    """The queue after the offset of the check: no timer log knows them."""
    store = store_with_timers(tmp_path)
    shutil.rmtree(store / "timerlog")
    write_check(store, queue_offset=4)
    assert counts(work_of(store)) == {"lost-timer": 3, "timer": TIMERS - 4}


@pytest.mark.parametrize(
    ("version", "conf", "recalled"),
    [
        ("5.1.4", "", "key-only"),
        ("5.3.3", "", "with-topic"),
        ("5.5.0", "", "key-only"),
        ("5.5.0", "appendTopicForTimerDeleteKey=true\n", "with-topic"),
    ],
)
def test_recalled_ones(tmp_path: Path, version: str, conf: str, recalled: str) -> None:
    """A recall names the unique key, in some releases after the topic; it counts in the slot of its message only."""
    builder, due = WaitingStore(), START_TIME + 60_000
    for name in ("key-only", "with-topic", "other-slot"):
        builder.timer(due, UNIQ_KEY=name)
    builder.timer(due, TIMER_DEL_UNIQKEY="key-only")
    builder.timer(due, TIMER_DEL_UNIQKEY="orders+with-topic")
    for key in ("other-slot", "orders+other-slot"):
        builder.timer(due + 1000, TIMER_DEL_UNIQKEY=key)
    work = work_of(builder.build(tmp_path), version=version, conf=conf)
    assert {row["unique_key"] for row in rows_of(work)} == {"key-only", "with-topic", "other-slot"} - {recalled}
    assert [note.what for note in work.notes.uncertain] == ["a recall of 1 timer message"]


@pytest.mark.parametrize("conf", ["timerWheelEnable=false\n", "timerRocksDBEnable=true\n"])
def test_timers_elsewhere(tmp_path: Path, conf: str) -> None:
    """The wheel says nothing: they are not looked at."""
    work = work_of(store_with_timers(tmp_path), conf=conf)
    assert counts(work) == {}
    assert [note.what for note in work.notes.unread] == ["timer messages"]


@pytest.mark.parametrize("value", ["", "soon", "-5", "9" * 30])
def test_an_odd_time(tmp_path: Path, value: str) -> None:
    """A message whose time is not a number has none."""
    builder = WaitingStore()
    builder.timer(START_TIME, TIMER_OUT_MS=value)
    assert [row["due_timestamp"] for row in rows_of(work_of(builder.build(tmp_path)))] == [None]
