"""Queue and index files that follow the log, and the minimum offsets after them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.cleaner import QueueAfterRun, expired_index_files, first_state, follow
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, UNIT_SIZE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.rules.versions import NEWEST, OLDEST, Version
from rmqtool.store.consume_queues import list_queues
from rmqtool.store.index_files import IndexFile
from rmqtool.store.store import open_store
from tests.unchanged import unchanged

UNITS = 3  # in a file


def queue(root: Path, *offsets: int) -> Path:
    """A queue whose units point to these offsets; 0 is a unit that was never written."""
    folder = root / "consumequeue" / "orders" / "0"
    folder.mkdir(parents=True)
    for number in range(0, len(offsets), UNITS):
        units = (build_unit(offset, 100 if offset else 0, 1) for offset in offsets[number : number + UNITS])
        data = b"".join(units).ljust(UNITS * UNIT_SIZE, b"\0")
        (folder / file_name(number * UNIT_SIZE)).write_bytes(data)
    return root


def state_of(root: Path, version: Version, log_min_offset: int = 0) -> QueueAfterRun:
    (found,) = list_queues(open_store(root))
    return first_state(found, log_min_offset, version)


def names(files: Sequence[MappedFile]) -> list[int]:
    """Number of the first unit of each file."""
    return [file.start_offset // UNIT_SIZE for file in files]


@pytest.mark.parametrize(
    ("minimum", "gone", "min_offset"),
    [(0, [], 0), (100, [], 0), (101, [], 1), (300, [], 2), (301, [0], 3), (601, [0, 3], 6), (701, [0, 3], 7)],
)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_last_unit_of_a_file_decides(
    tmp_path: Path, version: Version, minimum: int, gone: list[int], min_offset: int
) -> None:
    """A file goes when its last unit points below the log, and the last file never does."""
    with unchanged(queue(tmp_path, *range(100, 900, 100))) as root:
        files, after = follow(state_of(root, version), minimum, version)
        assert names(files) == gone
        assert (after.range.min_offset, after.first_alive, after.range.max_offset) == (min_offset, min_offset, 8)


@pytest.mark.parametrize(("version", "min_offset"), [(OLDEST, 0), (NEWEST, 8)])
def test_a_queue_that_expires_whole(tmp_path: Path, version: Version, min_offset: int) -> None:
    """Its last file stays; its minimum becomes the maximum since 5.0.0, and stays what it was before."""
    files, after = follow(state_of(queue(tmp_path, *range(100, 900, 100)), version), 5000, version)
    assert names(files) == [0, 3]
    assert (after.range.min_offset, after.first_alive) == (min_offset, 8)
    assert follow(after, 6000, version) == ([], after)


@pytest.mark.parametrize(("version", "min_offset"), [(OLDEST, 4), (NEWEST, 8)])
def test_a_minimum_that_a_run_moved_stays(tmp_path: Path, version: Version, min_offset: int) -> None:
    """Before 5.0.0 a queue that expires whole keeps the minimum that the last run gave it."""
    _, between = follow(state_of(queue(tmp_path, *range(100, 900, 100)), version), 401, version)
    _, after = follow(between, 5000, version)
    assert (between.range.min_offset, after.range.min_offset) == (4, min_offset)


def test_a_file_whose_last_unit_is_missing_goes_with_what_it_has(tmp_path: Path) -> None:
    """A unit that was never written points to 0 (`MappedFileQueue#deleteExpiredFileByOffset`)."""
    files, _ = follow(state_of(queue(tmp_path, 900, 1000, 0, 1100, 1200), NEWEST), 1, NEWEST)
    assert names(files) == [0]


def test_runs_one_after_the_other(tmp_path: Path) -> None:
    """In two steps a queue comes to the same as in one."""
    start = state_of(queue(tmp_path, *range(100, 1300, 100)), NEWEST)
    first, between = follow(start, 450, NEWEST)
    second, after = follow(between, 950, NEWEST)
    assert (names(first), names(second)) == ([0], [3, 6])
    assert follow(start, 950, NEWEST)[1] == after


@pytest.mark.parametrize(("minimum", "gone", "min_offset"), [(100, 0, 7), (101, 0, 11), (201, 1, 16), (401, 1, 20)])
def test_a_batch_queue_that_follows(tmp_path: Path, minimum: int, gone: int, min_offset: int) -> None:
    """Its minimum is where the batch of the last deleted message ends, or that of the first one that is left."""
    folder = tmp_path / "batchconsumequeue" / "bulk" / "0"
    folder.mkdir(parents=True)
    units = np.zeros(4, BATCH_UNIT_DTYPE)
    units["physical_offset"], units["message_size"] = (100, 200, 300, 400), 100
    units["base_queue_offset"], units["batch_size"] = (7, 11, 16, 18), (4, 5, 2, 2)
    for number in (0, 2):
        (folder / file_name(number * units.itemsize)).write_bytes(units[number : number + 2].tobytes())
    files, after = follow(state_of(tmp_path, NEWEST), minimum, NEWEST)
    assert len(files) == gone
    assert (after.range.min_offset, after.range.max_offset, after.first_alive) == (min_offset, 20, min_offset)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_queue_without_files(tmp_path: Path, version: Version) -> None:
    (tmp_path / "consumequeue" / "orders" / "0").mkdir(parents=True)
    state = state_of(tmp_path, version)
    assert follow(state, 500, version) == ([], state)


@pytest.mark.parametrize(("minimum", "gone"), [(0, 0), (100, 0), (101, 1), (201, 2), (301, 4), (9999, 4)])
def test_index_files(minimum: int, gone: int) -> None:
    """The leading ones whose last message is gone; an older one after a newer waits, and the last stays."""
    ends = (100, 200, 300, 150, 400)
    files = [IndexFile(Path(str(number)), 0, 0, 0, 0, end, 0, 0) for number, end in enumerate(ends)]
    assert expired_index_files(files, minimum) == files[:gone]
    assert expired_index_files(files[:1], 9999) == []
    assert expired_index_files([], 1) == []
