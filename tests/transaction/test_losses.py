"""Records of losses: with their transaction or gone with its undo, kept by a discard, told until acknowledged."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from rmqtool.base.errors import RmqtoolError, UnwritableError
from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.losses import (
    MAX_LISTED,
    DroppedUnits,
    Loss,
    LostExtent,
    acknowledge,
    loss_findings,
    recorded_losses,
)
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo, kept_transactions
from tests.rights import NOBODY, needs_root
from tests.sampling import one_in
from tests.transaction.disk import Disk, Recorder, write_contents
from tests.transaction.faults import FAULTS, Fault, points, recover, run_with
from tests.transaction.small import NoExchange, make_store, put, tree, undo
from tests.unchanged import unchanged

LOSS = Loss(
    "rebuild-cq",
    1_700_000_000_000,
    4396,
    (LostExtent(4096, 4096, "missing"), LostExtent(9000, 300, "magic-code")),
    (DroppedUnits("orders", 3, 20), DroppedUnits("%RETRY%a", 0, 2)),
    ("commitlog/00000000000000004096 (4096 bytes)",),
    {"orders": 20, "%RETRY%a": 2},
    ("index/20231114221320001 knew a message of 2023-11-14T22:13:20.000Z at 9900",),
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def lossy(root: Path, system: System = SYSTEM, *, text: bytes = b"A 0 new", loss: Loss = LOSS) -> None:
    """Replace a queue, and record a loss."""
    with Transaction(root, "test", system) as transaction:
        put(transaction, "consumequeue/A/0/00000000000000000000", text, at="consumequeue/A/0")
        transaction.record(loss)
        transaction.commit()


def discard(root: Path, system: System = SYSTEM) -> None:
    """Let go of the replaced files."""
    with Undo(root, system) as session:
        session.discard()


def losses(root: Path) -> list[Loss | None]:
    """What is recorded."""
    with unchanged(root):
        return [recorded.loss for recorded in recorded_losses(root)]


def test_a_record_says_what_was_recorded(store: Path) -> None:
    """And is told as a finding, with the file that it stands in."""
    assert losses(store) == []
    lossy(store)
    assert losses(store) == [LOSS]
    [found] = loss_findings(store)
    assert found.severity == CATALOGUE["store.recorded-loss"].severity == "warning"
    assert (store / str(found.file)).is_file()
    for word in ("rebuild-cq of 2023-11-14T22:13:20.000Z", "4396 bytes", "22 entries of 2 queues", "orders 20", "9900"):
        assert word in found.message


def test_undo_takes_the_record_back(store: Path) -> None:
    """The proof is there again."""
    lossy(store)
    undo(store, SYSTEM)
    assert losses(store) == []
    assert not (store / ".rmqtool").exists()


def test_discard_keeps_the_record(store: Path) -> None:
    """Until it is acknowledged; then nothing of ours is left, and the store is as it was."""
    lossy(store)
    after = tree(store)
    discard(store)
    assert losses(store) == [LOSS]
    assert kept_transactions(store) == []
    discard(store)
    assert losses(store) == [LOSS]
    assert [recorded.loss for recorded in acknowledge(store)] == [LOSS]
    assert losses(store) == []
    assert acknowledge(store) == []
    assert not (store / ".rmqtool").exists()
    assert tree(store) == after


def test_records_add_up(store: Path) -> None:
    """One transaction may record several, and those of discarded ones stay beside new ones."""
    lossy(store)
    discard(store)
    other = Loss("rebuild-index", 1, proofs=("x",))
    with Transaction(store, "test") as transaction:
        put(transaction, "checkpoint", b"other")
        transaction.record(other)
        transaction.record(LOSS)
        transaction.commit()
    assert losses(store) == [LOSS, other, LOSS]
    undo(store, SYSTEM)
    assert losses(store) == [LOSS]


def test_the_same_repair_again_has_its_own_record(store: Path) -> None:
    """A discarded one keeps its number: an undo takes back the record of its own run only."""
    path = store / "consumequeue/A/0/00000000000000000000"
    data = path.read_bytes()
    lossy(store)
    lossy(store, text=data)
    discard(store)
    path.write_bytes(data)
    lossy(store)
    assert losses(store) == [LOSS] * 3
    undo(store, SYSTEM)
    assert losses(store) == [LOSS] * 2


def test_where_nothing_changes_nothing_is_recorded(store: Path) -> None:
    """A second run finds all done."""
    lossy(store)
    lossy(store)
    assert losses(store) == [LOSS]


def test_acknowledged_before_it_is_undone(store: Path) -> None:
    """The transaction stays as it is, and can be undone."""
    before = tree(store)
    lossy(store)
    acknowledge(store)
    assert losses(store) == []
    undo(store, SYSTEM)
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()


def test_a_broker_may_run_while_it_is_acknowledged(store: Path) -> None:
    """Nothing that a broker reads is touched, and its lock is not asked for."""
    lossy(store)
    with Transaction(store, "test"):
        acknowledge(store)
    assert losses(store) == []


@needs_root
def test_the_brokers_user_reads_what_root_has_recorded(public_path: Path) -> None:
    """With and without its transaction; nobody else does."""
    store = make_store(public_path / "store")
    os.chown(store, NOBODY, NOBODY)
    lossy(store)
    for _ in range(2):
        with as_user(NOBODY):
            assert losses(store) == [LOSS]
            assert interrupted(store) is None
        with as_user(NOBODY - 1), pytest.raises(RmqtoolError):
            recorded_losses(store)
        discard(store)


@contextmanager
def as_user(number: int) -> Iterator[None]:
    """Have the rights of a user."""
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


def test_long_lists_are_cut(store: Path) -> None:
    """The record stays small; what it counts is all."""
    many = tuple(LostExtent(number * 100, 50, "zeroed") for number in range(10_000))
    lossy(store, loss=Loss("rebuild-cq", 1, bytes=500_000, extents=many))
    [recorded] = recorded_losses(store)
    assert recorded.loss
    assert (len(recorded.loss.extents), recorded.loss.bytes) == (MAX_LISTED, 500_000)
    assert (store / recorded.file).stat().st_size < 100_000


GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"\0\xff{",
    "a list": b"[]",
    "another format": b'{"format": "rmqtool.loss/9", "losses": []}',
    "no list": b'{"format": "rmqtool.loss/1", "losses": 7}',
    "no loss": b'{"format": "rmqtool.loss/1", "losses": [{}]}',
    "wrong types": b'{"format": "rmqtool.loss/1", "losses": [{"command": 1, "time": "x"}]}',
    "deep": b"[" * 100_000,
    "no number": b'{"format": "rmqtool.loss/1", "losses": [{"command": "a", "time": 1e999}]}',
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("place", ["losses/0001-000000000000.json", "losses/x", "transaction"])
@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_told(store: Path, case: str, place: str) -> None:
    """By its name; it is acknowledged like a record."""
    lossy(store)
    path = next((store / ".rmqtool").glob("*/loss.json")) if place == "transaction" else store / ".rmqtool" / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(GARBAGE[case])
    assert None in losses(store)
    assert str(path.relative_to(store)) in [found.file for found in loss_findings(store)]
    acknowledge(store)
    assert losses(store) == []
    undo(store, SYSTEM)


def test_cut_and_flipped_records_are_told(store: Path) -> None:
    """Whatever is left of one, it is a record or told as none."""
    lossy(store)
    path = next((store / ".rmqtool").glob("*/loss.json"))
    data, chance = path.read_bytes(), random.Random(1)
    for _ in range(60):
        flipped = bytearray(data[: chance.randrange(len(data))] if chance.random() < 0.5 else data)
        for _ in range(chance.randrange(3)):
            if flipped:
                flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        assert list(loss_findings(store)) or json.loads(flipped)["losses"] == []


def test_what_stands_in_the_place_of_records_is_told(store: Path) -> None:
    """A directory for a record; a file for the directory."""
    (store / ".rmqtool/losses/0001-000000000000.json/x").mkdir(parents=True)
    assert losses(store) == [None]
    acknowledge(store)
    assert not (store / ".rmqtool").exists()


def test_no_right_to_acknowledge(store: Path) -> None:
    """Says which file, and changes nothing."""
    lossy(store)

    class Forbidden(System):
        def unlink(self, path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

    with pytest.raises(UnwritableError, match="permission denied"):
        acknowledge(store, Forbidden())
    assert losses(store) == [LOSS]


# Kills, errors, power


def is_recorded(root: Path) -> bool:
    """Whether exactly the one loss is recorded."""
    found = [recorded.loss for recorded in recorded_losses(root)]
    assert found in ([], [LOSS])
    return found == [LOSS]


ACTIONS: dict[str, Callable[[Path, System], None]] = {"commit": lossy, "undo": undo, "discard": discard}


def begun(root: Path, action: str) -> Path:
    """A store as before the action."""
    make_store(root)
    if action != "commit":
        lossy(root)
    return root


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    "system", [pytest.param(SYSTEM, id="all"), pytest.param(NoExchange(), id="no-exchange", marks=pytest.mark.rare)]
)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_a_call(scratch: Path, fault: Fault, action: str, system: System) -> None:
    """The record is there exactly where the store is as the transaction left it."""
    before = tree(make_store(scratch / "before"))
    lossy(scratch / "before")
    after = tree(scratch / "before")
    names = run_with(system, None, -1, partial(ACTIONS[action], begun(scratch / "counted", action)))[0].names
    for at in one_in(2, points(names, fault), f"{fault} {action}"):
        root = begun(scratch / "store", action)
        run_with(system, fault, at, partial(ACTIONS[action], root))
        recover(root, system)
        assert tree(root) == (after if is_recorded(root) else before), (at, names[at])
        if action == "discard" and kept_transactions(root):
            undo(root, system)
            assert not is_recorded(root)
            assert not (root / ".rmqtool").exists()
        shutil.rmtree(root)


@pytest.mark.one_in(9)
@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_power_fails_at_every_call(scratch: Path, action: str) -> None:
    """Whatever the disk has kept: as above."""
    before = tree(make_store(scratch / "before"), details=False)
    root = begun(scratch / "store", action)
    disk, recorder = Disk(root), Recorder(SYSTEM)
    ACTIONS[action](root, cast(System, recorder))
    after = tree(lossy_copy(scratch / "after"), details=False)
    chance = random.Random(1)
    for number, (name, arguments) in enumerate(recorder.calls):
        disk.play(name, arguments)
        for kept, with_bytes in one_in(3, [*disk.crashes(chance)], f"{action} {number}"):
            crashed = scratch / "crashed"
            write_contents(disk.after(kept, with_bytes=with_bytes), crashed)
            with Undo(crashed):
                pass
            expected = after if is_recorded(crashed) else before
            assert tree(crashed, details=False) == expected, (number, name, arguments)
            shutil.rmtree(crashed)


def lossy_copy(root: Path) -> Path:
    """A store after the transaction."""
    lossy(make_store(root))
    return root
