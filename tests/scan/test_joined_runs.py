"""Small runs joined into one: the same messages with the same columns, at their own physical offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.mapped_files import MappedFile
from rmqtool.scan import frames
from rmqtool.scan.columns import COLUMNS, record_batches
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import JoinedRuns, RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.store import open_store
from tests.building import LOG, LogBuilder, message, write_sparse
from tests.dledger_building import entry_log
from tests.scan.damaging import FILE_SIZE, FILES, whole_log
from tests.scan.reading import files_of

USUAL = 1000


def runs_of(files: tuple[MappedFile, ...]) -> Iterator[RecordRun]:
    """The runs of a log; each file has one at least."""
    return (event for event in scan_files(files) if isinstance(event, RecordRun))


def rows_of(run: RecordRun) -> list[dict[str, Any]]:
    return [row for batch in record_batches(run, list(COLUMNS)) for row in batch.to_pylist()]


def joined(files: tuple[MappedFile, ...]) -> RecordRun:
    """All runs of a log as one."""
    runs = JoinedRuns(USUAL)
    for run in runs_of(files):
        assert runs.is_small(run)
        assert runs.has_room(run)
        runs.add(run)
    taken = runs.take()
    assert taken is not None
    assert runs.take() is None
    return taken


def test_every_column_is_the_same(store: Path) -> None:
    """Messages of every form, in four files."""
    files = files_of(whole_log().write(store))
    assert len(files) == FILES
    run = joined(files)
    assert run.physical_offset == 0
    assert run.physical_offsets.tolist() == whole_log().offsets
    assert rows_of(run) == [row for each in runs_of(files) for row in rows_of(each)]


def test_entries_of_dledger(tmp_path: Path) -> None:
    """Headers stand between their messages, and none before the first of a run."""
    log = entry_log(60)
    files = open_store(log.write(tmp_path)).commit_log().files
    assert len(files) > 1
    run = joined(files)
    assert run.physical_offsets.tolist() == log.offsets
    assert rows_of(run) == [row for each in runs_of(files) for row in rows_of(each)]


def test_files_far_apart(store: Path) -> None:
    """Offsets beyond 4 GiB: message ids have all of their digits."""
    starts = [number << 31 for number in range(5)]
    for start in starts:
        write_sparse(store / LOG / f"{start:020}", {0: message(start)}, 1 << 31)
    rows = rows_of(joined(files_of(store)))
    assert [int(row["message_id"][16:], 16) for row in rows] == [row["physical_offset"] for row in rows] == starts


def test_filters_keep_offsets(store: Path) -> None:
    """Some messages of several files."""
    log = LogBuilder(FILE_SIZE).add_all({"topic": f"t{number % 3}"} for number in range(90))
    kept = Filters(topics=("t1",)).select(joined(files_of(log.write(store))))
    assert kept is not None
    assert kept.physical_offsets.tolist() == log.offsets[1::3]


def test_what_is_taken_is_gone(store: Path) -> None:
    """The next run begins again, with offsets of its own."""
    files = files_of(whole_log().write(store))
    runs, found = JoinedRuns(USUAL), []
    for run in runs_of(files):
        runs.add(run)
        taken = runs.take()
        assert taken is not None
        found += taken.physical_offsets.tolist()
    assert found == whole_log().offsets


def test_no_more_than_a_block_takes(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    """Four equal runs are small and fit; one byte or one record less, and they are not small, or the fourth waits."""
    log = LogBuilder(FILE_SIZE)
    for _ in range(4):
        log.add_all({} for _ in range(20)).roll()
    files = files_of(log.write(store))[:4]
    size, count = 20 * len(message()), 20
    for block, usual, small, room in (
        (16 * size, 4 * count, True, True),
        (16 * size - 1, 4 * count, False, False),
        (16 * size, 4 * count - 1, False, False),
    ):
        monkeypatch.setattr(frames, "block_size", lambda block=block: block)
        runs = JoinedRuns(usual)
        for number, run in enumerate(runs_of(files)):
            assert runs.is_small(run) is small
            assert runs.has_room(run) is (room or number < 3)
            runs.add(run)


def test_a_run_that_goes_back_waits(store: Path) -> None:
    """As where files overlap: what is joined stands in the order of the log."""
    files = files_of(whole_log().write(store))
    runs = JoinedRuns(USUAL)
    for number, run in enumerate(runs_of((files[1], files[0], files[2]))):
        assert runs.has_room(run) is (number != 1)
        if number != 1:
            runs.add(run)
