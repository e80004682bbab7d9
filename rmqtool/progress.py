"""A progress bar on stderr, for a person who waits: only on a terminal, only after a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

_PATIENCE = 1.0  # seconds before anything is shown
_REFRESH = 0.1  # seconds between two updates


class ByteProgress:
    """How many of `total` bytes are done."""

    def __init__(self, title: str, total: int, shown: bool) -> None:
        self._title = title
        self._total = total
        self._shown = shown
        self._bar: Progress | None = None
        self._due = time.monotonic() + _PATIENCE

    def update(self, done: int) -> None:
        """Tell how many bytes are done in all."""
        now = time.monotonic()
        if not self._shown or now < self._due:
            return
        self._due = now + _REFRESH
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task(self._title, total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def byte_progress(title: str, total: int, quiet: bool) -> Iterator[ByteProgress]:
    """A progress that is gone at the end; silent when `quiet` or when stderr is no terminal."""
    progress = ByteProgress(title, total, shown=not quiet and sys.stderr.isatty())
    try:
        yield progress
    finally:
        progress.close()


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    rate = (TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, *rate, console=Console(stderr=True), transient=True)
