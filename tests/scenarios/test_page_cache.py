"""The page cache: spared while a broker runs on the store, used otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore

LOCK = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(flush=True); input()"


@contextmanager
def _running_broker(store: Path) -> Iterator[None]:
    """Hold the lock that a broker holds."""
    command = [sys.executable, "-c", LOCK, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline()
        yield
        process.communicate(b"\n")


@pytest.fixture
def advice(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the kernel was advised about files."""
    given: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: given.append(arguments[3]))
    return given


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice")
@pytest.mark.parametrize(("part", "options"), [("", []), ("", ["--scan"]), ("commitlog", ["--limit", "3"])])
def test_the_cache_of_a_running_broker_is_spared(
    golden_store: GoldenStore, advice: list[int], part: str, options: list[str]
) -> None:
    """Reading a log asks the kernel not to read ahead while the lock is held, and asks nothing without a broker."""
    store = golden_store("5.3.3-clean")
    assert rmqtool("inspect", store / part, *options).status == 0
    assert not advice
    with _running_broker(store):
        assert rmqtool("inspect", store / part, *options).status == 0
    assert os.POSIX_FADV_RANDOM in advice
