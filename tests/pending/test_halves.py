"""Half messages that no op message ends, and copies that the broker made when it asked their producers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.building import START_TIME
from tests.pending.waiting_store import HALF, OP, TRANSACTIONS, WaitingStore, counts, rows_of, work_of

TIMEOUT = 6_000  # transactionTimeOut, ms


def offsets_in(root: Path) -> list[int]:
    """Queue offsets of the half messages without an answer."""
    return sorted(row["queue_offset"] for row in rows_of(work_of(root), "half"))


def test_ended_ones_do_not_wait(tmp_path: Path) -> None:
    """One op message may end several; the row says where the message goes and whose it is."""
    builder = WaitingStore()
    for _ in range(5):
        builder.half()
    builder.op(0, 3)
    builder.op(2)
    work = work_of(builder.build(tmp_path))
    rows = rows_of(work)
    assert [row["queue_offset"] for row in rows] == [1, 4]
    assert {(row["kind"], row["to_topic"], row["group"], row["due_timestamp"]) for row in rows} == {
        ("half", "payments", "payers", START_TIME + TIMEOUT)
    }
    assert [note.what for note in work.notes.uncertain] == ["whether half messages are committed or rolled back"]
    assert work.is_whole


def test_committed_offsets(tmp_path: Path) -> None:
    """What lies before the offset of the transaction service was ended or put back, whatever the op messages say."""
    builder = WaitingStore()
    for _ in range(4):
        builder.half()
    builder.op(0)
    builder.op(3)
    builder.committed = {(TRANSACTIONS, HALF): 2, (TRANSACTIONS, OP): 1}
    assert offsets_in(builder.build(tmp_path)) == [2]


def test_copies(tmp_path: Path) -> None:
    """Of a half message and its copies only the newest counts; an answer to the first one ends all of them."""
    builder = WaitingStore()
    first, second = builder.half(), builder.half()
    builder.half(TRAN_PREPARED_QUEUE_OFFSET=str(first))
    builder.half(TRAN_PREPARED_QUEUE_OFFSET=str(second))
    again = builder.half(TRAN_PREPARED_QUEUE_OFFSET=str(second))
    builder.op(first)
    assert offsets_in(builder.build(tmp_path)) == [again]


def test_when_a_producer_is_asked(tmp_path: Path) -> None:
    """By the setting of the broker, or as the message wants it."""
    builder = WaitingStore()
    builder.half()
    builder.half(CHECK_IMMUNITY_TIME_IN_SECONDS="90")
    rows = rows_of(work_of(builder.build(tmp_path), conf="transactionTimeOut=3000\n"))
    assert [row["due_timestamp"] - START_TIME for row in rows] == [3000, 90_000]


def test_a_damaged_op_message(tmp_path: Path) -> None:
    """What it ended cannot be known: it counts as waiting, and that is said."""
    builder = WaitingStore()
    builder.half()
    at = builder.message(OP, 0, b"0,", TAGS="d")
    store = builder.build(tmp_path)
    with next((store / "commitlog").iterdir()).open("r+b") as log:
        log.seek(at + 4)
        log.write(b"\0\0\0\0")
    work = work_of(store)
    assert [row["queue_offset"] for row in rows_of(work)] == [0]
    assert [note.what for note in work.notes.unread] == [f"1 message of {OP}, queue 0"]


@pytest.mark.parametrize("text", [None, "{", "\0\0"])
def test_without_committed_offsets(tmp_path: Path, text: str | None) -> None:
    """All that is in the topic counts, and that is said."""
    builder = WaitingStore()
    builder.half()
    store = builder.build(tmp_path)
    path = store / "config" / "consumerOffset.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert any("consumerOffset.json" in note.why for note in work_of(store).notes.uncertain)


def test_halves_in_rocksdb(tmp_path: Path) -> None:
    """Without rows they are lost after a clean stop; after a crash nobody knows."""
    builder = WaitingStore()
    builder.message("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
    root = builder.build(tmp_path)
    assert counts(work_of(root)) == {"lost-half": 1}
    (root / "abort").touch()
    work = work_of(root)
    assert not work.is_whole
    assert "RocksDB" in work.notes.unread[0].why


@settings(max_examples=40)
@pytest.mark.slow
@given(
    st.lists(st.integers(0, 11) | st.none(), max_size=20),
    st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=6),
    st.integers(0, 22),
    st.integers(0, 7),
)
def test_any_transactions(
    tmp_path_factory: pytest.TempPathFactory,
    firsts: list[int | None],
    ops: list[list[int]],
    half_offset: int,
    op_offset: int,
) -> None:
    """As the broker goes through its queues one by one (`TransactionalMessageServiceImpl#check`)."""
    builder = WaitingStore()
    copies: dict[int, int] = {}
    builder.message("orders")
    for first in firsts:
        number = builder.next_offsets.get((HALF, 0), 0)
        if first is not None and first < number:
            copies[number] = first
        builder.half(**({"TRAN_PREPARED_QUEUE_OFFSET": str(first)} if number in copies else {}))
    for op in ops:
        builder.op(*op)
    builder.committed = {(TRANSACTIONS, HALF): half_offset, (TRANSACTIONS, OP): op_offset}
    ended = {offset for op in ops[op_offset:] for offset in op}
    alive = range(half_offset, len(firsts))
    newest = {first: copy for copy, first in copies.items() if copy in alive}
    superseded = {*newest, *(copy for copy, first in copies.items() if newest.get(first, copy) != copy)}
    expected = [
        number
        for number in alive
        if number not in ended and number not in superseded and copies.get(number) not in ended
    ]
    store = builder.build(tmp_path_factory.mktemp("any"))
    assert offsets_in(store) == expected
