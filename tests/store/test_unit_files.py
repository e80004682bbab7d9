"""The units of a queue: by number, by where they point, and the two ends of a queue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats.consume_queue import PRE_BLANK_MESSAGE_SIZE, UNIT_SIZE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.store.consume_queues import Queue
from rmqtool.store.unit_files import UnitFiles, open_units

ROOM = 3  # units of a file
ZERO = bytes(UNIT_SIZE)
FILLER = build_unit(0, PRE_BLANK_MESSAGE_SIZE, 0)


def unit(physical_offset: int) -> bytes:
    return build_unit(physical_offset, 100, 7)


@contextmanager
def units_of(directory: Path, *units: bytes, missing: int | None = None) -> Iterator[UnitFiles]:
    """A queue of these units, without the file of number `missing`."""
    for number in range(0, len(units), ROOM):
        if number // ROOM != missing:
            data = b"".join(units[number : number + ROOM]).ljust(ROOM * UNIT_SIZE, b"\0")
            (directory / file_name(number * UNIT_SIZE)).write_bytes(data)
    with open_units(Queue("topic", 0, "simple", list_mapped_files(directory))) as files:
        yield files


def test_where_there_is_no_file_units_are_zeros(tmp_path: Path) -> None:
    """A read goes over the borders of files, and over the place of one that is missing."""
    with units_of(tmp_path, *map(unit, range(0, 900, 100)), missing=1) as files:
        assert files.read(2, 5) == unit(200) + 3 * ZERO + unit(600)
        assert files.units(7, 3)["physical_offset"].tolist() == [700, 800, 0]
        assert [*files.stretches(1, 9)] == [(1, 3, True), (3, 6, False), (6, 9, True)]
        assert files.location_of(7) == (tmp_path / file_name(6 * UNIT_SIZE), UNIT_SIZE)
        assert files.location_of(4) == (None, 4 * UNIT_SIZE)


def test_a_start_ends_a_queue_before_its_data_ends(tmp_path: Path) -> None:
    """After the first unit that is none a start keeps nothing, whatever stands there."""
    with units_of(tmp_path, unit(0), unit(100), unit(200), unit(300), ZERO, unit(500), unit(600)) as files:
        assert files.recovered_end() == (1, 1)
        assert files.data_end == 7


@pytest.mark.parametrize("hole", [True, False], ids=["sparse", "written"])
@pytest.mark.parametrize(
    ("head", "more", "ends"),
    [
        (3, {}, ((0, 3), 3)),
        (0, {}, ((0, 0), 0)),
        (200, {}, ((0, 200), 200)),
        (3, {5: unit(500)}, ((0, 3), 6)),
        (3, {203: unit(500)}, ((0, 3), 204)),
        (3, {4000: unit(500)}, ((0, 3), 4001)),
        (3, {4999: unit(500)}, ((0, 5000), 5000)),
    ],
)
def test_what_stands_behind_the_head_of_a_large_file_counts(
    tmp_path: Path, head: int, more: dict[int, bytes], ends: tuple[tuple[int, int], int], *, hole: bool
) -> None:
    """Whether the rest of the file is a hole or zeros that were written: a full last unit makes it a full file."""
    path = tmp_path / file_name(0)
    path.write_bytes(b"".join(map(unit, range(head))))
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"" if hole else bytes(100_000 - file.tell()))
        file.truncate(100_000)
        for number, data in more.items():
            file.seek(number * UNIT_SIZE)
            file.write(data)
    with open_units(Queue("topic", 0, "simple", list_mapped_files(tmp_path))) as files:
        assert (files.recovered_end(), files.data_end) == ends
        assert files.recovered_end() == ends[0]


def test_the_unit_of_a_broker_that_runs_may_be_half_there(tmp_path: Path) -> None:
    """The last one does not count while a broker writes."""
    with units_of(tmp_path, unit(0), unit(100)) as files:
        live = UnitFiles(files.queue, files._open, live=True)
        assert (files.data_end, live.data_end) == (2, 1)


@pytest.mark.parametrize(("physical_offset", "number", "found"), [(0, 2, 2), (1, 3, None), (100, 3, 3), (101, 4, None)])
def test_units_are_found_by_where_they_point(
    tmp_path: Path, physical_offset: int, number: int, found: int | None
) -> None:
    """Filler points to offset 0 and is no unit of the message there."""
    with units_of(tmp_path, FILLER, FILLER, unit(0), unit(100)) as files:
        assert (files.bisect(physical_offset), files.find(physical_offset)) == (number, found)
