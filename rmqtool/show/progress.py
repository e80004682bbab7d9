"""Progress on stderr: a bar on a terminal after a second, or JSON lines for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqtool.show import progress_line
from rmqtool.show.output import Style
from rmqtool.show.pager import before_pager

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE = 1.0  # seconds before anything is shown
_REFRESH = 0.1  # seconds between two updates


class ByteProgress:
    """How many of `total` bytes are done."""

    def __init__(self, work: progress_line.Work, *, shown: bool, as_json: bool) -> None:
        self._work = work
        self._shown = shown
        self._as_json = as_json
        self._bar: Progress | None = None
        self._due = time.monotonic() + _PATIENCE

    def wait_for(self, what: str) -> None:
        """Show what is waited for before the first bytes."""
        if self._shown:
            from rmqtool.show.progress_bar import bar_of_time

            self._start(bar_of_time(), what, None)

    def update(self, done: int) -> None:
        """Show how many bytes are done in all."""
        if self._work.began is None:
            self.close()  # what was waited for is there
        self._work.report(done)
        now = time.monotonic()
        if not (self._shown or self._as_json) or now < self._due:
            return
        self._due = now + (_PATIENCE if self._as_json else _REFRESH)
        if self._as_json:
            self._work.write_json()
        elif self._bar is None:
            from rmqtool.show.progress_bar import bar_of_bytes  # most commands end before they show one

            self._start(bar_of_bytes(self._work), self._work.title, self._work.total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def hide(self) -> None:
        """Show nothing from now on: the terminal is a pager's."""
        self._shown = False
        self.close()

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
def byte_progress(title: str, total: int, *, style: Style) -> Iterator[ByteProgress]:
    """A progress that is gone at the end; no bar when the style is quiet or stderr is no terminal.

    Meanwhile signals are answered with it (`progress_line.answer_signals`).
    """
    work = progress_line.Work(title, total)
    shown = style.progress == "auto" and not style.quiet and sys.stderr.isatty()
    progress = ByteProgress(work, shown=shown, as_json=style.progress == "json")
    progress_line.begin(work)
    before_pager(progress.hide)
    try:
        yield progress
    finally:
        progress_line.end(work)
        progress.close()
