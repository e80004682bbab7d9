"""A rebuild that follows a loss leaves a record of it; one that loses nothing leaves none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.rebuild.apply import apply_plan
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import open_store
from rmqtool.transaction.losses import Loss, acknowledge, recorded_losses
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo
from tests.commands.running import rmqtool
from tests.verify.damages import (
    FILE,
    LAST_FILE,
    OFFSETS,
    append_unit,
    cut_queue,
    log_file,
    patch,
    patch_log,
    remove,
    tear,
)
from tests.verify.small_store import FILE_SIZE, TOPICS, small_log, small_store
from tests.verify.verifying import codes_of, verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def rebuild(store: Path, *parts: Part, neutralise: bool = False) -> str | None:
    """Rebuild parts of a store; the transaction, None when nothing was to be done."""
    opened = open_store(store)
    options = RebuildOptions(frozenset(parts), version=parse_version("5.3.3"), neutralise=neutralise)
    with Transaction(opened, "rebuild-cq" if "queues" in parts else "rebuild-index") as transaction:
        plan = make_plan(open_source(opened, options))
        return None if plan.is_empty else apply_plan(plan, transaction).id


def losses(store: Path) -> list[Loss]:
    """What is recorded."""
    return [recorded.loss for recorded in recorded_losses(store) if recorded.loss]


def topics_behind(physical_offset: int) -> Counter[str]:
    """How many messages of each topic stand at an offset or after it."""
    numbers = [number for number, offset in enumerate(OFFSETS) if offset >= physical_offset]
    return Counter(TOPICS[2] if number % 7 == 3 else TOPICS[number % 2] for number in numbers)


LAST = (len(small_log().files) - 1) * FILE_SIZE


def test_a_lost_last_file(store: Path) -> None:
    """Its name, its messages by topic, the units by queue; the index adds what it knew."""
    log_file(store, -1).unlink()
    assert rebuild(store, "queues")
    [loss] = losses(store)
    assert loss.files == (f"commitlog/{file_name(LAST)} ({FILE_SIZE} bytes)",)
    assert loss.messages == topics_behind(LAST)
    assert sum(each.units for each in loss.dropped) == topics_behind(LAST).total()
    assert loss.command == "rebuild-cq"
    assert rebuild(store, "index")
    _, second = losses(store)
    assert second.command == "rebuild-index"
    assert "knew a message of" in second.proofs[0]
    assert not second.dropped
    assert not second.files


@pytest.mark.slow
def test_the_proof_is_told_when_all_else_is_gone(store: Path) -> None:
    """The way of the printed steps: both rebuilt, and the replaced files let go."""
    log_file(store, -1).unlink()
    rebuild(store, "queues")
    rebuild(store, "index")
    with Undo(store) as undo:
        undo.discard()
    assert "store.recorded-loss" in codes_of(verify(store))
    assert len(acknowledge(store)) == 2
    assert "store.recorded-loss" not in codes_of(verify(store))


def test_a_record_changes_no_verdict(store: Path) -> None:
    """The store that is there is sound; the exit status says that something is to be known."""
    assert verify(store).verdict == "clean"
    (store / ".rmqtool/losses").mkdir(parents=True)
    (store / ".rmqtool/losses/0001-000000000000.json").write_bytes(b"garbage")
    outcome = verify(store)
    assert (outcome.verdict, outcome.status, codes_of(outcome)) == ("clean", 1, {"store.recorded-loss"})


@pytest.mark.slow
def test_a_lost_file_in_the_middle(store: Path) -> None:
    """An extent that no file holds; a second rebuild of whatever says nothing new."""
    log_file(store, 1).unlink()
    assert rebuild(store, "queues")
    [loss] = losses(store)
    assert loss.files == (f"commitlog/{file_name(FILE_SIZE)} ({FILE_SIZE} bytes)",)
    assert [(each.size, each.reason) for each in loss.extents] == [(FILE_SIZE, "missing")]
    assert loss.bytes == FILE_SIZE
    assert rebuild(store, "queues") is None
    rebuild(store, "index")
    cut_queue(store)
    assert rebuild(store, "queues")
    assert losses(store) == [loss]


def test_neutralised_damage(store: Path) -> None:
    """The bytes are kept until undo --discard, the record stays."""
    patch_log(OFFSETS[10], bytes(4) + b"\1\2\3\4" + bytes(50))(store)
    assert rebuild(store, "queues", neutralise=True)
    [loss] = losses(store)
    assert [each.physical_offset for each in loss.extents] == [OFFSETS[10]]
    assert sum(loss.messages.values()) == 1
    cut_queue(store)
    assert rebuild(store, "queues", neutralise=True)
    assert losses(store) == [loss]


def test_messages_at_the_ends_of_queues_are_counted(store: Path) -> None:
    """No placeholder stands for the last messages of a queue: the units that led into the damage tell them."""
    first = len(OFFSETS) - 9
    damage = OFFSETS[-1] - OFFSETS[first]
    patch_log(OFFSETS[first], bytes(damage))(store)
    assert rebuild(store, "queues", neutralise=True)
    [loss] = losses(store)
    assert loss.messages == topics_behind(OFFSETS[first]) - topics_behind(OFFSETS[-1])


def test_undo_and_again(store: Path) -> None:
    """The record goes with the undo, and comes again with the same rebuild."""
    log_file(store, -1).unlink()
    rebuild(store, "queues")
    with Undo(store) as undo:
        undo.put_back()
    assert losses(store) == []
    assert not (store / ".rmqtool").exists()
    rebuild(store, "queues")
    assert len(losses(store)) == 1


def _power_loss(store: Path) -> None:
    """The log's last pages are gone, the queues' are not."""
    tear(store)
    (store / "abort").touch()


HARMLESS: dict[str, Callable[[Path], object]] = {
    "a queue behind": cut_queue,
    "no queue": lambda store: remove(store / "consumequeue/orders/0"),
    "no queues": lambda store: remove(store / "consumequeue/orders"),
    "no index": lambda store: remove(store / "index"),
    "power loss": _power_loss,
    "a unit of zeros": patch(FILE, 60, bytes(20)),
    "a unit that leads far away": patch(FILE, 60, b"\0\1"),
    "a last unit that leads far away": patch(LAST_FILE, 0, b"\0\0\1"),
    "a unit of the log past the end": append_unit(build_unit(OFFSETS[0], 200, 0)),
    "an index unit": patch("index/20231114221320001", 300, b"\x77" * 8),
    "an index header": patch("index/20231114221320001", 24, b"\0\0\0\7"),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_loses_nothing_is_not_recorded(store: Path, case: str) -> None:
    """All of it is derived again, or an unclean stop took it."""
    HARMLESS[case](store)
    done = [rebuild(store, "queues"), rebuild(store, "index")]
    assert any(done)
    assert losses(store) == []


def test_behind_the_last_file_an_unclean_stop_is_no_excuse(store: Path) -> None:
    """No power loss takes a whole file."""
    log_file(store, -1).unlink()
    (store / "abort").touch()
    rebuild(store, "queues")
    assert losses(store)[0].messages == topics_behind(LAST)


@pytest.mark.slow
def test_random_flips_of_queues_are_no_loss(store: Path) -> None:
    """What a rebuild fixes in the queues was never after the log's end."""
    chance = random.Random(1)
    for _ in range(10):
        path = chance.choice([path for path in (store / "consumequeue").rglob("*") if path.is_file()])
        data = bytearray(path.read_bytes())
        position = chance.randrange(max(1, len(bytes(data).rstrip(b"\0"))))
        data[position] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        rebuild(store, "queues")
        assert losses(store) == []


@pytest.mark.slow
def test_the_command_leaves_the_record(store: Path) -> None:
    """And verify tells it in text and JSON."""
    log_file(store, -1).unlink()
    assert rmqtool("rebuild-cq", store, "--yes", "--broker-version", "5.3.3").status == 0
    assert rmqtool("undo", store, "--discard", "--yes").status == 0
    told = rmqtool("verify", store, "--only", "store", "--json")
    [found] = [each for each in told.document["findings"] if each["code"] == "store.recorded-loss"]
    assert "missing: commitlog/" in found["message"]
    assert told.status == 1
