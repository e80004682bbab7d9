"""The engine without Java: processes that end when they are told to."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqtool.export.run import run_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LONG = 3600.0
"""Seconds: who waits for it waits until the test has timed out."""


@dataclass(frozen=True)
class Part:
    """As much of a split as the engine looks at."""

    size: int = 64 << 20


@dataclass(frozen=True)
class Slow:
    """A split that takes long, or fails when `fails` is there."""

    began: Path
    fails: bool = False
    split: Any = Part()


def work(task: Slow) -> None:
    """Tell that it began, and read slowly; one fails when the other is at work."""
    task.began.touch()
    if task.fails:
        wait_for(task.began.with_name("0"))
        raise ValueError("this one fails")
    time.sleep(LONG)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LONG
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interruption_waits_for_no_split(tmp_path: Path) -> None:
    """A split can take minutes, of a slow disk or below a limit; afterwards no process is there that writes."""
    before = set(multiprocessing.active_children())

    def interrupt() -> None:
        for name in ("0", "1"):
            wait_for(tmp_path / name)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_local(work, [Slow(tmp_path / name) for name in ("0", "1", "2")], 2, lambda _: None)
    thread.join()
    assert set(multiprocessing.active_children()) == before


def test_a_split_that_fails_ends_the_others(tmp_path: Path) -> None:
    """Its reason is what is told."""
    with pytest.raises(ValueError, match="this one fails"):
        run_local(work, [Slow(tmp_path / "0"), Slow(tmp_path / "1", fails=True)], 2, lambda _: None)


def test_processes_that_start_leave_ctrl_c_to_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal tells each of them: in the midst of an import it would end with a trace."""
    inherited: list[set[int]] = []
    start = multiprocessing.util.spawnv_passfds  # what is blocked while it runs, the new process inherits

    def look(*arguments: Any) -> int:
        inherited.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        return int(start(*arguments))

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", look)
    with pytest.raises(ValueError, match="this one fails"):
        run_local(work, [Slow(tmp_path / "0"), Slow(tmp_path / "1", fails=True)], 2, lambda _: None)
    assert inherited
    assert all(signal.SIGINT in blocked for blocked in inherited)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
