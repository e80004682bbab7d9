"""Following a commit log while a real broker's store classes write it, file after file."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import MAX_SECONDS, spawn
from tests.real_broker.harness import Harness

pytestmark = pytest.mark.broker

_RATE = 1500  # messages per second: several files of the harness's size each second
_FIELDS = ("physical_offset", "topic", "queue_offset", "body_crc_ok", "body")


class Follower:
    """`inspect commitlog --follow --json` in a process of its own; what it says goes to a file."""

    def __init__(self, root: Path, out: Path, *options: str) -> None:
        self.out = out
        with out.open("wb") as file:
            words = ["--follow", "--json", "--columns", ",".join(_FIELDS), *options]
            self.process = spawn("inspect", root / "commitlog", *words, stdout=file)

    def lines(self) -> list[dict[str, Any]]:
        """The whole lines so far."""
        return [json.loads(line) for line in self.out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def wait_for(self, physical_offset: int) -> None:
        """Return when it has shown the message there, or a later one."""
        deadline = time.monotonic() + MAX_SECONDS
        while not any(line.get("physical_offset", -1) >= physical_offset for line in self.lines()[-5:]):
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            assert time.monotonic() < deadline, (physical_offset, self.lines()[-1:])
            time.sleep(0.1)

    def interrupt(self) -> tuple[int, bytes]:
        """Press Ctrl-C; status and standard error."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=MAX_SECONDS)
        return self.process.returncode, err


@contextmanager
def following(root: Path, out: Path, *options: str) -> Iterator[Follower]:
    """A follower that does not outlive the test."""
    follower = Follower(root, out, *options)
    try:
        yield follower
    finally:
        if follower.process.poll() is None:
            follower.process.kill()
            follower.process.communicate()


def _wait_for_files(root: Path, count: int) -> None:
    """Return when so many files have been added to the log."""
    deadline, before = time.monotonic() + MAX_SECONDS, len(list((root / "commitlog").iterdir()))
    while len(list((root / "commitlog").iterdir())) < before + count:
        assert time.monotonic() < deadline, "it writes too little"
        time.sleep(0.1)


def _messages(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == "message"]


def _compared(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The first lines that only one of both has, or that stand elsewhere: thousands are too many to be shown."""
    pairs = [(str(one), str(other)) for one, other in zip_longest(found, expected) if one != other]
    return [one for one, _ in pairs[:3]], [other for _, other in pairs[:3]]


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])
def test_all_that_a_broker_writes_comes_once(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """From the beginning all messages, from the end those after it, in order, across files, until Ctrl-C."""
    broker = harness(version)
    root = tmp_path / "store"
    root.mkdir()
    broker.write(root, "single")
    with ExitStack() as stack:
        with broker.hold(root, messages_per_second=_RATE):
            first = stack.enter_context(following(root, tmp_path / "first", "--from-offset", "0"))
            first.wait_for(1)
            late = stack.enter_context(following(root, tmp_path / "late"))
            live = stack.enter_context(following(root, tmp_path / "live", "--topic", "live", "--from-offset", "0"))
            late.wait_for(0)
            _wait_for_files(root, 5)
        done = spawn("inspect", root / "commitlog", "--json", "--columns", ",".join(_FIELDS))
        everything = [json.loads(line) for line in done.communicate(timeout=MAX_SECONDS)[0].splitlines()]
        messages = _messages(everything)
        files = len({message["physical_offset"] // 65536 for message in messages})
        assert files > 3, "the log must go on in further files meanwhile"
        for follower in (first, late, live):
            follower.wait_for(messages[-1]["physical_offset"])
            status, err = follower.interrupt()
            assert (status, b"Traceback" in err) == (130, False)
    assert _compared(_messages(first.lines()), messages) == ([], [])
    assert {line["kind"] for line in first.lines()} <= {"message", "blank", "error"}
    assert _compared(_messages(live.lines()), [one for one in messages if one["topic"] == "live"]) == ([], [])
    tail = _messages(late.lines())
    assert tail
    assert _compared(tail, messages[-len(tail) :]) == ([], [])
    assert len(tail) < len(messages)
    blanks = [line["physical_offset"] for line in first.lines() if line["kind"] == "blank"]
    assert blanks == [line["physical_offset"] for line in everything if line["kind"] == "blank"]
