"""What is stored of a sparse file: holes are not counted, and what cannot be known counts as stored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.base.files import InputFile, stored_sizes
from tests.building import write_sparse

MIB = 1 << 20


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A MiB of data at the head, one at 32 MiB, holes elsewhere."""
    return write_sparse(tmp_path / "file", {0: b"x" * MIB, 32 * MIB: b"x" * MIB}, 64 * MIB)


def test_holes_are_not_counted(sparse: Path) -> None:
    ranges = [(0, 64 * MIB), (0, 8 * MIB), (8 * MIB, 16 * MIB), (31 * MIB, 64 * MIB), (MIB // 2, 2 * MIB), (5, 5)]
    assert stored_sizes(sparse, ranges, 64 * MIB) == [2 * MIB, MIB, 0, MIB, MIB // 2, 0]
    assert stored_sizes(sparse, ranges, 1000) == [1000, 1000, 0, 1000, 1000, 0]


def test_what_is_not_known_counts_as_stored(sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is gone, and a file system that knows no holes."""
    assert stored_sizes(sparse.with_name("none"), [(0, 5 * MIB), (0, 10)], MIB) == [MIB, 10]
    monkeypatch.delattr(os, "SEEK_HOLE")
    assert stored_sizes(sparse, [(0, 5 * MIB), (40 * MIB, 41 * MIB)], 2 * MIB) == [2 * MIB, MIB]
    with InputFile(sparse) as file:
        assert file.stored_end(0, 4 * MIB) == 4 * MIB


def test_stored_end_is_where_a_hole_begins_that_ends_the_range(sparse: Path) -> None:
    """One between two stretches of data is read over."""
    with InputFile(sparse) as file:
        assert file.stored_end(0, 4 * MIB) == MIB
        assert file.stored_end(0, MIB // 2) == MIB // 2
        assert file.stored_end(0, 33 * MIB) == 33 * MIB
        assert file.stored_end(2 * MIB, 4 * MIB) == 2 * MIB
        assert file.stored_end(32 * MIB, 64 * MIB) == 33 * MIB


def test_holes_are_looked_for_once(sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each block up to the next one: a file system may look at all pages up to it."""
    seek, asked = os.lseek, list[int]()

    def counted(fd: int, position: int, how: int) -> int:
        asked.extend([position] * (how == os.SEEK_HOLE))
        return seek(fd, position, how)

    monkeypatch.setattr(os, "lseek", counted)
    with InputFile(sparse) as file:
        ends = [file.stored_end(position, position + 4096) for position in range(0, MIB, 4096)]
    assert (ends, asked) == ([*range(4096, MIB + 1, 4096)], [0])
