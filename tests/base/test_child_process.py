"""Waiting for a child process: what ends it."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from types import FrameType

import pytest

from rmqtool.base.child_process import ChildProcess, kill_children
from tests.decoding import assert_gone


class HeardError(Exception):
    """The signal has come."""


def test_a_signal_that_does_not_interrupt_a_wait_is_heard() -> None:
    """As one that comes just before the wait; here another thread gets it, which has the same effect."""

    def hear(number: int, frame: FrameType | None) -> None:
        raise HeardError

    def send() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    def wait() -> None:
        sender.start()
        child.exchange(started + 40)

    before = signal.signal(signal.SIGUSR1, hear)
    child, sender = ChildProcess(["sleep", "60"]), threading.Thread(target=send)
    started = time.monotonic()
    try:
        with pytest.raises(HeardError):
            wait()
        assert time.monotonic() - started < 20
    finally:
        child.kill()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_wait_ends_at_its_time() -> None:
    """Which is that of the caller, before the moment is up and after it."""
    child = ChildProcess(["sleep", "60"])
    try:
        started = time.monotonic()
        assert not child.exchange(started + 0.7)
        assert time.monotonic() - started >= 0.7
        assert not child.exchange(started)
    finally:
        child.kill()


def test_what_is_there_is_read_behind_its_time() -> None:
    """As where this process was kept from running for longer: the answer has come in time."""
    child = ChildProcess(["echo", "text"])
    try:
        child._process.wait()
        assert child.exchange(time.monotonic() - 1)
        assert child.output == b"text\n"
    finally:
        child.kill()


def test_children_without_a_group_of_their_own_are_ended() -> None:
    """As one is for a moment that was just started."""
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        kill_children(process.pid)
        process.kill()
        assert_gone([child])
