"""How much faster a command is with several processes: `verify -j 2` against `verify`, on a log of several files."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.measure import time_command

MIN_SPEEDUP = 1.7
"""What two processes have to reach."""


class Speedup(NamedTuple):
    """Wall times of one process and of two, each without that of the same command on one message, s; and the ratio."""

    one: float
    two: float
    ratio: float


def can_measure() -> bool:
    """Whether this process may use two cores."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


def measure_jobs(command: Sequence[str], store: Path, one_message: Path, rounds: int) -> Speedup:
    """Run ``command STORE -j N`` once untimed, then in turns; medians, the ratio of what runs next to each other."""

    def seconds(jobs: int) -> float:
        times = [time_command([*command, str(path), "-j", str(jobs)]) for path in (store, one_message)]
        return times[0] - times[1]

    found = [(seconds(1), seconds(2)) for _ in range(rounds + 1)][1:]
    ratio = statistics.median(one / two for one, two in found)
    return Speedup(statistics.median(one for one, _ in found), statistics.median(two for _, two in found), ratio)
