"""What was read last is not read again, and is what the file holds."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rmqtool.base.files import BLOCK_SIZE, RecentFile, RecentReads

SIZE = 5 * BLOCK_SIZE + 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.mark.slow
def test_the_bytes_of_the_file(path: Path) -> None:
    """Anywhere, across blocks and past the end, with few blocks and with all."""
    data, chance = path.read_bytes(), random.Random(1)
    for kept in (1, 2, 10):
        with RecentFile(path, recent=RecentReads(kept)) as file:
            for _ in range(100):
                position, size = chance.randrange(SIZE + 5000), chance.randrange(3 * BLOCK_SIZE)
                assert file.read(position, size) == data[position : position + size]
            target = memoryview(bytearray(100))
            assert file.read_into(target, SIZE - 40) == 40
            assert target[:40] == data[-40:]


def test_each_block_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by another who has the file open; the one that was not used for the longest time is read again."""
    read: list[int] = []
    preadv = os.preadv

    def counted(number: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        size = preadv(number, buffers, position, flags)
        if size:
            read.append(position // BLOCK_SIZE)
        return size

    monkeypatch.setattr(os, "preadv", counted)
    recent = RecentReads(3)
    with RecentFile(path, recent=recent) as file, RecentFile(path, recent=recent) as other:
        for one in (file, other, file):
            for number in range(3):
                one.read(number * BLOCK_SIZE + 5, 100)
        assert read == [0, 1, 2]
        file.read(0, 1)
        other.read(3 * BLOCK_SIZE, 1)
        file.read(0, 1)
        assert read == [0, 1, 2, 3]
        file.read(BLOCK_SIZE, 1)
        assert read == [0, 1, 2, 3, 1]
