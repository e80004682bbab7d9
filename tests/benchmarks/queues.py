"""Many queues: what whole commands take above the log alone, and a rebuild of queues that are missing."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.derived import make_derived
from tests.benchmarks.logs import make_log
from tests.benchmarks.messages import KINDS

MANY, HALF, FEW = "D", "D-half", "D-quarter"
"""Logs of 40,000, 20,000 and 10,000 queues, with as many messages."""

_RUN = """
import sys, time
start = time.perf_counter()
from rmqtool.base.hidden_pandas import hide_pandas
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
    """Run a command of rmqtool; raises subprocess.CalledProcessError."""
    command = [sys.executable, "-c", _RUN, *map(str, words), "--quiet"]
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return Cost(*map(float, done.stderr.splitlines()[-1].split()))


def verify(store: Path) -> Cost:
    """Verify log, queues and index."""
    return run_command("verify", store)


def verify_log(store: Path) -> Cost:
    """Verify the log alone."""
    return run_command("verify", store, "--only", "commitlog.body-crc,commitlog.torn")


def inspect(store: Path) -> Cost:
    """Give an overview."""
    return run_command("inspect", store)


def rebuild(store: Path) -> Cost:
    """Rebuild all queues in a store beside `store` that has none."""
    empty = store.with_name(f"{store.name}-without-queues")
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir()
    try:
        (empty / "commitlog").symlink_to((store / "commitlog").resolve())
        shutil.copy(store / "checkpoint", empty)
        conf = empty / "broker.conf"  # of a broker that sets nothing, so that the size of files is known
        conf.touch()
        return run_command("rebuild-cq", empty, "--broker-version", "5.3.3", "--broker-conf", conf, "--yes")
    finally:
        shutil.rmtree(empty)


@dataclass(frozen=True)
class Row:
    """One figure: the commands that it is made of, each with a kind of log, and the most that it may be."""

    name: str
    commands: tuple[tuple[Callable[[Path], Cost], str], ...]
    figure: Callable[[Sequence[Cost]], float]
    goal: float | None = None


def _cpu(costs: Sequence[Cost]) -> float:
    return costs[0].cpu_seconds


def _cpu_above(costs: Sequence[Cost]) -> float:
    return costs[0].cpu_seconds - costs[1].cpu_seconds


def _kib_per_queue(costs: Sequence[Cost]) -> float:
    return (costs[0].peak - costs[1].peak) / (KINDS[MANY].queues - KINDS[FEW].queues)


def _wall_per_cpu(costs: Sequence[Cost]) -> float:
    return costs[0].idle / costs[0].cpu_seconds


ROWS = (
    Row("verify: the log alone, CPU s", ((verify_log, MANY),), _cpu),
    Row("verify: above the log, CPU s", ((verify, MANY), (verify_log, MANY)), _cpu_above, 6.0),
    Row("inspect: CPU s", ((inspect, MANY),), _cpu, 2.5),
    Row("verify: KiB for each more queue", ((verify, MANY), (verify, FEW)), _kib_per_queue, 1.0),
    Row("inspect: KiB for each more queue", ((inspect, MANY), (inspect, FEW)), _kib_per_queue, 1.0),
    Row("rebuild-cq of 20,000 queues: CPU s", ((rebuild, HALF),), _cpu),
    Row("rebuild-cq of 20,000 queues: wall / CPU", ((rebuild, HALF),), _wall_per_cpu, 2.0),
)
"""Whole commands with 40,000 queues, their start included, and a rebuild of 20,000 that are missing."""


def measure_rows(rows: Sequence[Row], directory: Path, size: int, rounds: int) -> Iterator[float]:
    """The median of each figure: all commands run once untimed, then `rounds` times in turns; logs of `size` bytes."""
    commands = dict.fromkeys(command for row in rows for command in row.commands)
    stores = {kind: make_derived(make_log(directory / kind, kind, size, size)) for _, kind in commands}
    found = [{(run, kind): run(stores[kind]) for run, kind in commands} for _ in range(rounds + 1)][1:]
    for row in rows:
        yield statistics.median(row.figure([costs[command] for command in row.commands]) for costs in found)
