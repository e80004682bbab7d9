"""Looking keys up in index files: windows of time, limits, order, and chains that damage has bent."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.index_file import HEADER_SIZE, file_size, key_hash, unit_position
from rmqtool.store.index_files import FOREVER, Geometry, Index, IndexFile, geometry_of
from tests.building import START_TIME
from tests.query.making import SLOTS, UNITS, index_image
from tests.unchanged import unchanged

TOPIC, KEY = "orders", "k"
HASH = key_hash(TOPIC, KEY)
SLOT = HEADER_SIZE + 4 * (HASH % SLOTS)
COUNT = 10


def write_index(root: Path, *files: list[tuple[int, int, int]]) -> Index:
    """Index files with these hashes, physical offsets and store times, oldest first."""
    paths = []
    for number, keys in enumerate(files):
        path = root / f"2026112111361{number:04d}"
        path.write_bytes(index_image(keys))
        paths.append(path)
    return Index(paths)


def keys(first: int = 0, count: int = COUNT, seconds: int = 1) -> list[tuple[int, int, int]]:
    """The same key again and again, some seconds apart."""
    return [(HASH, 100 * n, START_TIME + 1000 * seconds * n) for n in range(first, first + count)]


def found(index: Index, limit: int = 100, begin: int = 0, end: int = FOREVER) -> list[int]:
    return [unit.physical_offset for unit in index.query(TOPIC, KEY, limit, begin, end)]


def test_newest_first_over_several_files(tmp_path: Path) -> None:
    index = write_index(tmp_path, keys(0), keys(10), keys(20))
    assert found(index) == [100 * n for n in reversed(range(30))]
    assert found(index, limit=12) == [100 * n for n in reversed(range(18, 30))]
    assert found(index, limit=0) == []
    assert index.problems == {}


def test_windows_include_both_ends(tmp_path: Path) -> None:
    index = write_index(tmp_path, keys(0), keys(10), keys(20))
    for begin, end in ((5, 5), (5, 14), (9, 10), (0, 29), (12, 99)):
        wanted = [100 * n for n in reversed(range(begin, min(end, 29) + 1))]
        assert found(index, begin=START_TIME + 1000 * begin, end=START_TIME + 1000 * end) == wanted
    assert found(index, begin=START_TIME + 30_000) == []
    assert found(index, end=START_TIME - 1) == []


def test_times_are_those_of_the_units(tmp_path: Path) -> None:
    """Half a second is lost in a unit, as the broker loses it."""
    index = write_index(tmp_path, [(HASH, 0, START_TIME), (HASH, 100, START_TIME + 1500)])
    (newest, _) = index.query(TOPIC, KEY, 10)
    assert (newest.seconds_since_begin, newest.timestamp) == (1, START_TIME + 1000)
    assert found(index, begin=START_TIME + 1000, end=START_TIME + 1499) == [100]


def test_other_hashes_of_the_slot_are_passed_over(tmp_path: Path) -> None:
    mixed = [(HASH + (n % 2) * SLOTS, 100 * n, START_TIME + n) for n in range(COUNT)]
    index = write_index(tmp_path, mixed)
    assert found(index) == [800, 600, 400, 200, 0]
    (file,) = index.files
    assert len(list(index.chain(file, HASH))) == COUNT


def test_a_long_chain_is_read_in_windows(tmp_path: Path) -> None:
    count = UNITS - 1
    index = write_index(tmp_path, keys(count=count))
    assert found(index, limit=10_000) == [100 * n for n in reversed(range(count))]


def test_an_empty_index(tmp_path: Path) -> None:
    assert found(Index([])) == []
    path = tmp_path / "20261121113608128"
    path.write_bytes(bytes(file_size(SLOTS, UNITS)))
    index = Index([path])
    assert (found(index), index.problems) == ([], {})


def at_unit(number: int, field: int, value: int) -> Callable[[bytearray], None]:
    """Change a field of a unit: hash 0, physical offset 4, seconds 12, previous 16."""
    place = unit_position(SLOTS, number) + field
    return lambda data: struct.pack_into(">q" if field == 4 else ">i", data, place, value)


def at_slot(value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(">i", data, SLOT, value)


DAMAGE: dict[str, tuple[Callable[[bytearray], None], int, str]] = {
    # What is changed, how many of the ten units are still found, and what is said.
    "a cycle": (at_unit(5, 16, 9), 6, "entry 5 points to entry 9, which is newer: the chain never ends"),
    "a unit that points to itself": (at_unit(5, 16, 5), 6, "entry 5 points to itself"),
    "a link out of range": (
        at_unit(5, 16, 500_000),
        6,
        "entry 5 points to entry 500000, but entries 1 to 10 are there",
    ),
    "a negative link": (at_unit(5, 16, -3), 6, "entry 5 points to entry -3, but entries 1 to 10 are there"),
    "a negative time": (at_unit(5, 12, -1), 5, "entry 5 has a time before the file's begin"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_chain(tmp_path: Path, case: str) -> None:
    """What stands before the damage is found, the damage is said, and the search ends."""
    change, left, problem = DAMAGE[case]
    index = Index(write_index(tmp_path, keys()).paths, (SLOTS, UNITS))
    damage(index, change)
    with unchanged(tmp_path):
        assert found(index) == [100 * n for n in reversed(range(COUNT))][:left]
    assert list(index.problems.values()) == [problem]


@pytest.mark.parametrize("slot", [-1, 500, 2_000_000_000])
def test_a_damaged_slot(tmp_path: Path, slot: int) -> None:
    """The newest units prove no geometry; with one that is known the slot itself is named."""
    index = write_index(tmp_path, keys())
    damage(index, at_slot(slot))
    assert found(index) == []
    assert list(index.problems.values()) == ["the file does not show its number of hash slots"]
    again = Index(index.paths, (SLOTS, UNITS))
    assert found(again) == []
    assert list(again.problems.values()) == [
        f"hash slot {HASH % SLOTS} points to entry {slot}, but entries 1 to {COUNT} are there"
    ]


def test_a_slot_that_was_zeroed(tmp_path: Path) -> None:
    """The slot of another key than that of the newest units: nothing is found and nothing can be known."""
    index = write_index(tmp_path, [*keys(), *[(HASH + 1, 5000 + n, START_TIME + 10_000) for n in range(70)]])
    damage(index, at_slot(0))
    assert (found(index), index.problems) == ([], {})


@pytest.mark.parametrize("size", [0, 1, 39, 40, 240, 20_000])
def test_a_short_file(tmp_path: Path, size: int) -> None:
    """A file that was cut is named, and the others are searched."""
    index = write_index(tmp_path, keys(0), keys(10))
    path = index.paths[0]
    path.write_bytes(path.read_bytes()[:size])
    whole = size > unit_position(SLOTS, COUNT)  # its units are all there
    assert found(index) == [100 * n for n in reversed(range(0 if whole else 10, 20))]
    assert list(index.problems) == ([] if whole or size < HEADER_SIZE else [path])


def test_an_unreadable_file(tmp_path: Path) -> None:
    """A directory in the place of a file is a problem of that one."""
    index = write_index(tmp_path, keys(0), keys(10))
    index.paths[1].unlink()
    index.paths[1].mkdir()
    assert found(index) == [100 * n for n in reversed(range(10))]
    assert list(index.problems.values()) == ["a directory where a file should be"]


def test_a_file_that_grows_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker puts a unit between our reads of the header and of the slot: that is no damage."""
    index = write_index(tmp_path, keys())
    assert len(index.files) == 1
    index.paths[0].write_bytes(index_image(keys(count=COUNT + 1)))
    assert found(Index(index.paths, (SLOTS, UNITS), live=True)) == [100 * n for n in reversed(range(COUNT + 1))]
    index = Index(index.paths, live=True)
    monkeypatch.setattr("rmqtool.store.index_files.geometry_of", between_puts(index_image(keys(count=COUNT + 2))))
    assert found(index) == [100 * n for n in reversed(range(COUNT + 2))]
    assert index.problems == {}


def between_puts(later: bytes) -> Callable[..., Geometry]:
    """A search for the geometry before which the broker once puts another unit."""
    images = [later]

    def search(file: IndexFile, configured: tuple[int, int] | None) -> Geometry:
        if images:
            file.path.write_bytes(images.pop())
        return geometry_of(file, configured)

    return search


def damage(index: Index, change: Callable[[bytearray], None]) -> None:
    data = bytearray(index.paths[0].read_bytes())
    change(data)
    index.paths[0].write_bytes(data)
