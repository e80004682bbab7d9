"""How much memory a job may take, and what follows: how many processes do it, and how much each holds at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass

from rmqtool.base.byte_size import byte_size
from rmqtool.base.errors import UsageError
from rmqtool.base.limits import memory_is_short

MIB = 1 << 20


class _Held:
    """What this process holds at once: a share of what it would without a limit; 0 is the least with which it works."""

    share = 1.0


@dataclass(frozen=True)
class MemoryNeed:
    """What a job takes, MiB, measured on stores of usual form: with the least that is held at once, and as usual.

    `further` is what each process beside the first one takes.
    """

    least: int
    usual: int
    further_least: int
    further_usual: int

    def with_later(self, *needs: MemoryNeed) -> MemoryNeed:
        """What jobs take that one process does one after the other: the most of each."""
        return MemoryNeed(*map(max, zip(*map(astuple, (self, *needs)), strict=True)))


def processes_within(memory: int, jobs: int, need: MemoryNeed) -> tuple[int, float]:
    """How many of `jobs` processes fit into `memory`, bytes, and the share of the usual that each may hold at once.

    One process more does more than larger pieces do. Raises UsageError, which names the least, where none fits.
    """
    if memory < need.least * MIB:
        raise UsageError(
            f"--memory {byte_size(memory)} is too little: at least {need.least} MiB are needed",
            hint=f"--memory {need.least}MiB",
        )
    room = memory / MIB - need.least
    jobs = min(jobs, 1 + int(room // need.further_least))
    room -= (jobs - 1) * need.further_least
    usual = need.usual - need.least + (jobs - 1) * (need.further_usual - need.further_least)
    return jobs, min(1.0, room / usual)


def share_held() -> float:
    """The share that `holding` allows, to be handed to a process that is started."""
    return _Held.share


def hold(share: float) -> None:
    """Let what is begun from now on hold only this share of what it would hold at once."""
    _Held.share = share


@contextmanager
def holding(share: float) -> Iterator[None]:
    """As `hold`, for what is begun in this block, and for the processes that it starts."""
    before = _Held.share
    hold(share)
    try:
        yield
    finally:
        hold(before)


def sized(usual: int, least: int) -> int:
    """A size of what is held at once: `usual`, or less, down to `least`, where memory is limited."""
    if memory_is_short():
        return least
    return usual if _Held.share == 1 else least + int((usual - least) * _Held.share)
