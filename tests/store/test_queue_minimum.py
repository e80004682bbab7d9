"""The minimum offset of a queue, from what its units point to."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rmqtool.base.mapped_files import MappedFiles, list_mapped_files
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, UNIT_SIZE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, NEWEST, OLDEST, Version
from rmqtool.store import unit_files
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_units import (
    QueueRange,
    SimpleQueue,
    batch_min_offset,
    moved_range,
    queue_range,
    rows_min_offset,
)
from rmqtool.store.rocksdb_queues import LastUnit, QueueDatabase
from rmqtool.store.unit_files import Offsets


def minimum(offsets: Offsets, log_min_offset: int, version: Version, first: int = 0, so_far: int = 0) -> int:
    """The minimum of a queue whose only file begins with unit `first`."""
    end, last = (first + len(offsets)) * UNIT_SIZE, int(offsets[-1]) if len(offsets) else None
    queue = SimpleQueue(first * UNIT_SIZE, offsets, end, last, so_far * UNIT_SIZE)
    return queue.min_offset(log_min_offset, version)


@pytest.mark.parametrize("version", [OLDEST, EXPIRED_QUEUE_MIN_IS_MAX, NEWEST])
@pytest.mark.parametrize(("log_min_offset", "expected"), [(-1, 10), (100, 10), (101, 11), (300, 12)])
def test_the_first_unit_that_points_into_the_log(log_min_offset: int, expected: int, version: Version) -> None:
    assert minimum([100, 200, 300], log_min_offset, version, first=10) == expected


@pytest.mark.parametrize(("version", "expected"), [(OLDEST, 11), (EXPIRED_QUEUE_MIN_IS_MAX, 13)])
def test_a_queue_that_has_expired(version: Version, expected: int) -> None:
    """Since 5.0.0 its minimum is its maximum, before it stays what it was."""
    assert minimum([100, 200, 300], 301, version, first=10, so_far=11) == expected


@pytest.mark.parametrize("version", [OLDEST, EXPIRED_QUEUE_MIN_IS_MAX])
def test_without_a_unit_it_stays(version: Version) -> None:
    assert minimum([], 500, version, first=10, so_far=7) == 7


def test_filler_below_the_minimum_is_passed_over_since_5_0_0() -> None:
    """The search begins with the minimum so far, the walk of older brokers with the first unit."""
    assert minimum([0, 0, 100], 0, EXPIRED_QUEUE_MIN_IS_MAX, first=10, so_far=12) == 12
    assert minimum([0, 0, 100], 0, OLDEST, first=10, so_far=12) == 10


ROWS = {0: 100, 1: 200, 2: 300, 3: 400, 7: 500, 8: 600}
LAST = LastUnit(8, 600)


@pytest.mark.parametrize(
    ("first", "last", "log_min_offset", "expected"),
    [
        (None, LAST, 0, 7),  # 4 has no row, nor has 5 or 6
        (None, LastUnit(3, 400), 0, 0),
        (None, LastUnit(3, 400), 250, 2),
        (None, LastUnit(3, 400), 300, 2),
        (None, LAST, 600, 8),
        (None, LAST, 601, 9),
        (LastUnit(1, 200), LAST, 150, 1),  # as it was written down
        (LastUnit(1, 200), LastUnit(3, 400), 250, 2),  # the log has lost its first files since
        (LastUnit(4, 0), LastUnit(3, 0), 0, 4),  # a queue that began without its older units
        (LastUnit(4, 0), LastUnit(3, 0), 1, 4),
        (None, None, 250, 0),
        (None, LastUnit(6, 700), 650, 6),
    ],
)
def test_the_minimum_by_rows(first: LastUnit | None, last: LastUnit | None, log_min_offset: int, expected: int) -> None:
    """What a broker has written down, or finds by halves, as if nothing were at or before an offset without a row."""
    assert rows_min_offset(first, last, log_min_offset, ROWS.get) == expected


@pytest.mark.parametrize("offsets", [*combinations(range(0, 50, 10), 3)], ids=str)
def test_halving_finds_what_walking_finds(offsets: tuple[int, ...]) -> None:
    """The first unit from the minimum so far on that points into the log, in a list and in an array."""
    for first in (0, 2):
        for so_far in range(6):
            for log_min_offset in range(offsets[-1] + 1):
                begin = max(0, so_far - first)
                live = [first + index for index in range(begin, 3) if offsets[index] >= log_min_offset]
                expected = max(live[0], so_far) if live and so_far < first + 3 else so_far
                for kind in (list, np.array):
                    found = minimum(cast("Any", kind)(offsets), log_min_offset, NEWEST, first, so_far)
                    assert found == expected, (first, so_far, log_min_offset)
                walked = [first + index for index in range(3) if offsets[index] >= log_min_offset]
                assert minimum(cast("Any", np.array(offsets)), log_min_offset, OLDEST, first, so_far) == walked[0]


@pytest.mark.parametrize(("log_min_offset", "expected"), [(0, 10), (100, 10), (101, 11)])
def test_one_unit_after_files_that_were_deleted(log_min_offset: int, expected: int) -> None:
    """The minimum so far is before the first file."""
    assert minimum([100], log_min_offset, NEWEST, first=10, so_far=3) == expected


def test_of_units_that_point_to_the_same_record() -> None:
    """That which halving meets first, as the broker's."""
    assert minimum([10, 20, 20, 20, 30], 20, NEWEST) == 2


