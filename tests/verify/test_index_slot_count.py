"""How many hash slots an index file's header may count: all puts before 4.7.1, newly used slots since, or a mixture."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.verify.damages import INDEX, overwrite, read
from tests.verify.small_store import GEOMETRY, small_store
from tests.verify.verifying import verify

_AT = 32  # of the number in the header


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one index file."""
    return small_store(tmp_path / "store")


def numbers(store: Path) -> tuple[int, int]:
    """The used hash slots, and the units."""
    slots = struct.unpack(f">{GEOMETRY[0]}i", read(store, INDEX, 40, 4 * GEOMETRY[0]))
    return sum(slot != 0 for slot in slots), struct.unpack(">i", read(store, INDEX, 36, 4))[0] - 1


@pytest.mark.parametrize(
    ("of_used", "more", "is_found"),
    [(True, 0, False), (True, 1, False), (False, -1, False), (False, 0, False), (True, -1, True), (False, 1, True)],
)
def test_each_count_between_is_sound(store: Path, of_used: bool, more: int, is_found: bool) -> None:
    """A file begun by 4.4.0 and continued by 4.9.7 has one in between; others are information."""
    used, keys = numbers(store)
    assert used + 1 < keys
    overwrite(store, INDEX, _AT, struct.pack(">i", (used if of_used else keys) + more))
    found = [each for each in verify(store).findings if each.code == "index.header"]
    assert [each.severity for each in found] == ["info"] * is_found
    assert verify(store).verdict == "clean"


def test_a_rebuild_keeps_a_file_that_two_releases_wrote(store: Path) -> None:
    """Nothing is to be written."""
    used, _ = numbers(store)
    overwrite(store, INDEX, _AT, struct.pack(">i", used + 1))
    planned = rmqtool("rebuild-index", store, "--dry-run", "--json").document["result"]
    assert planned["state"] == "nothing"
