"""``--memory SIZE``: how much memory a command may take, all of its processes together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from rmqtool.base.memory import MemoryNeed, holding, processes_within
from rmqtool.commands.options import size_of_at_least
from rmqtool.show.output import Style, note


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    return None if value is None else size_of_at_least(1)(ctx, param, value)


memory_option = click.option(
    "--memory",
    callback=_size,
    metavar="SIZE",
    help="Use about this much memory at most, such as 256MiB for all processes: fewer of them, smaller pieces.",
)
"""The argument `memory`: bytes, None without a limit."""


@contextmanager
def within_memory(style: Style, memory: int | None, jobs: int, need: MemoryNeed) -> Iterator[int]:
    """How many of `jobs` processes may work; what is begun in this block, and by them, holds no more than allowed.

    Raises UsageError, which names the least, where even one process takes more.
    """
    if memory is None:
        yield jobs
        return
    fitting, share = processes_within(memory, jobs, need)
    if fitting < jobs and not style.quiet:
        note(f"--memory: {fitting} of {jobs} processes work")
    with holding(share):
        yield fitting
