"""Half messages before the committed offset of the transaction service."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from rmqtool.broker import half_messages
from rmqtool.clients.never_delivered import half_messages_unchecked
from rmqtool.rules.versions import Version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.pending.waiting_store import HALF, OP, TRANSACTIONS, WaitingStore, counts, work_of
from tests.real_broker.client_facts import View, difference, view_of


def unchecked(builder: WaitingStore, root: Path) -> int:
    store = builder.build(root)
    found = half_messages_unchecked(Snapshot(open_store(store)))
    assert counts(work_of(store)).get("lost-half", 0) == found
    return found


@pytest.mark.parametrize(("committed", "expected"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 2), (9, 2)])
def test_those_before_the_offset(tmp_path: Path, committed: int, expected: int) -> None:
    """Of five half messages op messages end three; the others are passed over once the offset is past them."""
    builder = WaitingStore()
    for _ in range(5):
        builder.half()
    builder.op(0, 2)
    builder.op(3)
    builder.committed = {(TRANSACTIONS, HALF): committed, (TRANSACTIONS, OP): 2}
    assert unchecked(builder, tmp_path) == expected


@pytest.mark.parametrize(("release", "expected"), [((4, 4, 0), 0), ((4, 9, 3), 0), ((4, 9, 4), 2), ((5, 5, 1), 2)])
def test_an_offset_past_the_end(tmp_path: Path, release: tuple[int, int, int], expected: int) -> None:
    """Before 4.9.4 a broker begins with 0 again, and checks them all."""
    builder = WaitingStore()
    builder.half()
    builder.half()
    builder.op()
    builder.committed = {(TRANSACTIONS, HALF): 9}
    assert half_messages_unchecked(Snapshot(open_store(builder.build(tmp_path)), Version(*release))) == expected


def test_op_messages_without_their_queue(tmp_path: Path) -> None:
    """They are read from the log: a start or a repair derives their queue again."""
    builder = WaitingStore()
    for _ in range(5):
        builder.half()
    builder.op(0, 2)
    builder.op(3)
    builder.committed = {(TRANSACTIONS, HALF): 4, (TRANSACTIONS, OP): 2}
    store = builder.build(tmp_path)
    shutil.rmtree(store / "consumequeue" / OP)
    assert half_messages_unchecked(Snapshot(open_store(store))) == 1


def test_copies_and_what_is_given_up(tmp_path: Path) -> None:
    """One with a later copy waits there; one that was asked for often enough is given up."""
    builder = WaitingStore()
    first = builder.half(UNIQ_KEY="K1")
    builder.half(TRANSACTION_CHECK_TIMES="15")
    builder.half(UNIQ_KEY="K1", TRANSACTION_CHECK_TIMES="1")
    builder.half(TRAN_PREPARED_QUEUE_OFFSET=str(first))
    builder.op(first)
    builder.committed = {(TRANSACTIONS, HALF): 2, (TRANSACTIONS, OP): 0}
    assert unchecked(builder, tmp_path) == 0


@pytest.mark.parametrize("kept", [3, 2, 1])
def test_copies_past_the_end_of_the_queue(tmp_path: Path, kept: int) -> None:
    """A queue that was cut has lost the entry of the copy: the log has it."""
    builder = WaitingStore()
    for key in ("K1", "K2", "K1"):
        builder.half(UNIQ_KEY=key)
    builder.op(1)
    builder.committed = {(TRANSACTIONS, HALF): 2, (TRANSACTIONS, OP): 0}
    store = builder.build(tmp_path)
    (file,) = (store / "consumequeue" / HALF / "0").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[: 20 * kept].ljust(len(data), b"\0"))
    assert half_messages_unchecked(Snapshot(open_store(store))) == 0


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(("place", "data", "expected"), [(4, b"\0", 0), (20, b"\1", 0), (28, b"\1", 0), (0, None, 1)])
def test_copies_in_damage(tmp_path: Path, place: int, data: bytes | None, expected: int, *, is_last: bool) -> None:
    """A damaged copy of which the unique key is left is out of reach itself; of zeros nothing shows one."""
    builder = WaitingStore()
    for key in ("K1", "K2"):
        builder.half(UNIQ_KEY=key)
    builder.op(1)
    at, copy = len(builder.files[-1]), builder.half(UNIQ_KEY="K1")
    end = len(builder.files[-1])
    if not is_last:
        builder.message("orders")
    builder.committed = {(TRANSACTIONS, HALF): copy, (TRANSACTIONS, OP): 0}
    store = builder.build(tmp_path)
    with next((store / "commitlog").iterdir()).open("r+b") as log:
        log.seek(at + place)
        log.write(bytes(end - at) if data is None else data)
    assert half_messages_unchecked(Snapshot(open_store(store))) == expected


def test_copies_with_a_damaged_unit(tmp_path: Path) -> None:
    """No unit points to the copy until the queue is derived again: the log has it."""
    builder = WaitingStore()
    for key in ("K1", "K2", "K1", "K3"):
        builder.half(UNIQ_KEY=key)
    builder.op(1)
    builder.committed = {(TRANSACTIONS, HALF): 2, (TRANSACTIONS, OP): 0}
    store = builder.build(tmp_path)
    (file,) = (store / "consumequeue" / HALF / "0").iterdir()
    with file.open("r+b") as units:
        units.seek(20 * 2)
        units.write(b"\1" * 20)
    assert half_messages_unchecked(Snapshot(open_store(store))) == 0


def test_piece_by_piece(tmp_path: Path) -> None:
    """They are read from the offset back, as long as a piece holds one that waits."""
    builder = WaitingStore()
    for _ in range(9):
        builder.half()
    builder.committed = {(TRANSACTIONS, HALF): 8}
    with patch.object(half_messages, "_PIECE", 3):
        assert unchecked(builder, tmp_path) == 8


@pytest.mark.parametrize(
    ("committed", "next_offset", "checked"), [(2, 2, {2, 3, 4}), (9, 0, {0, 1, 2, 3, 4}), (9, 5, set())]
)
def test_what_a_broker_checks(committed: int, next_offset: int, checked: set[int]) -> None:
    """It goes on where its pull leads (`TransactionalMessageServiceImpl#check`): past the end to 0 before 4.9.4."""
    pulls = [[offset, offset, 100 * offset, 100, 1] for offset in range(5)]
    place = f"{HALF}@{TRANSACTIONS}/0"
    queues = {f"{HALF}/0": {"min_offset": 0, "max_offset": 5, "pulls": pulls, "units": []}}
    clients = {"queues": queues, "keys": {}, "groups": {place: next_offset}, "filters": []}
    facts: dict[str, Any] = {
        "refuses": None,
        "clients": clients,
        "committed": {place: committed},
        "delays": {},
        "timers": [],
    }
    assert view_of(facts).half == checked


def test_an_entry_that_leads_elsewhere() -> None:
    """A unit in the place of a lost half message points to the next one, which a broker checks twice."""
    had = View(entries={(HALF, 0, 0): (0, 100), (HALF, 0, 1): (100, 100)}, half={0, 1})
    after = View(entries={(HALF, 0, 0): (100, 100), (HALF, 0, 1): (100, 100)}, half={0, 1})
    assert difference(had, after).half_messages_unchecked == [0]
