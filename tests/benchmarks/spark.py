"""Measures exports, both cores: `python -m tests.benchmarks.spark`.

The base writes the same splits with two warm processes and no Spark. Everything else runs in turn with it; a ratio is
the median of those of runs next to each other, which a busy machine disturbs least. Exit status 1: a target is missed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqtool.export.options import ExportOptions
from rmqtool.export.output import Output
from rmqtool.export.plan import ExportPlan
from rmqtool.export.results import SplitResult, join_results
from rmqtool.export.run import run_export
from rmqtool.export.write import SplitTask, write_split
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.spark.engine import run_on_spark
from rmqtool.spark.session import share_python_path, spark_context
from rmqtool.store.message_reader import make_query
from rmqtool.store.store import open_stores
from tests.benchmarks.__main__ import GIB, MIB, size_in_bytes
from tests.benchmarks.logs import make_log
from tests.benchmarks.measure import time_command

CORES = 2
MAX_WORKER_RSS = 600 * MIB
MAX_WITHOUT_BODIES = 1 / 3
MAX_GROWTH = 1.2
MAX_BESIDE_CONTEXT = 3.0  # seconds, for 1 GiB on a machine that does nothing else

Engine = Callable[[ExportPlan], list[SplitResult]]


@dataclass(frozen=True)
class Case:
    """What is measured: `run` on a store; its time may be `max_ratio` times that of the base."""

    name: str
    run: Callable[[Path], object]
    max_ratio: float | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything and print a table; 1 when a target is missed."""
    options = _parse(arguments)
    store = make_log(options.dir / f"A-{options.size}", "A", options.size)
    text = make_log(options.dir / f"T-{options.size}", "T", options.size)
    share_python_path()
    with _processes() as processes, spark_context(f"local[{CORES}]", {}) as context:
        base = Case("base: two processes", lambda store: _export(store, processes))
        with_bodies = Case("Spark, context up", lambda store: _export(store, _on_spark(context)), max_ratio=1.3)
        without = Case("Spark, without bodies", lambda store: _export(store, _on_spark(context), "none"))
        met = list(_measure((base, with_bodies, without), store, options.runs))
        met.append(_measure_bodies(context, "noise", store, options.runs))
        met.append(_measure_bodies(context, "text", text, options.runs, MAX_WITHOUT_BODIES))
        met.append(_measure_growth(context, options))
        peak = max(result for result in context.parallelize(range(CORES * 4), CORES * 4).map(_peak_rss).collect())
    print(f"largest worker of Spark: {peak / MIB:.0f} MiB, at most {MAX_WORKER_RSS // MIB}")
    met.append(peak < MAX_WORKER_RSS)
    met.append(_measure_source(store, options.runs))
    met.append(_measure_program(store, options.runs))
    return 0 if all(met) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.spark", description=__doc__)
    default = Path(tempfile.gettempdir()) / "rmqtool-benchmarks"
    parser.add_argument("--size", type=size_in_bytes, default=GIB, help="size of the log (default: 1GiB)")
    parser.add_argument("--dir", type=Path, default=default, help="where the log is kept (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each case (default: %(default)s)")
    return parser.parse_args(arguments)


def _measure(cases: Sequence[Case], store: Path, runs: int) -> Iterator[bool]:
    """Run every case once untimed, then in turn; print a line for each, yield whether its target is met."""
    for case in cases:
        case.run(store)
    rounds = [[_seconds(case, store) for case in cases] for _ in range(runs)]
    for number, case in enumerate(cases):
        ratio = statistics.median(times[number] / times[0] for times in rounds)
        target = f"at most {case.max_ratio:.2f}" if case.max_ratio else ""
        print(f"{case.name:<28} {statistics.median(times[number] for times in rounds):7.2f} s {ratio:6.2f}  {target}")
        yield case.max_ratio is None or ratio <= case.max_ratio


def _seconds(case: Case, store: Path) -> float:
    start = time.perf_counter()
    case.run(store)
    return time.perf_counter() - start


def _export(store: Path, engine: Engine, body: BodyChoice = "decompressed") -> None:
    output = store.parent / "output"
    shutil.rmtree(output, ignore_errors=True)
    options = ExportOptions(make_query(None, body, Filters()))
    with Output(output, "error") as target:
        run_export(open_stores([str(store)], BrokerConf()), target, "error", options, engine)
    shutil.rmtree(output)


