"""``--memory``: what a command takes at its peak, measured in a process of its own, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtool.base.errors import Exit
from tests.benchmarks.derived import make_derived
from tests.benchmarks.logs import make_log, message_count
from tests.building import LogBuilder
from tests.unchanged import unchanged

MIB = 1 << 20
LOG_SIZE = 192 * MIB
MAX_ABOVE = 1.2  # times what was asked for

_RUN = """
import sys
from rmqtool.cli import run
status = run(sys.argv[1:])
[line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(line)
sys.exit(status)
"""
"""`getrusage` would also count the process that started this one."""

COMMANDS: dict[str, Callable[[Path, Path], list[str]]] = {
    "verify": lambda store, output: ["verify", str(store)],
    "rebuild-cq": lambda store, output: ["rebuild-cq", str(store), "--output", str(output)],
    "rebuild-index": lambda store, output: ["rebuild-index", str(store), "--output", str(output)],
    "export": lambda store, output: ["export", str(store), "--output", str(output), "--engine", "local"],
}
LEAST = {"verify": 170, "rebuild-cq": 145, "rebuild-index": 180, "export": 220}
SAVED = {"verify": 15, "rebuild-cq": 20, "rebuild-index": 5, "export": 25}
"""MiB that the least takes less than what is usual."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small messages, more of them than any command holds at once."""
    return make_derived(make_log(tmp_path_factory.mktemp("memory") / "B", "B", LOG_SIZE, LOG_SIZE))


def peak_of(command: str, store: Path, output: Path, *options: str) -> int:
    """The largest resident size of the process, MiB."""
    words = [sys.executable, "-c", _RUN, "--quiet", *COMMANDS[command](store, output), "--jobs", "1", *options]
    with unchanged(store):
        result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == Exit.OK, result.stderr
    return int(result.stdout.split("VmHWM:")[1].split()[0]) // 1024


@pytest.mark.one_in(9)
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_peak_is_near_what_was_asked_for(command: str, large: Path, tmp_path: Path) -> None:
    """With the least, and with what is enough for everything, it is exceeded by a fifth at most; less takes less."""
    peaks = {
        memory: peak_of(command, large, tmp_path / str(memory), "--memory", f"{memory}MiB")
        for memory in (LEAST[command], 320)
    }
    assert all(peak <= MAX_ABOVE * memory for memory, peak in peaks.items()), peaks
    assert peaks[LEAST[command]] <= peaks[320] - SAVED[command], peaks


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("statement", ["select * from messages", "select body from messages order by body"])
def test_sql_takes_little_more_than_its_engine_may(statement: str, large: Path, tmp_path: Path) -> None:
    """However many rows there are: they are written as they come, and what does not fit is sorted on disk."""
    words = ["sql", str(large), statement, "--memory", "96MiB", "--format", "parquet", "-o", str(tmp_path / "rows")]
    with unchanged(large):
        done = subprocess.run(
            [sys.executable, "-c", _RUN, "--quiet", *words], capture_output=True, text=True, check=False
        )
    assert done.returncode == Exit.OK, done.stderr
    assert int(done.stdout.split("VmHWM:")[1].split()[0]) // 1024 < 96 + 250
    assert pq.ParquetFile(tmp_path / "rows").metadata.num_rows == message_count(large)


@pytest.mark.one_in(3)
@pytest.mark.budget(1)  # two starts
@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name == "verify" else pytest.mark.slow) for name in COMMANDS]
)
def test_too_little_is_refused(command: str, tmp_path: Path) -> None:
    """Before anything is read or written; the least is named, and does."""
    store = LogBuilder(1 << 16).add_all([{"body": b"hello"}] * 3).write(tmp_path / "store")
    output, least = tmp_path / "output", LEAST[command]
    words = [sys.executable, "-m", "rmqtool", *COMMANDS[command](store, output)]
    with unchanged(store):
        result = subprocess.run([*words, "--memory", f"{least - 1}MiB"], capture_output=True, text=True, check=False)
    assert (result.returncode, output.exists()) == (Exit.USAGE, False)
    assert f"at least {least} MiB are needed" in result.stderr
    result = subprocess.run([*words, "--memory", f"{least}MiB"], capture_output=True, text=True, check=False)
    assert result.returncode not in (Exit.USAGE, Exit.FAILED), result.stderr


@pytest.mark.slow
def test_fewer_processes_work(tmp_path: Path) -> None:
    """As many as fit, which a note says."""
    store = LogBuilder(1 << 16).add_all([{"body": b"hello"}] * 3).write(tmp_path / "store")
    words = [sys.executable, "-m", "rmqtool", "verify", str(store), "--jobs", "8", "--memory", "256MiB"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "--memory: 3 of 8 processes work" in result.stderr
