"""What commands take of a store that is not in the page cache, beside one that is, and beside `cat` and `cp`."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.measure import time_command

_BLOCK = 512  # bytes, the unit of ru_inblock and of st_blocks


def files_below(store: Path) -> Iterator[Path]:
    """All files of a store, also where its log is behind a link."""
    for above, _, names in os.walk(store, followlinks=True):
        yield from (Path(above, name) for name in names)


def drop(store: Path) -> None:
    """Drop the files of a store from the page cache, as far as the system lets us."""
    for path in files_below(store):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def warm(store: Path) -> float:
    """Read a store, as `cat` does, into the page cache; the wall time, s."""
    start = time.perf_counter()
    subprocess.run(["cat", *map(str, files_below(store))], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def can_drop(store: Path) -> bool:
    """Whether a store that is dropped from the page cache is read from the disk again."""
    if not hasattr(os, "posix_fadvise"):
        return False
    drop(store)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    warm(store)
    read = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * _BLOCK
    return read > sum(path.stat().st_blocks * _BLOCK for path in files_below(store)) / 2


def _rmqtool(*words: str | Path) -> float:
    return time_command([sys.executable, "-m", "rmqtool", *map(str, words), "--quiet"])


def _cat(store: Path, _output: Path) -> float:
    return warm(store)


def _cp(store: Path, output: Path) -> float:
    """What is copied is on the disk in the end, as a copy of ours is."""
    return time_command(["sh", "-c", 'cp -aL "$1" "$2" && sync', "cp", str(store), str(output)])


def _verify(jobs: int, store: Path, output: Path) -> float:
    return _rmqtool("verify", store, "-j", str(jobs))


def _copy(store: Path, output: Path) -> float:
    return _rmqtool("copy", store, "--output", output)


Command = Callable[[Path, Path], float]
COMMANDS: Mapping[str, Command] = {
    "cat": _cat,
    "cp": _cp,
    "verify, -j 1": partial(_verify, 1),
    "verify, -j 2": partial(_verify, 2),
    "copy": _copy,
}
"""Each takes the store and a path for output, which is not there, and gives its wall time, s."""


@dataclass(frozen=True)
class Row:
    """A figure of a cold run, and the most that it may be."""

    name: str
    command: str
    figure: Callable[[Mapping[str, float], Mapping[str, float]], float]
    goal: float


def _beside_warm(command: str, warm: Mapping[str, float], cold: Mapping[str, float]) -> float:
    """Times as long as its warm run and what the disk alone takes beyond the page cache."""
    return cold[command] / (warm[command] + max(0.0, cold["cat"] - warm["cat"]))


def _beside(command: str, other: str, _warm: Mapping[str, float], cold: Mapping[str, float]) -> float:
    return cold[command] / cold[other]


ROWS = (
    Row("verify, -j 1, beside warm and disk", "verify, -j 1", partial(_beside_warm, "verify, -j 1"), 1.1),
    Row("verify, -j 2, beside cat", "verify, -j 2", partial(_beside, "verify, -j 2", "cat"), 1.5),
    Row("copy, beside cp and sync", "copy", partial(_beside, "copy", "cp"), 1.2),
)
"""What is printed of cold runs, and its goals."""


class Times(NamedTuple):
    """Wall time of a command, warm and cold, s, and the figure of the row."""

    warm: float
    cold: float
    figure: float


def measure_cold(rows: Sequence[Row], store: Path, output: Path, rounds: int) -> list[Times]:
    """Medians for each row, of rounds in which all commands take turns, after one that does not count."""
    names = [name for name in COMMANDS if name in ("cat", "cp") or any(row.command == name for row in rows)]

    def timed(*, is_cold: bool) -> dict[str, float]:
        return {name: _timed(COMMANDS[name], store, output, is_cold=is_cold) for name in names}

    found = [(timed(is_cold=False), timed(is_cold=True)) for _ in range(rounds + 1)][1:]
    return [
        Times(
            statistics.median(warm[row.command] for warm, _ in found),
            statistics.median(cold[row.command] for _, cold in found),
            statistics.median(row.figure(warm, cold) for warm, cold in found),
        )
        for row in rows
    ]


def _timed(command: Command, store: Path, output: Path, *, is_cold: bool) -> float:
    """The wall time of a command; what it writes is on the disk, and gone, before the next one begins."""
    (drop if is_cold else warm)(store)
    try:
        return command(store, output)
    finally:
        shutil.rmtree(output, ignore_errors=True)
        subprocess.run(["sync"], check=True)
