"""Files that units are written to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from rmqtool.base.new_files import write_all
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.existing import FileGrid, Piece
from rmqtool.rebuild.staged import StagedQueues, Tree
from tests.building import START_TIME

GRID = FileGrid(file_size=210, unit_size=20)  # ten units, and ten bytes that no unit fits into


@contextmanager
def tree(root: Path) -> Iterator[StagedQueues]:
    with Tree(root) as files:
        yield StagedQueues(files, "simple", GRID)


def queue(number: int) -> QueueName:
    return QueueName("orders", number)


def path_of(root: Path, number: int, start: int) -> Path:
    return root / "consumequeue" / "orders" / f"{number}" / f"{start:020d}"


def raw(first: int, count: int) -> np.ndarray:
    """Units whose bytes are their own number."""
    return np.array([bytes([number]) * 20 for number in range(first, first + count)], dtype="V20")


def times(first: int, count: int) -> np.ndarray:
    return START_TIME + np.arange(first, first + count)


def test_units_go_to_their_files(tmp_path: Path) -> None:
    """Whole length, zeros where nothing was put, the time of the last message in each file."""
    with tree(tmp_path) as files:
        files.put(queue(7), 8, raw(8, 15), times(8, 15))

    first, second, third = (path_of(tmp_path, 7, start) for start in (0, 210, 420))
    assert first.read_bytes() == bytes(160) + bytes([8] * 20 + [9] * 20) + bytes(10)
    assert second.read_bytes()[:40] == bytes([10] * 20 + [11] * 20)
    assert third.read_bytes() == bytes([20] * 20 + [21] * 20 + [22] * 20) + bytes(150)
    assert [file.stat().st_mtime_ns // 1_000_000 - START_TIME for file in (first, second, third)] == [9, 19, 22]


def test_cut_clears_what_is_behind(tmp_path: Path) -> None:
    """A queue that is cut has the files of a shorter one."""
    with tree(tmp_path / "cut") as files:
        files.put(queue(0), 0, raw(0, 35), times(0, 35))
        files.cut(queue(0), 12)
        files.put(queue(0), 12, raw(100, 3), times(12, 3))
    with tree(tmp_path / "short") as files:
        files.put(queue(0), 0, raw(0, 12), times(0, 12))
        files.put(queue(0), 12, raw(100, 3), times(12, 3))

    assert contents(tmp_path / "cut") == contents(tmp_path / "short")


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.slow
def test_many_queues_need_few_descriptors(tmp_path: Path) -> None:
    """A store may have more queues than a process may open files."""
    before = len(os.listdir("/proc/self/fd"))
    with tree(tmp_path) as files:
        for round_ in range(2):
            for number in range(300):
                files.put(queue(number), round_, raw(round_, 1), times(round_, 1))
        assert len(os.listdir("/proc/self/fd")) < before + 256

    assert all(path_of(tmp_path, number, 0).read_bytes()[:21] == bytes(20) + b"\1" for number in range(300))


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take less than it is given."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, bytes(data)[:3], position))
    path = tmp_path / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    write_all(descriptor, b"0123456789", 2)
    os.close(descriptor)

    assert path.read_bytes() == b"\0\x000123456789"


def test_pieces_meet_at_file_borders() -> None:
    """Each piece lies in one file."""
    assert list(GRID.pieces(8, 15)) == [Piece(0, 160, 0, 2), Piece(210, 0, 2, 12), Piece(420, 0, 12, 15)]
    assert (GRID.start_of(9), GRID.start_of(10), GRID.first_unit(420)) == (0, 210, 20)
