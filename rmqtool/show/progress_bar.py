"""Bars of progress on a terminal, drawn by rich."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rmqtool.base.numbers import byte_size
from rmqtool.show.pager import terminal_for_progress

_LEAST_BAR, _WIDEST_BAR = 8, 40  # columns of a terminal


class OneLine(ProgressColumn):
    """Title, bar and numbers in the columns that the terminal has: what has no room is left out, never folded."""

    def __init__(self, rate: Callable[[], float], console: Console) -> None:
        super().__init__()
        self._console = console
        self._rate = rate
        self._bytes = DownloadColumn(binary_units=True)

    def render(self, task: Task) -> RenderableType:
        """``verifying ━━━━━╺━━━━  28.0/256.0 MiB  14.1 MiB/s  0:00:16 left``; the bar goes first, then the rate."""
        width = self._console.width - 3  # room for the ^C that a terminal shows: another line would be kept
        rate, left = speed(self._rate(), task)
        done = self._bytes.render(task).plain
        title, numbers = task.description, ""
        for facts in ((done, rate, left), (done, left), (done,)):
            numbers = "  ".join(filter(None, facts))
            if cell_len(title) + 1 + len(numbers) <= width:
                break
        else:
            title = set_cell_size(title, max(0, width - 1 - len(numbers))).rstrip()
        room = min(_WIDEST_BAR, width - cell_len(title) - 2 - len(numbers))
        if room < _LEAST_BAR:
            return Text(f"{title} {numbers}", no_wrap=True)
        bar = ProgressBar(total=task.total, completed=task.completed, width=room)
        line = Table.grid(padding=(0, 1))
        line.add_row(Text(title, no_wrap=True), bar, Text(numbers, no_wrap=True, style="progress.data.speed"))
        return line


def speed(rate: float, task: Task) -> tuple[str, str]:
    """``212 MiB/s``, and ``0:01:40 left``, which the remaining bytes take at this rate; empty before there is one."""
    if rate <= 0 or task.total is None:
        return "", ""
    left = timedelta(seconds=max(0, round((task.total - task.completed) / rate)))
    return f"{byte_size(round(rate))}/s", f"{left} left"


def bar_of_time() -> Progress:
    """A bar that shows for how long something was waited for."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=_console(), transient=True)


def bar_of_bytes(rate: Callable[[], float]) -> Progress:
    """A bar that shows how many bytes are done, how fast, and how long the rest will take."""
    console = _console()
    return Progress(OneLine(rate, console), console=console, transient=True)


def _console() -> Console:
    return Console(file=terminal_for_progress())
