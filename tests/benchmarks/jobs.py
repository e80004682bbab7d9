"""How much faster a command is with several processes: `verify -j 2` against `verify`, and so on up to all cores."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """Wall times of one process and of several, each without that of the same command on one message, s; ratios.

    `possible` is how many times the work of one the cores do in its time, when as many commands with one process run
    at once, each on a log of its own: cores share the memory and its caches, and some of them more than that.
    """

    one: float
    several: float
    ratio: float
    possible: float


def process_counts(cores: int) -> list[int]:
    """The numbers of processes that are measured beside one: 2, 4, 8, ... and all cores."""
    return sorted({count for count in (2**power for power in range(1, 12)) if count < cores} | {max(cores, 2)})


def usable_cores() -> int:
    """The cores that this process may use; 1 where that cannot be known."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def measure_jobs(
    command: Sequence[str], stores: Sequence[Path], one_message: Path, output: Path, jobs: int, rounds: int
) -> Speedup:
    """Run a command with ``-j 1``, with ``-j jobs``, and so many with ``-j 1`` at once; medians.

    All run once untimed, then in turns. `command` has places ``{store}`` and ``{output}``; `stores` are copies of the
    one to measure, for a log that another process reads at the same time is in the cache; `one_message` is a store
    with no more than that.
    """

    def at_once(stores: Sequence[Path], jobs: int, commands: int) -> float:
        filled = [
            [word.format(store=stores[number % len(stores)], output=output / str(number)) for word in command]
            for number in range(commands)
        ]
        with ThreadPoolExecutor(commands) as threads:
            return max(threads.map(time_command, [[*words, "--quiet", "-j", str(jobs)] for words in filled]))

    def seconds(jobs: int, commands: int) -> float:
        return at_once(stores, jobs, commands) - at_once([one_message], jobs, commands)

    found = [(seconds(1, 1), seconds(jobs, 1), seconds(1, jobs)) for _ in range(rounds + 1)][1:]
    one, several, _ = (statistics.median(column) for column in zip(*found, strict=True))
    ratio = statistics.median(one / several for one, several, _ in found)
    return Speedup(one, several, ratio, statistics.median(jobs * one / together for one, _, together in found))
