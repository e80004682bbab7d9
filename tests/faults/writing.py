"""Every call of a command that writes fails, is cut, or loses what was not synced: `python -m tests.faults.writing`.

Whatever happens to a write, a sync, a rename or a removal: no byte of a source is lost, nothing looks complete that is
not, a command ends with a documented status and one message, and the next run goes on or says what to do.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.faults.commands import BESIDE, NAMES, POWER, command
from tests.faults.shim import command_line, load_all, with_library
from tests.faults.watch import FAULTS
from tests.rebuild import faults as rebuilds
from tests.repair import faults as repairs
from tests.trust import results

SEED = 1
_MODULE = "tests.faults.writing"
_ALL = (*FAULTS, BESIDE, POWER)


class Writer(Protocol):
    """What can be tried: a command, or a transaction whose calls are replaced."""

    @property
    def name(self) -> str:
        """What it is called."""

    def names(self) -> list[str]:
        """The names of the calls that it makes."""

    def places(self, fault: str) -> list[int]:
        """The calls at which a fault makes a difference."""

    def trial(self, fault: str, at: int) -> str:
        """Let a fault come at a call, and look at all that must be true; how the run ended."""

    def without_power(self, chance: random.Random, every: int) -> Iterator[Callable[[], object]]:
        """What a power failure may leave after calls, one in so many; each gives the look at one state."""


@dataclass
class Tally:
    """What was tried with one writer: for each fault how often, and what came out."""

    writer: str
    calls: int
    tried: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, fault: str, where: str, trial: Callable[[], object]) -> None:
        """Try something, and count it."""
        try:
            ended = Counter(self.ended)
            ended[str(trial() or "as before, or ended")] += 1
            self.ended = dict(ended)
        except (AssertionError, OSError, ValueError, KeyError) as error:
            text = str(error) or type(error).__name__
            self.problems.append(f"{self.writer}, {fault} {where}: {text.splitlines()[0][:600]}")
        self.tried[fault] = self.tried.get(fault, 0) + 1


def try_writer(writer: Writer, faults: Sequence[str], every: int, chance: random.Random) -> Tally:
    """One in `every` of all places of each fault; of few at least one."""
    names = writer.names()
    tally = Tally(writer.name, len(names))
    for fault in faults:
        if fault == POWER:
            for number, check in enumerate(writer.without_power(chance, every)):
                tally.add(fault, f"state {number}", check)
            continue
        places = writer.places(fault)
        for at in places[chance.randrange(max(1, min(every, len(places)))) :: every]:
            tally.add(fault, f"at call {at}, {names[at]}", partial(writer.trial, fault, at))
    return tally


def writers(names: Sequence[str], scratch: Path) -> Iterator[Writer]:
    """Those of these names, or all."""
    for name in names or [*rebuilds.JOBS, *repairs.JOBS, *NAMES]:
        if name in rebuilds.JOBS:
            yield rebuilds.writer(name, scratch / "rebuilds")
        elif name in repairs.JOBS:
            yield repairs.writer(name, scratch / "repairs")
        else:
            yield command(name, scratch / "commands")


def main() -> int:
    """Try writers; print, and with `--record` keep, the figures. Starts itself again with the library."""
    parser = command_line(_MODULE, "places of each fault")
    parser.add_argument("--fault", action="append", choices=_ALL, help="only this one")
    given = parser.parse_args()
    return with_library(_MODULE, lambda directory: _try_all(given, directory))


def _try_all(given: argparse.Namespace, directory: Path) -> int:
    load_all()
    begin, rows, chance = time.monotonic(), [], random.Random(SEED)
    for writer in writers(given.names, directory):
        tally = try_writer(writer, given.fault or _ALL, given.every, chance)
        rows.append(asdict(tally))
        if given.json:
            print(json.dumps(rows[-1]), flush=True)
            continue
        count, seconds = sum(tally.tried.values()), time.monotonic() - begin
        print(
            f"{tally.writer:26} {tally.calls:4} calls, {count:5} faults, after {seconds:.0f} s: {tally.ended}",
            flush=True,
        )
        print(*(f"  {problem}\n" for problem in tally.problems), sep="", end="", flush=True)
    wrong = sum(len(row["problems"]) for row in rows)
    if given.record and not wrong:
        words = " ".join([f"python -m {_MODULE}", *map(repr, given.names), f"--every {given.every}"])
        results.record("writes", words, time.monotonic() - begin, str(SEED), rows)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
