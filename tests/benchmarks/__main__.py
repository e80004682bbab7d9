"""Measures the speed of rmqtool: `python -m tests.benchmarks`.

Each case runs in a process of its own, bound to one core, page cache warm, in turn with the others; only where several
processes are measured they may use all cores. Times and ratios are medians, a ratio that of two runs next to each
other. The peak counts imports, which the base shows. The exit status is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import cold
from tests.benchmarks.cases import BASE, CASES, MAX_BESIDE_PLAIN, PROGRAMS, RMQTOOL
from tests.benchmarks.commands import Table, measure_rows
from tests.benchmarks.derived import make_derived
from tests.benchmarks.files import MANY_FILES
from tests.benchmarks.jobs import COMMANDS, MIN_SPEEDUP, measure_jobs, process_counts, usable_cores
from tests.benchmarks.logs import make_log, make_one_message_store, message_count
from tests.benchmarks.measure import Case, Program, Run, measure_cases, measure_programs, use_one_core
from tests.benchmarks.messages import KINDS
from tests.benchmarks.queues import MANY_QUEUES
from tests.building import write_large_store

GIB = 1 << 30
MIB = 1 << 20
SPECIAL_SIZE = 256 * MIB
MAX_WAITING = 1.15
"""The most wall time per CPU time of a base that had the core for itself."""

_STARTS = 3
"""How many times as often programs are started: one takes a third of a second."""

MIN_CORES = 2
"""Cores without which several processes are not measured; so many have a target."""

TABLES = (MANY_QUEUES, MANY_FILES)
UNITS = {"": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": GIB}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the logs, measure everything, print the table; 1 when a target is missed."""
    options = _parse(arguments)
    met = [*_measure_jobs(options), *_measure_cold(options)]  # these need more than one core
    use_one_core()
    met += _measure_logs(options)
    for table in TABLES:
        met += _measure_table(table, options)
    met += _measure_programs(options)
    return 0 if all(met) else 1


def size_in_bytes(text: str) -> int:
    """Read a size such as ``64MiB``; more than 1 GiB must be whole files."""
    match = re.fullmatch(r"(\d+) ?(|KiB|MiB|GiB)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"not a size such as 64MiB or 1GiB: {text!r}")
    size = int(match[1]) * UNITS[match[2]]
    if size < MIB or (size > GIB and size % GIB):
        raise argparse.ArgumentTypeError(f"at least 1MiB, and above 1GiB a multiple of it: {text!r}")
    return size


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description=__doc__)
    default = Path(tempfile.gettempdir()) / "rmqtool-benchmarks"
    parser.add_argument("--size", type=size_in_bytes, default=GIB, help="size of each log (default: 1GiB)")
    parser.add_argument("--dir", type=Path, default=default, help="where the logs are kept (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each case (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases and programs with TEXT in their names")
    return parser.parse_args(arguments)


def _measure_logs(options: argparse.Namespace) -> Iterator[bool]:
    """Print a table for each kind of log; yield whether each target is met."""
    of_plain: dict[str, float] = {}
    for kind in CASES:
        plain, _, special = kind.partition("-")
        bodies = KINDS[kind].body_sizes
        wanted = [case for case in CASES[kind] if options.only in case.name]
        cases = [BASE, *(case for case in wanted if case is not BASE)]
        if not wanted:
            continue
        size = size_of(kind, options.size)
        store = make_log(options.dir / kind, kind, size, min(size, GIB))
        count = message_count(store)
        print(f"{kind}: bodies of {bodies[0]} to {bodies[1]} bytes, {count:,} messages, {size / GIB:g} GiB")
        print(f"  {'':40} {'s/GiB':>7} {'CPU':>7} {'ratio':>6} {'messages/s':>11} {'peak MiB':>8}  target")
        results = measure_cases(cases, store, options.runs)
        for case, runs in zip(cases, results, strict=True):
            limited = with_plain_limit(case, of_plain.get(f"{plain}: {case.name}") if special else None)
            if not special:
                of_plain[f"{plain}: {case.name}"] = ratio_of(runs, results[0])
            yield _print_case(limited, runs, results[0], size, count)
        if _is_disturbed(results[0]):
            print("  Something else ran on this core: the base waited for it. Do not quote these figures.")
        print()


def size_of(kind: str, size: int) -> int:
    """The size of a kind of log, bytes: the special ones that have no targets of their own are small."""
    is_small = "-" in kind and not KINDS[kind].record_crc
    return min(size, SPECIAL_SIZE) if is_small else size


def with_plain_limit(case: Case, plain_ratio: float | None) -> Case:
    """The case of a special kind of log, which may take so many times the ratio of the plain kind."""
    if plain_ratio is None or case is BASE or case.max_ratio is not None:
        return case
    return replace(case, max_ratio=MAX_BESIDE_PLAIN * plain_ratio)


def ratio_of(runs: Sequence[Run], base: Sequence[Run]) -> float:
    """The median ratio of the CPU times of runs next to each other: on a busy machine wall times say little."""
    return statistics.median(run.cpu_seconds / base_run.cpu_seconds for run, base_run in zip(runs, base, strict=True))


def _is_disturbed(base: Sequence[Run]) -> bool:
    """Tell whether the base, which only computes, took much more wall time than CPU time."""
    return statistics.median(run.seconds / run.cpu_seconds for run in base) > MAX_WAITING