class Counted(list[int]):
    """Offsets in a file, and how often one of them is read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("log_min_offset", [1, 499_900, 999_900])
def test_few_units_are_read(log_min_offset: int) -> None:
    offsets = Counted(range(0, 1_000_000, 100))
    assert minimum(offsets, log_min_offset, NEWEST) == -(-log_min_offset // 100)
    assert offsets.reads < 40


@pytest.mark.parametrize(("log_min_offset", "expected"), [(0, 7), (100, 7), (101, 10), (200, 10), (201, 14)])
@pytest.mark.parametrize("kind", [list, np.array])
def test_the_minimum_of_batches(kind: Any, log_min_offset: int, expected: int) -> None:
    """After the messages of the last batch that points below the log, not where the next one begins."""
    units = np.zeros(2, BATCH_UNIT_DTYPE)
    units["base_queue_offset"], units["batch_size"] = (7, 12), (3, 2)
    assert batch_min_offset(kind([100, 200]), lambda index: units[index], log_min_offset) == expected
    assert batch_min_offset(kind([]), lambda index: units[index], log_min_offset) == -1


def test_only_rows_that_are_there_are_asked_for() -> None:
    """From the row that was written down as the first one on."""
    asked: list[int] = []

    def physical_offset_at(queue_offset: int) -> int | None:
        asked.append(queue_offset)
        return ROWS.get(queue_offset)

    assert rows_min_offset(LastUnit(7, 500), LAST, 550, physical_offset_at) == 8
    assert min(asked) >= 7
    assert rows_min_offset(LastUnit(0, 100), LastUnit(3, 400), 300, physical_offset_at) == 2


class Rows:
    """A database with the rows above."""

    def __init__(self, first: LastUnit | None, last: LastUnit | None) -> None:
        self.first, self.last = first, last

    def first_of(self, queue: tuple[str, int]) -> LastUnit | None:
        return self.first

    def last_of(self, queue: tuple[str, int]) -> LastUnit | None:
        return self.last

    def physical_offset(self, queue: tuple[str, int], queue_offset: int) -> int | None:
        return ROWS.get(queue_offset)


@pytest.mark.parametrize(
    ("first", "last", "log_min_offset", "expected"),
    [
        (None, None, 0, QueueRange(0, 0, None)),
        (None, LastUnit(-1, -1), 0, QueueRange(0, 0, None)),
        (None, LastUnit(0, 100), 0, QueueRange(0, 1, 100)),
        (None, LastUnit(0, 100), 101, QueueRange(1, 1, 100, expired=True)),
        (LastUnit(1, 200), LastUnit(3, 400), 0, QueueRange(1, 4, 400)),
        (LastUnit(1, 200), LastUnit(3, 400), 400, QueueRange(3, 4, 400)),
        (LastUnit(1, 200), LastUnit(3, 400), 401, QueueRange(4, 4, 400, expired=True)),
    ],
)
def test_the_range_by_rows(
    first: LastUnit | None, last: LastUnit | None, log_min_offset: int, expected: QueueRange
) -> None:
    """It ends after the last row, and has expired where that points below the log."""
    database = cast("QueueDatabase", Rows(first, last))
    assert queue_range(Queue("orders", 0, "simple", MappedFiles(), database), log_min_offset, NEWEST) == expected


def small_queue(directory: Path, *files: list[int], room: int = 3) -> Queue:
    """A queue with files for some units, which point to these physical offsets."""
    for number, offsets in enumerate(files):
        data = b"".join(build_unit(offset, 100, 0) for offset in offsets)
        (directory / file_name(number * room * UNIT_SIZE)).write_bytes(data.ljust(room * UNIT_SIZE, b"\0"))
    return Queue("orders", 0, "simple", list_mapped_files(directory))


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("log_min_offset", [0, 100, 101, 350, 500, 501])
@pytest.mark.parametrize("deleted", [0, 1])
def test_a_range_that_moves(tmp_path: Path, version: Version, log_min_offset: int, deleted: int) -> None:
    """It is what reading the files that are left would give, with the minimum so far."""
    queue = small_queue(tmp_path, [100, 200, 300], [400, 500])
    known = queue_range(queue, 0, version)
    assert known == QueueRange(0, 5, 500)
    if deleted:
        (tmp_path / file_name(0)).unlink()
        queue = Queue("orders", 0, "simple", list_mapped_files(tmp_path))
    expected = queue_range(queue, log_min_offset, version, known.min_offset)
    assert moved_range(queue, known, log_min_offset, version) == expected
    assert expected.expired == (log_min_offset > 500)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("is_searched", [False, True])
def test_units_that_are_not_written_do_not_count(
    tmp_path: Path, version: Version, is_searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are most of the last file, which is the first one once the others are deleted; a large one is searched."""
    if is_searched:
        monkeypatch.setattr(unit_files, "_READ_WHOLE", 0)
    queue = small_queue(tmp_path, [*range(100, 1100, 100)], [1100, 1200], room=10)
    known = queue_range(queue, 0, version)
    assert known == QueueRange(0, 12, 1200)
    assert queue_range(queue, 950, version) == moved_range(queue, known, 950, version) == QueueRange(9, 12, 1200)
    assert (
        queue_range(queue, 1050, version) == moved_range(queue, known, 1050, version) == known
    )  # not in the first file
    (tmp_path / file_name(0)).unlink()
    queue = Queue("orders", 0, "simple", list_mapped_files(tmp_path))
    assert queue_range(queue, 1150, version) == moved_range(queue, known, 1150, version) == QueueRange(11, 12, 1200)


