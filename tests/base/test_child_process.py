"""Waiting for a child process: what ends it."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

import pytest

from rmqtool.base.child_process import ChildProcess


class HeardError(Exception):
    """The signal has come."""


def test_a_signal_that_does_not_interrupt_a_wait_is_heard() -> None:
    """As one that comes just before the wait; here another thread gets it, which has the same effect."""

    def hear(number: int, frame: FrameType | None) -> None:
        raise HeardError

    def send() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, hear)
    child, sender = ChildProcess(["sleep", "60"]), threading.Thread(target=send)
    started = time.monotonic()
    try:
        sender.start()
        with pytest.raises(HeardError):
            child.exchange(started + 20)
        assert time.monotonic() - started < 10
    finally:
        child.kill()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_wait_ends_at_its_time() -> None:
    """Which is that of the caller, before the moment is up and behind it."""
    child = ChildProcess(["sleep", "60"])
    try:
        started = time.monotonic()
        assert not child.exchange(started + 0.7)
        assert time.monotonic() - started >= 0.7
        assert not child.exchange(started)
    finally:
        child.kill()
