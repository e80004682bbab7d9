"""A file on another machine: which ranges are asked for, and when it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from rmqtool.base import remote_path
from rmqtool.base.filesystems import in_background
from rmqtool.base.paths import path_of
from rmqtool.base.remote_path import RemoteFile, RemotePath

CONTENT = bytes(range(251)) * 8000
FIRST = 64 << 10
HELD = 3 * FIRST  # what is read ahead after the second range


class Slow:
    """A file of which the range from `HELD` on comes when `ready`; also the file system that opens it."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.was_asked = threading.Event()
        self.asked: list[int] = []
        self.is_closed = False

    def open_input_file(self, _name: str) -> Slow:
        return self

    def size(self) -> int:
        return len(CONTENT)

    def read_at(self, size: int, position: int) -> bytes:
        self.asked.append(position)
        if position == HELD:
            self.was_asked.set()
            self.ready.wait(30)
        assert not self.is_closed
        return CONTENT[position : position + size]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    file = Slow()
    monkeypatch.setattr(remote_path, "file_system", lambda _scheme, _authority: (file, ""))
    yield file
    file.ready.set()


def opened() -> RemoteFile:
    path = path_of("s3://bucket/file")
    assert isinstance(path, RemotePath)
    return RemoteFile(path)


def read(file: RemoteFile, position: int, size: int = FIRST) -> None:
    """Read, and compare."""
    target = bytearray(size)
    assert file.read_into(memoryview(target), position) == size
    assert target == CONTENT[position : position + size]


def test_one_range_is_on_its_way_at_a_time(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes elsewhere leaves it alone: nothing is read ahead, and the file stays open, until it is there."""
    calls: list[Future[bytes]] = []

    def counted(call: Callable[[], bytes]) -> Future[bytes]:
        calls.append(in_background(call))
        return calls[-1]

    monkeypatch.setattr(remote_path, "in_background", counted)
    file = opened()
    read(file, 0)
    read(file, FIRST)
    assert slow.was_asked.wait(30)
    file.rest()
    read(file, 5 * FIRST)
    read(file, 6 * FIRST)  # in order again
    file.close()
    assert slow.asked == [0, FIRST, HELD, 5 * FIRST, 6 * FIRST]
    assert len(calls) == 1
    assert not slow.is_closed


def test_a_file_is_closed(slow: Slow) -> None:
    """At once, where nothing is on its way."""
    file = opened()
    read(file, 0)
    file.close()
    assert slow.is_closed
