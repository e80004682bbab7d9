"""Many log files with little in each: few output files, and no holes are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.base import new_files
from rmqtool.base.files import InputFile
from rmqtool.export import sink
from rmqtool.formats.message import build_blank
from tests.building import GIB, LOG, message, write_sparse_log
from tests.export.exporting import check, export, manifest_of, rows_of

FILES = 20
SIZE = len(message())
OFFSETS = [number * GIB + place for number in range(FILES) for place in (0, SIZE)]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The data files that are brought to the disk."""
    paths: list[Path] = []
    original = new_files.sync

    def noted(path: Path) -> int:
        paths.append(path)
        return original(path)

    monkeypatch.setattr(sink, "sync", noted)
    return paths


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what is read in blocks."""
    sizes: list[int] = []
    original = InputFile.read_into

    def noted(self: InputFile, target: memoryview, position: int) -> int:
        sizes.append(len(target))
        return original(self, target, position)

    monkeypatch.setattr(InputFile, "read_into", noted)
    return sizes


def test_they_become_one_file(tmp_path: Path, synced: list[Path]) -> None:
    """Its rows are in the order of the log, the manifest says which they are, and `check` finds each."""
    store, output = write_sparse_log(tmp_path / "store", FILES, 2), tmp_path / "out"
    export(store, output, columns=("file", "file_position", "physical_offset"))
    [file] = manifest_of(output)["files"]
    assert (file["physical_offset_first"], file["physical_offset_last"]) == (OFFSETS[0], OFFSETS[-1])
    rows = rows_of(output)
    assert [row["physical_offset"] for row in rows] == OFFSETS
    assert [row["file"] for row in rows] == [f"{LOG}/{offset // GIB * GIB:020}" for offset in OFFSETS]
    assert [row["file_position"] for row in rows] == [offset % GIB for offset in OFFSETS]
    assert check(store, output) == []
    assert len(synced) == 1


def test_no_hole_is_read(tmp_path: Path, reads: list[int]) -> None:
    """One block of each file, as large as what is in it may be, and a little for each end that is sought."""
    export(write_sparse_log(tmp_path / "store", FILES, 2), tmp_path / "out")
    assert len(reads) < 2 * FILES
    assert sum(reads) < 2 * FILES * (16 << 10)


def test_a_later_run_adds_what_is_new(tmp_path: Path) -> None:
    """It begins after the last record, and the files that it adds are one again."""
    store, output = write_sparse_log(tmp_path / "store", 3, 2), tmp_path / "out"
    export(store, output, "incremental")
    export(write_sparse_log(store, 6, 2), output, "incremental")
    assert [row["physical_offset"] for row in rows_of(output)] == OFFSETS[:12]
    files = manifest_of(output)["files"]
    assert [file["physical_offset_first"] for file in files] == [OFFSETS[0], OFFSETS[6]]
    assert check(store, output) == []


def test_damage_in_the_middle_of_them(tmp_path: Path) -> None:
    """All else is exported, and each extent is where it is.

    A flip, zeros over a record, a blank in the wrong place, other bytes, a file that is cut and one that is gone.
    """
    store, output = write_sparse_log(tmp_path / "store", 12, 2), tmp_path / "out"
    log = store / LOG
    for number, position, data in ((2, 30, b"\xff"), (4, 0, bytes(SIZE)), (6, 0, build_blank(8)), (7, SIZE, b"x" * 9)):
        with (log / f"{number * GIB:020}").open("r+b") as file:
            file.seek(position)
            file.write(data)
    os.truncate(log / f"{8 * GIB:020}", 2 * SIZE - 5)
    (log / f"{10 * GIB:020}").unlink()
    export(store, output)
    starts = {number: number * GIB for number in range(12)}
    extents = [
        (starts[2], SIZE, "physical-offset"),
        (starts[4], SIZE, "zeroed"),
        (starts[6], SIZE, "lengths"),
        (starts[7] + SIZE, SIZE, "magic-code"),
        (starts[8] + SIZE, SIZE - 5, "truncated"),
        (starts[8] + 2 * SIZE - 5, GIB - 2 * SIZE + 5, "missing"),
        (starts[10], GIB, "missing"),
    ]
    found = manifest_of(output)["skipped"]
    assert [(one["physical_offset"], one["size"], one["reason"]) for one in found] == extents
    lost = [offset for offset in OFFSETS for start, size, _ in extents if start <= offset < start + size]
    expected = [offset for offset in OFFSETS if offset < 12 * GIB and offset not in lost]
    assert [row["physical_offset"] for row in rows_of(output)] == expected
    assert len(manifest_of(output)["files"]) == 1
    assert check(store, output) == []
