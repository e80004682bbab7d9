"""Every call of a command that writes fails, is cut, or loses what was not synced: `python -m tests.faults.writing`.

Whatever happens to a write, a sync, a rename or a removal: no byte of a source is lost, nothing looks complete that is
not, a command ends with a documented status and one message, and the next run goes on or says what to do.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.faults.commands import BESIDE, NAMES, POWER, command
from tests.faults.run import SEED, Trials
from tests.faults.watch import FAULTS
from tests.rebuild import faults as rebuilds
from tests.repair import faults as repairs

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

    def __str__(self) -> str:
        return f"{self.writer:34} {self.calls:4} calls, {sum(self.tried.values()):5} faults: {self.ended}"

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


def _writer(name: str, scratch: Path) -> Writer:
    if name in rebuilds.JOBS:
        return rebuilds.writer(name, scratch)
    if name in repairs.JOBS:
        return repairs.writer(name, scratch)
    return command(name, scratch)


def all_names() -> list[str]:
    """All writers, those that take longest first."""
    return [*repairs.JOBS, *NAMES, *rebuilds.JOBS]


def _tally(name: str, given: argparse.Namespace, directory: Path) -> Tally:
    chance = random.Random(f"{SEED} {name}")
    return try_writer(_writer(name, directory / "writer"), given.fault or _ALL, given.every, chance)


if __name__ == "__main__":
    only = ("--fault", {"action": "append", "choices": _ALL, "help": "only this one"})
    sys.exit(Trials("tests.faults.writing", "places of each fault", "writes", all_names, _tally).main(only))
