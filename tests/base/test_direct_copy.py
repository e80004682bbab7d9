"""Copies past the page cache: whole pages or nothing, and nothing where the system refuses."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rmqtool.base import new_files
from rmqtool.base.files import InputFile
from rmqtool.base.new_files import COPY_SIZE, DirectCopy, available_memory, exceeds_page_cache

PAGE = 4096
DATA = os.urandom(5 * PAGE + 100)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory on a disk, where there is one: not all file systems in memory can do it."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        (Path(directory) / "source").write_bytes(DATA)
        (Path(directory) / "target").write_bytes(bytes(len(DATA)))
        yield Path(directory)


def copied(place: Path, position: int, size: int, to: int) -> int:
    with InputFile(place / "source") as source, DirectCopy(place / "target") as direct:
        return direct.copy(source, position, size, to)


@pytest.mark.parametrize(("position", "size", "to"), [(0, PAGE, 0), (PAGE, 2 * PAGE, 3 * PAGE), (0, 5 * PAGE, 0)])
def test_whole_pages(place: Path, position: int, size: int, to: int) -> None:
    done = copied(place, position, size, to)
    if not done:
        pytest.skip("this file system has no direct input and output")
    assert done == size
    target = (place / "target").read_bytes()
    assert target[to : to + size] == DATA[position : position + size]
    assert target[:to] + target[to + size :] == bytes(len(DATA) - size)


def test_the_end_of_the_source(place: Path) -> None:
    """What is left of the last page is copied in another way."""
    assert copied(place, 0, 6 * PAGE, 0) in (0, 5 * PAGE)
    assert (place / "target").stat().st_size == len(DATA)


@pytest.mark.parametrize(
    ("position", "size", "to"), [(1, PAGE, 0), (0, 100, 0), (0, PAGE, 7), (0, COPY_SIZE + PAGE, 0)]
)
def test_other_pieces_are_not_copied(place: Path, position: int, size: int, to: int) -> None:
    assert copied(place, position, size, to) == 0
    assert (place / "target").read_bytes() == bytes(len(DATA))


def test_a_system_that_cannot(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked once."""
    asked = []

    def refuse(*arguments: object) -> int:
        asked.append(arguments)
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "preadv", refuse)
    with InputFile(place / "source") as source, DirectCopy(place / "target") as direct:
        assert [direct.copy(source, 0, PAGE, 0) for _ in range(3)] == [0, 0, 0]
    assert len(asked) == 1


def test_a_system_that_shares_pages(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked with what FICLONERANGE takes, and nothing is copied then (tried on XFS and Btrfs)."""
    shared: list[tuple[int, int, int]] = []

    def share(target: int, request: int, argument: bytes) -> int:
        source, *extent = struct.unpack("qQQQ", argument)
        names = [os.readlink(f"/proc/self/fd/{number}") for number in (source, target)]
        assert names == [str(place / "source"), str(place / "target")]
        assert request == 0x4020940D
        shared.append((extent[0], extent[1], extent[2]))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", share)
    assert copied(place, PAGE, 2 * PAGE, 3 * PAGE) == 2 * PAGE
    assert shared == [(PAGE, 2 * PAGE, 3 * PAGE)]
    assert (place / "target").read_bytes() == bytes(len(DATA))


def test_what_fits_into_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log and its copy in half of the memory that is there."""
    monkeypatch.setattr(new_files, "available_memory", lambda: 400)
    monkeypatch.setattr(new_files, "_DIRECT", 1)
    assert [exceeds_page_cache(size) for size in (100, 101)] == [False, True]
    monkeypatch.setattr(new_files, "available_memory", lambda: None)
    assert not exceeds_page_cache(1 << 50)
    (tmp_path / "meminfo").write_text("MemTotal:  20 kB\nMemAvailable:    7 kB\nSwapFree: 3 kB\n")
    assert available_memory(tmp_path / "meminfo") == 7 << 10
    assert available_memory(tmp_path / "absent") is None
