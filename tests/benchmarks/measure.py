"""Runs cases in processes of their own, turn by turn on one core, and programs as a user starts them."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

KIB = 1 << 10
_SPAWN = multiprocessing.get_context("spawn")  # a forked process would start with its parent's memory


@dataclass(frozen=True)
class Case:
    """A job on a store's commit log, and what it has to reach.

    `run` takes the store and an empty directory for output; it must be a function of a module or a partial of one.
    `max_ratio` is the most that it may take in multiples of the base case, `min_rate` the least messages per second,
    `max_peak` the most memory, bytes.
    """

    name: str
    run: Callable[[Path, Path], object]
    max_ratio: float | None = None
    min_rate: float | None = None
    max_peak: int = 300 << 20


@dataclass(frozen=True)
class Program:
    """A command line and the most CPU time that it may take, s.

    ``{store}`` stands for a store of one message, ``{large}`` for one of 100 log files of 1 GiB and 1,000 queues.
    """

    name: str
    arguments: tuple[str, ...]
    max_seconds: float | None = None


class Run(NamedTuple):
    """One run of a case: wall and CPU time, s, and the process's largest resident size up to now, bytes."""

    seconds: float
    cpu_seconds: float
    peak_rss: int


def use_one_core() -> None:
    """Bind this process and those it starts to one core, and keep libraries from starting threads."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    if sys.platform == "linux":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure_cases(cases: Sequence[Case], store: Path, runs: int) -> list[list[Run]]:
    """Run every case once untimed, then `runs` rounds of all of them in turn; the runs of each case."""
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker(case, store)) for case in cases]
        for worker in workers:
            worker.run()
        rounds = [[worker.run() for worker in workers] for _ in range(runs)]
    return [list(runs_of_case) for runs_of_case in zip(*rounds, strict=True)]


def run_once(case: Case, store: Path) -> Run:
    """Run a case in a new process, whose start and imports are not counted."""
    with _Worker(case, store, daemon=False) as worker:
        return worker.run()


def measure_programs(programs: Sequence[Program], stores: Mapping[str, Path], runs: int) -> list[float | None]:
    """Start each program once untimed, then `runs` times in turns; the least CPU time of each, None when it fails."""
    rounds = [[_cpu_of(program, stores) for program in programs] for _ in range(runs + 1)][1:]
    return [None if None in times else min(filter(None, times)) for times in zip(*rounds, strict=True)]


def _cpu_of(program: Program, stores: Mapping[str, Path]) -> float | None:
    """The CPU time of a program and of all that it starts, s; None when it fails."""
    before = _cpu_of_children()
    try:
        time_command([sys.executable, *(argument.format(**stores) for argument in program.arguments)])
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode(errors="replace"), file=sys.stderr)
        return None
    return _cpu_of_children() - before


def _cpu_of_children() -> float:
    """That of all processes that have ended, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def time_command(command: Sequence[str]) -> float:
    """The wall time of a command line, s; raises subprocess.CalledProcessError.

    Its first run leaves compiled modules, as an installation does, whatever the environment says.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    return time.perf_counter() - start


class _Worker:
    """A process that runs one case whenever it is told to."""

    def __init__(self, case: Case, store: Path, daemon: bool = True) -> None:
        self.case = case
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, case, store), daemon=daemon)
        self.process.start()
        theirs.close()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()
        self.process.join()

    def run(self) -> Run:
        self.connection.send(None)
        try:
            return Run(*self.connection.recv())
        except EOFError:
            raise RuntimeError(f"the case {self.case.name!r} failed") from None


def _serve(connection: Connection, case: Case, store: Path) -> None:
    _keep_arrow_to_one_thread()
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        with tempfile.TemporaryDirectory(prefix="output-", dir=store.parent) as output:
            run = _time_case(case, store, Path(output))
        connection.send(run)


def _keep_arrow_to_one_thread() -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _time_case(case: Case, store: Path, output: Path) -> Run:
    wall, cpu = time.perf_counter(), time.process_time()
    case.run(store, output)
    return Run(time.perf_counter() - wall, time.process_time() - cpu, _peak_rss())


def _peak_rss() -> int:
    """Read the largest resident size of this process, bytes; `getrusage` also counts what ran before exec."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * KIB
