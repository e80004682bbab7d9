"""What POP consumers took and did not acknowledge; retries and dead letters of all consumers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.building import START_TIME
from tests.pending.waiting_store import REVIVE, REVIVING, TIMER, WaitingStore, counts, places, rows_of, work_of

POPPED = START_TIME + 500
DUE = POPPED + 60_000


def tasks(count: int = 10) -> WaitingStore:
    """A queue of tasks."""
    builder = WaitingStore()
    for _ in range(count):
        builder.message("tasks")
    return builder


def taken(root: Path) -> list[int]:
    """Queue offsets of the messages in flight."""
    return sorted(row["queue_offset"] for row in rows_of(work_of(root), "pop"))


def test_in_a_revive_topic(tmp_path: Path) -> None:
    """A check point less its acknowledgements, single ones and those of a batch, and less its own bits."""
    builder = tasks()
    builder.check_point(so=0, n=4, bm=0, d=[0, 1, 2, 5], pt=POPPED, it=60_000)
    builder.check_point("ack", so=0, pt=POPPED, ao=1)
    builder.check_point(so=6, n=4, bm=0b0100, d=[0, 1, 2, 3], pt=POPPED, it=60_000)
    builder.check_point("bAck", so=6, pt=POPPED, aol=[6])
    builder.check_point("ack", so=6, pt=POPPED + 1, ao=9)  # of another POP
    rows = rows_of(work_of(builder.build(tmp_path)), "pop")
    assert places(rows) == [("tasks", 0, offset) for offset in (0, 2, 5, 7, 9)]
    assert {(row["to_topic"], row["group"], row["due_timestamp"]) for row in rows} == {("tasks", "workers", DUE)}


def test_without_differences(tmp_path: Path) -> None:
    """Early releases write the number of messages only."""
    builder = tasks()
    builder.check_point(so=2, n=3, bm=0, pt=POPPED, it=60_000)
    assert taken(builder.build(tmp_path)) == [2, 3, 4]


def test_in_the_timer(tmp_path: Path) -> None:
    """Until shortly before its time it waits there; it is no timer message of a user."""
    builder = tasks()
    fields: dict[str, Any] = {"t": "tasks", "q": 0, "c": "workers", "so": 0, "pt": POPPED}
    body = json.dumps({**fields, "n": 2, "bm": 0, "it": 60_000}).encode()
    builder.timer(DUE - 1000, REVIVE, body, TAGS="ck")
    builder.timer(DUE, REVIVE, json.dumps({**fields, "ao": 0}).encode(), TAGS="ack")
    work = work_of(builder.build(tmp_path))
    assert counts(work) == {"pop": 1}
    assert places(rows_of(work)) == [("tasks", 0, 1)]


def test_processed_ones(tmp_path: Path) -> None:
    """The revive group commits the last offset that it has processed, not the next one (seen with 5.3.3)."""
    builder = tasks()
    builder.check_point(so=0, n=1, bm=0, pt=POPPED, it=60_000)
    builder.check_point(so=1, n=1, bm=0, pt=POPPED, it=60_000)
    builder.committed = {(REVIVING, REVIVE): 0}
    assert taken(builder.build(tmp_path)) == [1]


@pytest.mark.parametrize(
    "body",
    [
        b"-", b"{", b"[]", b"5", b'{"t":5}', b'{"t":"tasks","c":"g","q":"0"}', b'{"t":"tasks","c":"g","d":5}',
        b'{"t":"tasks","c":"g","d":["x"]}', b'{"t":"tasks","c":"g","so":1e300}', b"\xff\xfe",
        b'{"t":"tasks","c":"g","n":true}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("tag", ["ck", "ack"])
def test_odd_check_points(tmp_path: Path, body: bytes, tag: str) -> None:
    """They are counted as not read."""
    builder = tasks()
    builder.message(REVIVE, 0, body, TAGS=tag)
    work = work_of(builder.build(tmp_path))
    assert counts(work) == {}
    assert [note.what for note in work.notes.unread] == ["1 check point of POP consumers"]


@pytest.mark.parametrize("topic", ["../../config", "nothing", "a\0b", "x" * 300])
def test_topics_that_are_not_there(tmp_path: Path, topic: str) -> None:
    """A message that is gone does not come again."""
    builder = tasks()
    builder.check_point(t=topic, so=0, n=2, bm=0, it=1)
    builder.check_point(so=8, n=127, bm=0, it=1)
    work = work_of(builder.build(tmp_path))
    assert counts(work) == {"pop": 2}
    assert any("POP consumers took" in note.what for note in work.notes.uncertain)


def test_in_rocksdb(tmp_path: Path) -> None:
    """popConsumerKVServiceEnable: not looked at."""
    store = tasks().build(tmp_path)
    assert work_of(store).is_whole
    (store / "kvStore").mkdir()
    (store / "kvStore" / "000004.log").write_bytes(b"x")
    assert [note.what for note in work_of(store).notes.unread] == ["messages that POP consumers took"]


def test_retries_and_dead_letters(tmp_path: Path) -> None:
    """Of a group from its offset on; those of POP name the topic after the group, in two ways."""
    builder = WaitingStore()
    for _ in range(3):
        builder.message("%RETRY%billing", RETRY_TOPIC="payments")
    builder.message("%RETRY%work_ers_tasks")
    builder.message("%RETRY%others+tasks")
    builder.message("%RETRY%lone_some")
    builder.message("%DLQ%billing", DLQ_ORIGIN_TOPIC="payments", RETRY_TOPIC="payments")
    builder.committed = {("billing", "%RETRY%billing"): 2, ("work_ers", "tasks"): 0, ("work", "tasks"): 0}
    rows = rows_of(work_of(builder.build(tmp_path)))
    assert [(row["kind"], row["to_topic"], row["group"], row["queue_offset"]) for row in rows] == [
        ("retry", "payments", "billing", 2),
        ("retry", "%RETRY%lone_some", "lone_some", 0),
        ("retry", "tasks", "others", 0),
        ("retry", "tasks", "work_ers", 0),
        ("dead-letter", "payments", "billing", 0),
    ]
    assert work_of(tmp_path).owed.messages == 4
    assert TIMER not in {row["topic"] for row in rows}
