"""How much faster a command is with several processes: `verify -j 2` against `verify`, and so on up to all cores."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.measure import time_command

MIN_SPEEDUP = 1.8
"""What two processes have to reach."""

COMMANDS = {
    "verify": ("verify", "{store}"),
    "rebuild-cq --dry-run": ("rebuild-cq", "{store}", "--dry-run"),
    "export --engine local": ("export", "{store}", "--engine", "local", "--mode", "overwrite", "-o", "{output}"),
}
"""Command lines that several processes share."""


class Speedup(NamedTuple):
    """Wall times of one process and of several, each without that of the same command on one message, s; a ratio."""

    one: float
    several: float
    ratio: float


def process_counts(cores: int) -> list[int]:
    """The numbers of processes that are measured beside one: 2, 4, 8, ... and all cores."""
    return sorted({count for count in (2**power for power in range(1, 12)) if count < cores} | {max(cores, 2)})


def usable_cores() -> int:
    """The cores that this process may use; 1 where that cannot be known."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def measure_jobs(command: Sequence[str], stores: tuple[Path, Path], output: Path, jobs: int, rounds: int) -> Speedup:
    """Run a command with ``-j 1`` and ``-j jobs`` once untimed, then in turns; medians.

    `command` has places ``{store}`` and ``{output}``; `stores` are the one to measure and one of one message.
    """

    def seconds(jobs: int) -> float:
        times = []
        for store in stores:
            words = [word.format(store=store, output=output) for word in command]
            times.append(time_command([*words, "--quiet", "-j", str(jobs)]))
        return times[0] - times[1]

    found = [(seconds(1), seconds(jobs)) for _ in range(rounds + 1)][1:]
    ratio = statistics.median(one / several for one, several in found)
    return Speedup(statistics.median(one for one, _ in found), statistics.median(two for _, two in found), ratio)