@contextmanager
def _processes() -> Iterator[Engine]:
    with ProcessPoolExecutor(CORES, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda plan: list(pool.map(write_split, plan.tasks))


def _on_spark(context: Any) -> Engine:
    return lambda plan: run_on_spark(context, write_split, join_results, plan.tasks, lambda _: None)


def _peak_rss(_: int) -> int:
    from tests.benchmarks.measure import _peak_rss

    return _peak_rss()


def _measure_source(store: Path, runs: int) -> bool:
    """Every row through the data source to nowhere, against the base."""
    from pyspark.sql import SparkSession

    from rmqtool.spark import register

    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master(f"local[{CORES}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)

    def read(path: Path) -> None:
        session.read.format("rocketmq").load(str(path)).write.format("noop").mode("overwrite").save()

    with _processes() as processes:
        cases = (Case("base: two processes", lambda store: _export(store, processes)),
                 Case("data source to nowhere", read, max_ratio=3.0))  # fmt: skip
        met = all(list(_measure(cases, store, runs)))
    session.stop()
    return met


def _measure_bodies(context: Any, kind: str, store: Path, runs: int, most: float | None = None) -> bool:
    """What bodies cost: those that are text are compressed, noise is only copied.

    The CPU time of the workers counts: their wall time is that on a machine that does nothing else, and on another one
    says more about the others.
    """
    rounds = []
    for number in range(runs + 1):
        times = [_cpu_seconds(context, store, body) for body in ("decompressed", "none")]
        rounds += [times] if number else []  # the first is for warming up
    ratio = statistics.median(without / with_bodies for with_bodies, without in rounds)
    for number, name in enumerate((f"with bodies of {kind}", "without bodies")):
        target = f"at most {most:.2f}" if number and most else ""
        seconds = statistics.median(times[number] for times in rounds)
        print(f"CPU of workers, {name:<21} {seconds:5.2f} s {ratio if number else 1:6.2f}  {target}")
    return most is None or bool(ratio <= most)


def _cpu_seconds(context: Any, store: Path, body: BodyChoice) -> float:
    spent: list[float] = []

    def engine(plan: ExportPlan) -> list[SplitResult]:
        found = run_on_spark(context, _timed_split, list, plan.tasks, lambda _: None)
        spent.extend(seconds for _, seconds in found)
        return [result for result, _ in found]

    _export(store, engine, body)
    return sum(spent)


def _timed_split(task: SplitTask) -> tuple[SplitResult, float]:
    begin = time.process_time()
    return write_split(task), time.process_time() - begin


def _measure_growth(context: Any, options: argparse.Namespace) -> bool:
    """A quarter, a half and all of the size, in turn: each byte of the most costs about what one of the least does."""
    sizes = [options.size // part for part in (4, 2, 1)]
    logs = [make_log(options.dir / f"A-{size}", "A", size) for size in sizes]
    case = Case("Spark", lambda store: _export(store, _on_spark(context)))
    rounds = [[_seconds(case, log) for log in logs] for _ in range(options.runs)]
    for number, size in enumerate(sizes):
        ratio = statistics.median(times[number] / times[0] for times in rounds) * sizes[0] / size
        seconds = statistics.median(times[number] for times in rounds)
        target = f"at most {MAX_GROWTH:.2f}" if number else ""
        print(f"{size / MIB:6.0f} MiB, for each byte      {seconds:7.2f} s {ratio:6.2f}  {target}")
    return bool(ratio <= MAX_GROWTH)


def _measure_program(store: Path, runs: int) -> bool:
    """The whole program, Java's start included, against a context that starts and ends with nothing between.

    What counts is the context as pyspark starts it; ours is up sooner, and told for comparison.
    """
    output = store.parent / "output"
    program = (sys.executable, "-m", "rmqtool", "--quiet", "export", str(store), "--output", str(output))
    ours = "from rmqtool.spark.session import spark_context\nwith spark_context('local[*]', {}): pass"
    commands = {
        "rmqtool export --engine local": (*program, "--engine", "local"),
        "rmqtool export": program,
        "a context as pyspark starts it": (sys.executable, "-c", "import pyspark; pyspark.SparkContext().stop()"),
        "a context as rmqtool starts it": (sys.executable, "-c", ours),
    }
    rounds = [[_time_program(command, output) for command in commands.values()] for _ in range(runs)]
    for number, name in enumerate(commands):
        print(f"{name:<33} {statistics.median(times[number] for times in rounds):5.2f} s")
    beside, beside_ours = (statistics.median(times[1] - times[number] for times in rounds) for number in (2, 3))
    print(f"the program without pyspark's     {beside:5.2f} s, at most {MAX_BESIDE_CONTEXT:.2f}")
    print(f"the program without ours          {beside_ours:5.2f} s")
    return beside <= MAX_BESIDE_CONTEXT


def _time_program(command: Sequence[str], output: Path) -> float:
    """The wall time of a command, s; `output` is gone after it."""
    seconds = time_command(command)
    shutil.rmtree(output, ignore_errors=True)
    os.sync()  # what is left to the disk is not the next one's
    return seconds


if __name__ == "__main__":
    sys.exit(main())
