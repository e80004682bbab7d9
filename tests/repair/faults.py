"""A repair of several transactions, and its undo, whose system calls fail; see tests/faults/writing.py.

Killed, failed in each way, or without power: verify reports nothing worse, the next repair finishes to the same bytes,
and undo brings back every byte and time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import cast

from tests.repair.whole import Whole
from tests.transaction.disk import Contents
from tests.transaction.faults import FAULTS, Fault, points

JOBS = {"repair": "repair", "undo of a repair": "undo"}
"""What is tried, by its name: the jobs of `Whole`."""


@dataclass(frozen=True)
class RepairWriter:
    """One of the jobs."""

    name: str
    whole: Whole

    def names(self) -> list[str]:
        """The names of its calls."""
        return self.whole.calls[JOBS[self.name]]

    def places(self, fault: str) -> list[int]:
        """The calls at which a fault makes a difference; none for a fault that is not for them."""
        return points(self.names(), fault) if fault in FAULTS else []

    def trial(self, fault: str, at: int) -> str:
        """Let a fault come at a call: the job goes on from there, and back."""
        is_new = self.whole.check(self.whole.run(JOBS[self.name], cast(Fault, fault), at))
        return "goes on, and back" if is_new else "as an earlier one"

    def without_power(self, chance: random.Random, every: int) -> Iterator[Callable[[], object]]:
        """The same for what a power failure may leave."""
        for contents in self.whole.crashes(JOBS[self.name], chance, every):
            yield partial(self._check, contents)

    def _check(self, contents: Contents) -> str:
        return "goes on, and back" if self.whole.check(self.whole.crashed(contents)) else "as an earlier one"


@cache
def _whole(scratch: Path) -> Whole:
    scratch.mkdir(parents=True)
    return Whole(scratch)


def writer(name: str, scratch: Path) -> RepairWriter:
    """One of the jobs, in a directory that all have in common."""
    return RepairWriter(name, _whole(scratch))