def _print_case(case: Case, runs: Sequence[Run], base: Sequence[Run], size: int, count: int) -> bool:
    seconds = statistics.median(run.seconds for run in runs)
    cpu_seconds = statistics.median(run.cpu_seconds for run in runs)
    ratio = ratio_of(runs, base)
    rate = count / seconds
    peak = max(run.peak_rss for run in runs)
    met = ratio <= (case.max_ratio or ratio) and rate >= (case.min_rate or rate) and peak <= case.max_peak
    per_gib = GIB / size
    print(
        f"  {case.name:40} {seconds * per_gib:7.3f} {cpu_seconds * per_gib:7.3f} {ratio:6.2f} {rate:11,.0f} "
        f"{peak / MIB:8.0f}  {_target_of(case)}{'' if met else ' MISSED'}"
    )
    return met


def _target_of(case: Case) -> str:
    wanted = [f"peak <= {case.max_peak // MIB} MiB"]
    if case.max_ratio:
        wanted.append(f"ratio <= {case.max_ratio:g}")
    if case.min_rate:
        wanted.append(f"messages/s >= {case.min_rate:,.0f}")
    return ", ".join(wanted)


def _measure_table(table: Table, options: argparse.Namespace) -> Iterator[bool]:
    """Print what whole commands take; yield whether each goal is met."""
    rows = [row for row in table.rows if options.only in f"{table.name}: {row.name}"]
    if not rows:
        return
    print(f"{table.name}: {table.title}")
    size = min(options.size, SPECIAL_SIZE)
    for row, figure in zip(rows, measure_rows(table, rows, options.dir, size, options.runs), strict=True):
        met = row.goal is None or figure <= row.goal
        goal = "" if row.goal is None else f"<= {row.goal:g}"
        print(f"  {row.name:40} {figure:7.3f}  {goal}{'' if met else ' MISSED'}")
        yield met
    print()


def _measure_programs(options: argparse.Namespace) -> Iterator[bool]:
    """Print the CPU time of each program; yield whether each target is met."""
    stores = {"store": make_one_message_store(options.dir / "one"), "large": options.dir / "large"}
    if not stores["large"].exists():
        write_large_store(stores["large"], 100, 1000)
    programs = [program for program in PROGRAMS if options.only in program.name]
    runs = _STARTS * options.runs
    if programs:
        print(f"  {f'whole processes, least of {runs} in turns':40} {'CPU s':>7}")
    for program, seconds in zip(programs, measure_programs(programs, stores, runs), strict=True):
        yield _print_program(program, seconds)


def _measure_jobs(options: argparse.Namespace) -> Iterator[bool]:
    """Print how much faster several processes are on a log of several files; yield whether each target is met."""
    counts = process_counts(usable_cores())
    rows = [(f"{name}, -j {jobs}", COMMANDS[name], jobs) for name in COMMANDS for jobs in counts]
    rows = [row for row in rows if options.only in row[0]]
    if not rows or usable_cores() < MIN_CORES:
        return
    stores = [_of_several_files(options, name) for name in ("A2", "A2-copy")]
    one_message = make_one_message_store(options.dir / "one")
    print(f"A2: as A, {_size_of_several(options) / GIB:g} GiB in several files, {usable_cores()} cores")
    print(f"  {'':40} {'s, -j 1':>7} {'s':>7} {'times as fast':>14} {'cores allow':>12}")
    with tempfile.TemporaryDirectory(prefix="output-", dir=options.dir) as output:
        for name, words, jobs in rows:
            command = (sys.executable, *RMQTOOL, *words)
            found = measure_jobs(command, stores, one_message, Path(output) / "out", jobs, options.runs)
            least = MIN_SPEEDUP if jobs == MIN_CORES else 0
            target = f"  >= {least:g}{'' if found.ratio >= least else ' MISSED'}" if least else ""
            print(
                f"  {name:40} {found.one:7.3f} {found.several:7.3f} {found.ratio:14.2f} {found.possible:12.2f}{target}"
            )
            yield found.ratio >= least
    print()


def _size_of_several(options: argparse.Namespace) -> int:
    return max(int(options.size), 2 * min(int(options.size), GIB))


def _of_several_files(options: argparse.Namespace, name: str) -> Path:
    """A log as A in several files, with its queues and index."""
    return make_derived(make_log(options.dir / name, "A", _size_of_several(options), min(options.size, GIB)))


def _measure_cold(options: argparse.Namespace) -> Iterator[bool]:
    """Print what commands take of a store that is not in the page cache; yield whether each goal is met."""
    rows = [row for row in cold.ROWS if options.only in f"cold: {row.name}"]
    if not rows or usable_cores() < MIN_CORES:
        return
    # Of many files, as stores are, so that the last ones, which a copy reads twice, are a small part.
    size = _size_of_several(options)
    store = make_derived(make_log(options.dir / "A16", "A", size, size // 16))
    print(f"A16, cold: {size / GIB:g} GiB in 16 files that are not in the page cache, {usable_cores()} cores")
    if not cold.can_drop(store):
        print("  not measured: its files cannot be dropped from the page cache here")
        print()
        return
    print(f"  {'':40} {'s, warm':>7} {'s, cold':>7} {'figure':>7}")
    with tempfile.TemporaryDirectory(prefix="output-", dir=options.dir) as output:
        for row, times in zip(rows, cold.measure_cold(rows, store, Path(output) / "out", options.runs), strict=True):
            met = times.figure <= row.goal
            figures = f"{times.warm:7.3f} {times.cold:7.3f} {times.figure:7.2f}"
            print(f"  {row.name:40} {figures}  <= {row.goal:g}{'' if met else ' MISSED'}")
            yield met
    print()


def _print_program(program: Program, seconds: float | None) -> bool:
    met = seconds is not None and seconds <= (program.max_seconds or seconds)
    target = f"<= {program.max_seconds:g}" if program.max_seconds else ""
    shown = " failed" if seconds is None else f"{seconds:7.3f}"
    print(f"  {program.name:40} {shown}  {target}{'' if met else ' MISSED'}")
    return met


if __name__ == "__main__":
    sys.exit(main())
