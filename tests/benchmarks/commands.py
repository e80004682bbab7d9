"""Whole commands of rmqtool, their start included: what they take, and figures made of that."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_RUN = """
import sys, time
start = time.perf_counter()
from rmqtool.base.late_modules import hide_pandas
from rmqtool.base.late_modules import load_late
hide_pandas()
load_late()
from rmqtool.cli import run
status = run(sys.argv[1:])
seconds, cpu = time.perf_counter() - start, time.process_time()
waited = int(open("/proc/self/schedstat").read().split()[1]) / 1e9
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(seconds, cpu, waited, peak, file=sys.stderr)
sys.exit(status)
"""


class Cost(NamedTuple):
    """What a command took: wall and CPU time, and how much of the former it waited for a core, s; peak memory, KiB."""

    seconds: float
    cpu_seconds: float
    waited: float
    peak: float

    @property
    def idle(self) -> float:
        """Wall time on a machine without other work, s."""
        return self.seconds - self.waited


def run_command(*words: str | Path) -> Cost:
    """Run a command of rmqtool in one process; raises subprocess.CalledProcessError."""
    command = [sys.executable, "-c", _RUN, *map(str, words), "--quiet"]
    one_process = {f"RMQTOOL_{str(words[0]).replace('-', '_').upper()}_JOBS": "1"}
    done = subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=os.environ | one_process
    )
    return Cost(*map(float, done.stderr.splitlines()[-1].split()))


def inspect(store: Path) -> Cost:
    """Give an overview."""
    return run_command("inspect", store)


@dataclass(frozen=True)
class Row:
    """One figure: the commands that it is made of, each with a kind of store, and the most that it may be."""

    name: str
    commands: tuple[tuple[Callable[[Path], Cost], str], ...]
    figure: Callable[[Sequence[Cost]], float]
    goal: float | None = None


@dataclass(frozen=True)
class Table:
    """Figures of stores that have much of one thing; `make` gives one of a kind, with a log of so many bytes at most.

    It is made in a directory, and kept there for the next run.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    make: Callable[[Path, str, int], Path]


def cpu_seconds(costs: Sequence[Cost]) -> float:
    """CPU time of the first command, s."""
    return costs[0].cpu_seconds


def measure_rows(table: Table, rows: Sequence[Row], directory: Path, size: int, rounds: int) -> Iterator[float]:
    """The median of each figure: all commands run once untimed, then `rounds` times in turns; logs of `size` bytes."""
    commands = dict.fromkeys(command for row in rows for command in row.commands)
    stores = {kind: table.make(directory, kind, size) for _, kind in commands}
    found = [{(run, kind): run(stores[kind]) for run, kind in commands} for _ in range(rounds + 1)][1:]
    for row in rows:
        yield statistics.median(row.figure([costs[command] for command in row.commands]) for costs in found)
