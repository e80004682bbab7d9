"""Try faults by name: each name in a process of its own, which has the library, as many at a time as are wanted."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.faults.shim import compiled
from tests.trust import results

SEED = 1
_DIRECTORY = "FAULTS_DIRECTORY"
"""Set in the processes that have the library: where to work."""


class Tally(Protocol):
    """What was tried with one name."""

    problems: list[str]

    def __str__(self) -> str:
        """A line for people."""


@dataclass(frozen=True)
class Trials:
    """A module that tries faults, what `--every` takes one of, the file of its figures, and the work for a name."""

    module: str
    every: str
    record: str
    names: Callable[[], Sequence[str]]
    tally: Callable[[str, argparse.Namespace, Path], Tally]

    def main(self, *options: tuple[str, dict[str, Any]]) -> int:
        """Try all names, or those given; print, and with `--record` keep, the figures; 1 where something is wrong."""
        given = self._parse(options)
        if _DIRECTORY in os.environ:
            tally = self.tally(given.names[0], given, Path(os.environ[_DIRECTORY]))
            print(json.dumps({"line": str(tally), **vars(tally)}))
            return 0
        with tempfile.TemporaryDirectory() as directory:
            library = compiled(Path(directory))
            if library is None:
                print("no C compiler, or not Linux: nothing is tried")
                return 0
            return self._try_all(given, library)

    def _parse(self, options: Sequence[tuple[str, dict[str, Any]]]) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}")
        parser.add_argument("names", nargs="*")
        parser.add_argument("--every", type=int, default=1, help=f"one in so many {self.every}")
        parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="names at a time (default: cores)")
        parser.add_argument("--json", action="store_true", help="one line for each name")
        parser.add_argument("--record", action="store_true")
        for name, settings in options:
            parser.add_argument(name, **settings)
        return parser.parse_args()

    def _try_all(self, given: argparse.Namespace, library: Path) -> int:
        begin, rows = time.monotonic(), []
        with ThreadPoolExecutor(given.jobs) as pool:
            options = [word for word in sys.argv[1:] if word not in given.names]
            names = given.names or self.names()
            for row in pool.map(lambda name: self._alone(name, options, library), names):
                line = row.pop("line")
                rows.append(row)
                print(json.dumps(row) if given.json else f"{line}, after {time.monotonic() - begin:.0f} s", flush=True)
                if not given.json:
                    print(*(f"  {problem}\n" for problem in row["problems"]), sep="", end="", flush=True)
        wrong = sum(len(row["problems"]) for row in rows)
        if given.record and not wrong:
            words = " ".join([f"python -m {self.module}", *map(shlex.quote, given.names), f"--every {given.every}"])
            results.record(self.record, words, time.monotonic() - begin, str(SEED), rows)
        return int(wrong > 0)

    def _alone(self, name: str, options: Sequence[str], library: Path) -> dict[str, Any]:
        """The figures of one name, from a process that has the library."""
        with tempfile.TemporaryDirectory() as directory:
            environment = {**os.environ, "LD_PRELOAD": str(library), _DIRECTORY: directory}
            command = [sys.executable, "-m", self.module, name, *options]
            run = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
            row: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
            return row
