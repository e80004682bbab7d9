"""Dummy records in place of damage: what they are, and what a rebuild makes of a log that holds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.message import MIN_MESSAGE_SIZE, build_blank, parse_message
from rmqtool.rebuild.neutralise import Patch
from rmqtool.scan.inert_records import inert_record
from rmqtool.transaction.system import System
from tests.building import START_TIME
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.rebuild.log_damages import DAMAGE
from tests.unchanged import snapshot, unchanged

VERSION = "5.3.3"
FILE = MappedFile(Path("file"), 1 << 30, 4 << 20)


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests prove what is written, not that it outlives a loss of power."""
    for name in ("sync", "sync_all"):
        monkeypatch.setattr(System, name, lambda self, what: None)


@pytest.mark.parametrize("size", [MIN_MESSAGE_SIZE + 1, 103, 104, 105, 5000])
def test_inert_record_is_a_rolled_back_message(size: int) -> None:
    """Exactly as long as asked for, at its own position, with the CRC of its body."""
    data = inert_record(size, 12345, START_TIME)
    found = parse_message(data)

    assert len(data) == found.message_size == size
    assert found.physical_offset == 12345
    assert found.sys_flag == 0xC
    assert b"%RMQTOOL%LOST".startswith(found.topic)


@pytest.mark.parametrize(("position", "size"), [(100, 92), (100, 3 << 20), (100, (1 << 20) + 93)])
def test_patch_is_filled_without_a_gap(position: int, size: int) -> None:
    """Records of bounded size, one after the other."""
    end = position
    for at, data in Patch(FILE, position, size, "magic-code", START_TIME).data():
        assert at == end
        end = at + len(data)
        assert len(data) <= (1 << 20) + MIN_MESSAGE_SIZE + 1
    assert end == position + size


@pytest.mark.parametrize(("size", "records"), [(4 << 20, 1), (100, 1), (99, 0), (8, 0)])
def test_the_end_of_a_file_is_a_blank(size: int, records: int) -> None:
    """After one record, where there is room for it, which shows that something was lost there."""
    position = FILE.size - size
    found = dict(Patch(FILE, position, size, "zeroed", START_TIME).data())
    assert found[position + records * 92] == build_blank(size - records * 92)
    assert [len(data) for data in found.values()] == [8, *[92] * records]


@pytest.mark.parametrize(("position", "size", "possible"), [(9, 91, False), (9, 92, True), (FILE.size - 8, 8, True)])
def test_too_few_bytes(position: int, size: int, possible: bool) -> None:
    """A record needs 92 bytes, a blank 8."""
    assert Patch(FILE, position, size, "zeroed", START_TIME).is_possible == possible


def rebuild(store: Path, *options: str) -> Result:
    return rmqtool("rebuild-cq", store, "--json", "--broker-version", VERSION, *options)


def result(found: Result) -> Any:
    return found.document["result"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_neutralised_store(golden_store: GoldenStore, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Announced, written, read again as inert, found again as nothing to do, and taken back."""
    store = copied(golden_store(f"{VERSION}-clean"), tmp_path / "store")
    damage(store / "commitlog" / "00000000000000000000")
    damaged = snapshot(store)
    with unchanged(store):
        planned = rebuild(store, "--neutralise", "--dry-run")
    assert planned.status == Exit.LOSSY
    assert result(planned)["neutralised"]

    done = rebuild(store, "--neutralise", "--yes")
    assert (done.status, result(done)["state"]) == (Exit.LOSSY, "done")
    assert result(done)["neutralised"] == result(planned)["neutralised"]
    for again in (rebuild(store, "--neutralise", "--yes"), rebuild(store, "--yes")):
        assert (again.status, result(again)["state"]) == (Exit.OK, "nothing")
    assert rmqtool("inspect", store, "--scan").status == Exit.OK
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    after = snapshot(store)
    assert {name: after[name].content for name in damaged} == {name: entry.content for name, entry in damaged.items()}


def test_sound_log_is_left_alone(golden_store: GoldenStore) -> None:
    """Nothing to neutralise, nothing to do."""
    found = rebuild(golden_store(f"{VERSION}-clean"), "--neutralise", "--dry-run")
    assert (found.status, result(found)["state"], result(found)["neutralised"]) == (Exit.OK, "nothing", [])


@pytest.mark.parametrize("option", [["--topic", "orders"], ["--output", "out"], ["--only-damaged"]])
def test_no_choice_goes_with_it(golden_store: GoldenStore, option: list[str]) -> None:
    """The log belongs to all queues."""
    assert rebuild(golden_store(f"{VERSION}-clean"), "--neutralise", *option).status == Exit.USAGE
