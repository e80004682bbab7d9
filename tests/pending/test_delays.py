"""Delayed messages that were not delivered, when they are due and for whom; what the files do not say is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.formats.consume_queue import UNIT_SIZE
from tests.building import START_TIME
from tests.pending.waiting_store import SCHEDULE, WaitingStore, counts, places, rows_of, work_of


def store_of_levels(root: Path) -> tuple[Path, list[int]]:
    """Three messages of level 3, of which the first is delivered, and one retry of level 5; when they are due."""
    builder = WaitingStore()
    dues = [builder.delay(3) for _ in range(3)]
    dues.append(builder.delay(5, "%RETRY%billing", RETRY_TOPIC="payments"))
    builder.delivered = {3: 1}
    return builder.build(root), dues


def test_levels(tmp_path: Path) -> None:
    """From the level's offset on; a level that is not in the file begins at 0."""
    store, dues = store_of_levels(tmp_path)
    work = work_of(store, dues[1] + 1)
    rows = rows_of(work)
    assert places(rows) == [(SCHEDULE, 2, 1), (SCHEDULE, 2, 2), (SCHEDULE, 4, 0)]
    assert [row["due_timestamp"] for row in rows] == dues[1:]
    assert [(row["level"], row["to_topic"], row["group"]) for row in rows] == [
        (3, "orders", None),
        (3, "orders", None),
        (5, "payments", "billing"),
    ]
    assert (work.owed.messages, work.owed.overdue, work.owed.next_due) == (3, 1, dues[2])
    assert (work.owed.first_due, work.owed.last_due) == (dues[1], dues[3])
    assert work.is_whole
    assert work.notes.uncertain == []


def test_what_is_due_now_is_not_overdue(tmp_path: Path) -> None:
    store, dues = store_of_levels(tmp_path)
    assert [work_of(store, dues[1] + late).owed.overdue for late in (0, 1)] == [0, 1]


@pytest.mark.parametrize("text", [None, "", "{", "\0\0\0\0", '{"offsetTable":5}', '{"offsetTable":{"x":"y"}}'])
def test_offsets_that_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    """All messages of the levels count, as a start delivers all of them."""
    store, _ = store_of_levels(tmp_path)
    path = store / "config" / "delayOffset.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    work = work_of(store)
    assert counts(work) == {"delay": 4}
    assert any("delayOffset.json" in note.what for note in work.notes.uncertain)


def test_the_backup_counts(tmp_path: Path) -> None:
    store, _ = store_of_levels(tmp_path)
    path = store / "config" / "delayOffset.json"
    path.rename(f"{path}.bak")
    path.write_text("{")
    work = work_of(store)
    assert counts(work) == {"delay": 3}
    assert any(".bak" in note.why for note in work.notes.uncertain)


def test_units_without_time(tmp_path: Path) -> None:
    """As a recovery of 4.9.2 to 4.9.8 leaves them: a start delivers at once, which is said."""
    store, dues = store_of_levels(tmp_path)
    path = store / "consumequeue" / SCHEDULE / "2" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[UNIT_SIZE + 12 : 2 * UNIT_SIZE] = bytes(8)
    path.write_bytes(data)
    work = work_of(store)
    assert [row["due_timestamp"] for row in rows_of(work)] == dues[1:]
    assert [note.what for note in work.notes.uncertain] == ["when 1 delayed message would be delivered"]


@pytest.mark.parametrize("data", [bytes(20), b"\xff" * 20, bytes(11) + b"\x09" * 9], ids=["zeros", "ones", "nowhere"])
def test_damaged_units(tmp_path: Path, data: bytes) -> None:
    """A queue ends at a unit that is not written; of what is behind, and of what points to no message, is said so."""
    store, _ = store_of_levels(tmp_path)
    path = store / "consumequeue" / SCHEDULE / "2" / ("0" * 20)
    units = bytearray(path.read_bytes())
    units[UNIT_SIZE : 2 * UNIT_SIZE] = data
    path.write_bytes(units)
    work = work_of(store)
    assert counts(work)["delay"] < 3
    assert [note.what.partition(" of ")[2] for note in work.notes.unread] == [f"{SCHEDULE}, queue 2"]


def test_a_queue_that_is_gone(tmp_path: Path) -> None:
    """Its messages are in the log, and its level was delivered further than the queue goes."""
    store, _ = store_of_levels(tmp_path)
    shutil.rmtree(store / "consumequeue" / SCHEDULE / "2")
    work = work_of(store)
    assert counts(work) == {"delay": 1}
    where = f"messages of {SCHEDULE}, queue 2"
    assert [note.what for note in work.notes.unread] == [f"3 {where}", where]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.sampled_from((1, 2, 3, 18)), max_size=25),
    st.dictionaries(st.sampled_from((1, 2, 3)), st.integers(-2, 30)),
    st.integers(-5, 400_000),
)
def test_any_levels(
    tmp_path_factory: pytest.TempPathFactory, levels: list[int], delivered: dict[int, int], later: int
) -> None:
    """Counts, dues and order are those of a plain list."""
    builder, now, expected = WaitingStore(), START_TIME + later, []
    builder.message("orders")
    for level in levels:
        queue_offset = builder.next_offsets.get((SCHEDULE, level - 1), 0)
        due = builder.delay(level)
        if queue_offset >= delivered.get(level, 0):
            expected.append((due, (SCHEDULE, level - 1, queue_offset)))
    builder.delivered = delivered
    work = work_of(builder.build(tmp_path_factory.mktemp("any")), now)
    assert places(rows_of(work)) == [place for _, place in sorted(expected)]
    assert (work.owed.messages, work.owed.overdue) == (len(expected), sum(due < now for due, _ in expected))
    upcoming = [due for due, _ in expected if due >= now]
    assert work.owed.next_due == min(upcoming, default=None)
