"""Files that are kept open: of one that nobody writes to the first page is read once."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from rmqtool.base.files import UNLIMITED, InputFile, OpenFiles, ReadPolicy

CONTENT = os.urandom(5000) + bytes(5000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Size and position of each reading by the system."""
    done: list[tuple[int, int]] = []
    pread = os.pread

    def counting(descriptor: int, size: int, position: int) -> bytes:
        done.append((size, position))
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", counting)
    return done


def test_the_first_page_is_read_once(path: Path, reads: list[tuple[int, int]]) -> None:
    """What is not in it is read as it is asked for."""
    with closing(OpenFiles(UNLIMITED)) as files:
        for position, size in ((0, 20), (20, 4000), (4095, 1), (0, 4096), (4096, 1), (4000, 200), (9990, 100)):
            assert files.get(path).read(position, size) == CONTENT[position : position + size]
    assert reads[:1] == [(4096, 0)]
    assert [read for read in reads if read[1] < 4000] == [(4096, 0)]


def test_a_short_file_is_whole(tmp_path: Path) -> None:
    """Nothing is read after its end."""
    path = tmp_path / "short"
    path.write_bytes(b"abc")
    with closing(OpenFiles(UNLIMITED)) as files:
        assert [files.get(path).read(*place) for place in ((0, 2), (1, 9), (3, 1), (9, 1))] == [b"ab", b"bc", b"", b""]


def test_of_a_running_broker_nothing_is_kept(path: Path) -> None:
    """It writes to its files meanwhile."""
    with closing(OpenFiles(ReadPolicy(drop_page_cache=True))) as files:
        assert files.get(path).read(0, 3) == CONTENT[:3]
        path.write_bytes(b"new")
        assert files.get(path).read(0, 3) == b"new"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 4096, 4097, 100_000])
def test_data_ends_behind_the_last_byte_that_is_not_zero(tmp_path: Path, size: int) -> None:
    """Wherever that is, in a file with or without a hole."""
    path = tmp_path / "file"
    for end in sorted({0, 1, size // 2, size - 1, size} & {*range(size + 1)}):
        path.write_bytes(bytes(max(0, end - 1)) + b"x" * bool(end) + bytes(size - end))
        with InputFile(path) as file:
            assert file.data_end() == end