def test_a_minimum_that_has_moved_stays(tmp_path: Path) -> None:
    """Units before it are there still."""
    known = QueueRange(2, 5, 500)
    assert moved_range(small_queue(tmp_path, [100, 200, 300], [400, 500]), known, 0, NEWEST) == known


def test_a_range_without_files_moves(tmp_path: Path) -> None:
    """Nothing is left to read."""
    queue = Queue("orders", 0, "simple", list_mapped_files(tmp_path))
    assert moved_range(queue, QueueRange(0, 5, 500), 0, NEWEST) == QueueRange(0, 0)
    queue = Queue("orders", 0, "batch", list_mapped_files(tmp_path))
    assert moved_range(queue, QueueRange(0, 5, 500), 0, NEWEST) == QueueRange(-1, 0)


def test_a_range_of_nothing_moves(tmp_path: Path) -> None:
    """A queue whose last file has no unit."""
    queue = small_queue(tmp_path, [100, 200, 300], [])
    known = queue_range(queue, 0, NEWEST)
    assert (known.max_offset, known.last_physical_offset) == (3, None)
    assert moved_range(queue, known, 200, NEWEST) == queue_range(queue, 200, NEWEST)


def batch_queue(directory: Path, *files: list[tuple[int, int, int]]) -> Queue:
    """A batch queue with files of two units, each with physical offset, first queue offset and number of messages."""
    for number, units in enumerate(files):
        stored = np.zeros(2, BATCH_UNIT_DTYPE)
        for at, (physical_offset, base, size) in enumerate(units):
            stored[at]["physical_offset"], stored[at]["message_size"] = physical_offset, 100
            stored[at]["base_queue_offset"], stored[at]["batch_size"] = base, size
        (directory / file_name(number * stored.nbytes)).write_bytes(stored.tobytes())
    return Queue("orders", 0, "batch", list_mapped_files(directory))


FULL = [(100, 0, 4), (200, 4, 5)]


@pytest.mark.parametrize(
    ("files", "log_min_offset", "expected"),
    [
        ([FULL], 0, QueueRange(0, 9, 200)),
        ([FULL], 101, QueueRange(4, 9, 200)),
        ([FULL], 201, QueueRange(9, 9, 200)),
        ([FULL, [(300, 9, 2)]], 0, QueueRange(0, 11, 300)),
        ([FULL, [(300, 9, 2), (400, 11, 3)]], 101, QueueRange(4, 14, 400)),
        ([FULL, []], 0, QueueRange(0, 9, 200)),
        ([FULL, []], 300, QueueRange(9, 9, 200)),
        ([[]], 0, QueueRange(-1, 0)),
        ([[(100, 7, 4)]], 0, QueueRange(7, 11, 100)),
    ],
)
def test_the_range_of_batches(
    tmp_path: Path, files: list[list[tuple[int, int, int]]], log_min_offset: int, expected: QueueRange
) -> None:
    """By the messages in the batches; of an empty last file the one before counts."""
    queue = batch_queue(tmp_path, *files)
    assert queue_range(queue, log_min_offset, NEWEST) == expected
    assert moved_range(queue, queue_range(queue, 0, NEWEST), log_min_offset, NEWEST) == expected


def test_an_empty_last_file_of_batches_that_is_short(tmp_path: Path) -> None:
    """The one before it is full, whatever has room in the last one."""
    batch_queue(tmp_path, FULL, [])
    with (tmp_path / file_name(2 * BATCH_UNIT_DTYPE.itemsize)).open("r+b") as last:
        last.truncate(BATCH_UNIT_DTYPE.itemsize)
    queue = Queue("orders", 0, "batch", list_mapped_files(tmp_path))
    assert queue_range(queue, 0, NEWEST) == QueueRange(0, 9, 200)


def test_a_last_file_that_is_short(tmp_path: Path) -> None:
    """The first one is full all the same."""
    small_queue(tmp_path, [100, 200, 300], [400])
    with (tmp_path / file_name(3 * UNIT_SIZE)).open("r+b") as last:
        last.truncate(UNIT_SIZE)
    queue = Queue("orders", 0, "simple", list_mapped_files(tmp_path))
    assert queue_range(queue, 250, NEWEST) == QueueRange(2, 4, 400)
