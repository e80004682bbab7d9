"""What a repair says that it has done for clients, from the files that it has written."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from struct import iter_unpack
from typing import Any

import pytest

import rmqtool.rebuild.plan as rebuild_plan
from rmqtool.base.errors import Exit
from rmqtool.base.mapped_files import MappedFile
from rmqtool.clients.losses import ClientLosses, Due, Had, MovedGroup, Unreachable, UnreachableQueue
from rmqtool.library.store import open_path
from rmqtool.rebuild.neutralise import Patch, patches_of
from rmqtool.rebuild.queue_placement import LostExtents
from rmqtool.repair.proof import Difference, MoreLost, proof_of
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.client_damages import damages
from tests.verify.damages import OFFSETS, patch_log
from tests.verify.losses import Scene
from tests.verify.small_store import FILE_SIZE, small_store

_BODY_CRC = 8  # its place in a record, bytes
HAD = Had({("orders", 0): 10, ("orders", 1): 5}, keys=30)
_A_GROUP = [MovedGroup("billing", "orders", 0, 4, 0)]


def left(messages: int, queue_id: int = 0) -> Unreachable:
    """Queue entries out of reach in one queue."""
    return Unreachable([UnreachableQueue("orders", queue_id, 0, messages)])


AFTER: dict[str, tuple[ClientLosses, list[MoreLost]]] = {
    "nothing": (ClientLosses(had=HAD), []),
    "as planned": (ClientLosses(unreachable=left(2), had=HAD), []),
    "a queue entry more": (ClientLosses(unreachable=left(3), had=HAD), [MoreLost("unreachable", 2, 3, "orders", 0)]),
    "of another queue": (
        ClientLosses(unreachable=left(1, 1), had=HAD),
        [MoreLost("unreachable", 0, 1, "orders", 1)],
    ),
    "no trace is left": (
        ClientLosses(had=Had({("orders", 0): 10, ("orders", 1): 3}, keys=28)),
        [MoreLost("unreachable", 0, 2, "orders", 1), MoreLost("keys_not_found", 1, 2)],
    ),
    "keys": (ClientLosses(keys_not_found=4, had=HAD), [MoreLost("keys_not_found", 1, 4)]),
    "delays": (ClientLosses(delayed=Due(never=1), had=HAD), [MoreLost("delayed_never", 0, 1)]),
    "groups": (ClientLosses(groups=_A_GROUP, had=HAD), [MoreLost("groups", 0, 1)]),
    "no start": (ClientLosses(refuses="a file is too short"), [MoreLost("refuses", 0, 1)]),
}


@pytest.mark.parametrize("name", AFTER)
def test_what_is_lost_is_held_against_the_plan(name: str) -> None:
    """What was served and is not any more counts, also where nothing in the repaired store shows it."""
    after, more = AFTER[name]
    before = ClientLosses(unreachable=left(7), keys_not_found=9, had=HAD)
    planned = Difference(before, ClientLosses(unreachable=left(2), keys_not_found=1, had=HAD))
    assert list(proof_of(planned, after).more_lost) == more
    assert planned.as_json() == {
        "brings_back": {"unreachable": 5, "keys_not_found": 8},
        "leaves": {"unreachable": 2, "keys_not_found": 1},
        "takes": {},
    }


def test_what_is_not_known_is_not_held_against_it() -> None:
    """A start that is not predicted."""
    assert proof_of(None, ClientLosses(keys_not_found=1)).more_lost == ()
    assert proof_of(Difference(ClientLosses(), ClientLosses()), None).clients is None


def _repair(store: Path) -> tuple[int, dict[str, Any]]:
    done = rmqtool("--json", "repair", store, "--yes")
    return done.status, done.document["result"]


def _damaged(root: Path) -> Path:
    store = small_store(root)
    patch_log(OFFSETS[4] + 95, b"\xff\xff")(store)
    return store


@pytest.mark.slow
def test_a_repair_proves_what_it_has_done(tmp_path: Path) -> None:
    """The proof is that of the plan."""
    store = _damaged(tmp_path / "store")
    (step,) = (each for each in rmqtool("--json", "verify", store).document["result"]["plan"]["steps"]
               if each["clients"])  # fmt: skip
    assert step["clients"]["takes"] == {}
    status, result = _repair(store)
    assert result["proof"]["more_lost"] == []
    assert status != Exit.LOSSY


@pytest.mark.slow
def test_a_step_that_takes_more_than_the_plan_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dummy record that covers the neighbour of the damage, too: it is said, with the way back."""

    def too_much(lost: LostExtents, files: Sequence[MappedFile]) -> list[Patch]:
        patches = patches_of(lost, files)
        later = [offset for offset in OFFSETS if offset // FILE_SIZE == patches[0].physical_offset // FILE_SIZE]
        end = next(each for each in later if each > patches[0].physical_offset + patches[0].size)
        return [replace(patches[0], size=end - patches[0].physical_offset), *patches[1:]]

    monkeypatch.setattr(rebuild_plan, "patches_of", too_much)
    store = _damaged(tmp_path / "store")
    kept = copied(store, tmp_path / "kept")
    status, result = _repair(store)
    monkeypatch.undo()
    assert [each["kind"] for each in result["proof"]["more_lost"]] == ["unreachable", "keys_not_found"]
    assert status == Exit.LOSSY
    monkeypatch.setattr(rebuild_plan, "patches_of", too_much)
    done = rmqtool("repair", kept, "--yes")
    assert done.status == Exit.LOSSY
    assert "not as planned" in done.out
    assert f"rmqtool undo {kept}" in done.out


EQUAL = (
    ("4.7.1-shop", "a delay queue: a due time changed", 5),
    ("4.9.7-shop", "queues of a topic deleted", 1),
    ("4.9.7-shop", "a record zeroed", 1),
    ("5.3.3-shop", "a record: body flipped", 3),  # of a batch
    ("5.3.3-shop", "a queue: first file deleted", 2),
    ("4.9.7-trimmed", "a record: body CRC flipped", 24),  # of a delayed message
)
"""A store, a damage, and where: what the plan says is what a start of the repaired store gives, no less and no more."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "damage", "seed"), EQUAL)
def test_the_plan_says_what_the_repaired_store_gives(
    unpacked: GoldenStore, tmp_path: Path, name: str, damage: str, seed: int
) -> None:
    """Counted in both ways: by the plan, and from what was served before and is afterwards."""
    store = copied(unpacked(name), tmp_path / "store")
    (loss,) = (each for each in damages() if each.name == damage)
    assert loss.apply(Scene(store, None, random.Random(str(seed))))
    before = open_path(store).verify()
    had, planned = before.outcome.clients, before.plan.clients
    assert rmqtool("--json", "repair", store, "--yes").document["result"]["proof"]["more_lost"] == []
    after = open_path(store).verify().outcome.clients
    assert had is not None
    assert planned is not None
    assert after is not None
    gone = sum(had.had.entries.values()) - sum(after.had.entries.values()) + after.unreachable.messages
    keys = had.had.keys - after.had.keys + after.keys_not_found
    assert planned.counts() == after.counts() | {"unreachable": gone, "keys_not_found": keys}


@pytest.mark.slow
def test_delayed_messages_in_two_files_of_the_log_are_put_right(unpacked: GoldenStore, tmp_path: Path) -> None:
    """Each file is a change of its own, and the plan counts what all of them bring back."""
    store = copied(unpacked("4.9.7-trimmed"), tmp_path / "store")
    log = sorted((store / "commitlog").iterdir())
    damaged: dict[Path, int] = {}
    for queue in sorted((store / "consumequeue/SCHEDULE_TOPIC_XXXX").glob("*/*")):
        for physical_offset, size, _ in iter_unpack(">qiq", queue.read_bytes()):
            file = next((each for each in reversed(log) if int(each.name) <= physical_offset), None)
            if size and file and len(damaged) < 2 and file not in damaged:
                damaged[file] = physical_offset - int(file.name) + _BODY_CRC
    assert len(damaged) == 2
    for file, position in damaged.items():
        data = bytearray(file.read_bytes())
        data[position] ^= 1
        file.write_bytes(data)
    found = open_path(store).verify()
    assert found.outcome.clients is not None
    assert found.plan.clients is not None
    assert found.outcome.clients.delayed.never >= 2
    assert not any(found.plan.clients.counts().values())


def _swapped(store: Path, log: list[Path]) -> None:
    first, second = log[0].read_bytes(), log[2].read_bytes()
    log[0].write_bytes(second)
    log[2].write_bytes(first)


def _renamed(store: Path, log: list[Path]) -> None:
    log[1].rename(log[1].with_name(f"{int(log[1].name) + 4096:020d}"))


def _renamed_last(store: Path, log: list[Path]) -> None:
    log[-1].rename(log[-1].with_name(f"{int(log[-1].name) * 9:020d}"))


def _renamed_and_damaged(store: Path, log: list[Path]) -> None:
    _renamed(store, log)
    data = bytearray(log[0].read_bytes())
    data[400:440] = bytes(40)
    log[0].write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_swapped, _renamed, _renamed_last, _renamed_and_damaged])
def test_log_files_that_get_their_names_back_bring_all_back(
    unpacked: GoldenStore, tmp_path: Path, damage: Callable[[Path, list[Path]], None]
) -> None:
    """The plan says so; where more is damaged, that shows only afterwards, and the plan promises nothing."""
    store = copied(unpacked("4.9.7-clean"), tmp_path / "store")
    damage(store, [file for file in sorted((store / "commitlog").iterdir()) if any(file.read_bytes())])
    found = open_path(store).verify()
    assert found.outcome.clients is not None
    assert found.outcome.clients.unreachable.messages > 0
    if damage is _renamed_and_damaged:
        assert found.plan.clients is None
        return
    assert found.plan.clients is not None
    assert not any(found.plan.clients.counts().values())
    assert _repair(store)[1]["proof"]["more_lost"] == []
    assert not open_path(store).verify().outcome.clients


@pytest.mark.slow
def test_what_a_log_without_content_leaves_is_not_known_before(unpacked: GoldenStore, tmp_path: Path) -> None:
    """No broker starts on it, so that nothing is known of groups and delayed messages after a repair."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    for file in (store / "commitlog").iterdir():
        file.write_bytes(b"")
    found = open_path(store).verify()
    assert found.outcome.clients is not None
    assert found.outcome.clients.refuses
    assert found.plan.clients is None
    assert _repair(store)[1]["proof"]["more_lost"] == []
