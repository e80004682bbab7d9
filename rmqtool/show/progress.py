"""A progress bar on stderr: only on a terminal, and only after a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from rmqtool.show.output import byte_size

_PATIENCE = 1.0  # seconds before anything is shown
_REFRESH = 0.1  # seconds between two updates


class ByteProgress:
    """How many of `total` bytes are done."""

    def __init__(self, title: str, total: int, *, shown: bool) -> None:
        self._title = title
        self._total = total
        self._shown = shown
        self._bar: Progress | None = None
        self._begin: tuple[float, int] | None = None  # time and bytes of the first update
        self._due = time.monotonic() + _PATIENCE

    def wait_for(self, what: str) -> None:
        """Show what is waited for before the first bytes."""
        if self._shown:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._start(Progress(*columns, console=_console(), transient=True), what, None)

    def update(self, done: int) -> None:
        """Show how many bytes are done in all."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = now, done
            self.close()
        if not self._shown or now < self._due:
            return
        self._due = now + _REFRESH
        if self._bar is None:
            self._start(_bar(*self._begin), self._title, self._total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _start(self, bar: Progress, title: str, total: int | None) -> None:
        self._bar = bar
        bar.add_task(title, total=total)
        bar.start()


@contextmanager
def byte_progress(title: str, total: int, *, quiet: bool) -> Iterator[ByteProgress]:
    """A progress that is gone at the end; silent when `quiet` or when stderr is no terminal."""
    progress = ByteProgress(title, total, shown=not quiet and sys.stderr.isatty())
    try:
        yield progress
    finally:
        progress.close()


class _Rate(ProgressColumn):
    """The average rate, and the time that the remaining bytes take at this rate.

    The average is that since the work began, as processes report their progress in large steps.
    """

    def __init__(self, began: float, done: int) -> None:
        super().__init__()
        self._began = began
        self._done = done

    def render(self, task: Task) -> Text:
        """``212 MiB/s  0:01:40 left``."""
        seconds = time.monotonic() - self._began
        rate = (task.completed - self._done) / seconds if seconds else 0
        if rate <= 0 or task.total is None:
            return Text("")
        left = timedelta(seconds=max(0, round((task.total - task.completed) / rate)))
        return Text(f"{byte_size(round(rate))}/s  {left} left", style="progress.data.speed")


def _bar(began: float, done: int) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    return Progress(*columns, _Rate(began, done), console=_console(), transient=True)


def _console() -> Console:
    return Console(stderr=True)
