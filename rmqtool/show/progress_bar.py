"""Bars of progress on a terminal, drawn by rich."""

from __future__ import annotations

from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from rmqtool.base.byte_size import byte_size
from rmqtool.show.pager import terminal_for_progress
from rmqtool.show.progress_line import Work


class Rate(ProgressColumn):
    """The average rate, and the time that the remaining bytes take at this rate.

    The average is that since the work began, as processes report their progress in large steps.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def render(self, task: Task) -> Text:
        """``212 MiB/s  0:01:40 left``."""
        rate = self._work.rate
        if rate <= 0 or task.total is None:
            return Text("")
        left = timedelta(seconds=max(0, round((task.total - task.completed) / rate)))
        return Text(f"{byte_size(round(rate))}/s  {left} left", style="progress.data.speed")


def bar_of_time() -> Progress:
    """A bar that shows for how long something was waited for."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=_console(), transient=True)


def bar_of_bytes(work: Work) -> Progress:
    """A bar that shows how many bytes of `work` are done, how fast, and how long the rest will take."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    return Progress(*columns, Rate(work), console=_console(), transient=True)


def _console() -> Console:
    return Console(file=terminal_for_progress())
