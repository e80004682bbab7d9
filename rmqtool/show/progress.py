"""Progress on stderr: a bar on a terminal after a second, JSON lines for programs, a line for SIGUSR1 and SIGINFO."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rmqtool.base.numbers import byte_size
from rmqtool.show.output import Style
from rmqtool.show.pager import before_pager

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE = 1.0  # seconds before anything is shown
_REFRESH = 0.1  # seconds between two updates
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGINFO") if hasattr(signal, name))
_STDERR = 2
_CLEAR = "\r\x1b[K"  # where a bar may stand


class Work:
    """How much of something is done, bytes; `began` is in seconds, of the first report."""

    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self.began: float | None = None
        self._at_begin = 0

    def report(self, done: int) -> None:
        """Set how many bytes are done in all."""
        if self.began is None:
            self.began, self._at_begin = time.monotonic(), done
        self.done = done

    @property
    def rate(self) -> float:
        """Bytes per second on the average since the first report; 0 before it: processes report in large steps."""
        seconds = 0 if self.began is None else time.monotonic() - self.began
        return (self.done - self._at_begin) / seconds if seconds else 0

    @property
    def text(self) -> str:
        """``verifying: 3.20 GiB of 10.00 GiB, 32%, 120.00 MiB/s, 58 s left``."""
        if self.began is None:
            return f"{self.title}: waiting"
        parts = [f"{byte_size(self.done)} of {byte_size(self.total)}"]
        parts += [f"{100 * self.done // self.total}%"] if self.total else []
        if self.rate > 0:
            left = max(0, self.total - self.done) / self.rate
            parts += [f"{byte_size(round(self.rate))}/s", f"{left:.0f} s left"]
        return f"{self.title}: {', '.join(parts)}"

    def write_json(self) -> None:
        """One JSON line on stderr; `seconds` since the first report."""
        seconds = 0 if self.began is None else round(time.monotonic() - self.began, 3)
        shown = {"progress": self.title, "done": self.done, "total": self.total, "seconds": seconds}
        _write(json.dumps(shown, ensure_ascii=False))


_in_hand: list[Work] = []  # the innermost last


def answer_signals() -> None:
    """Answer SIGUSR1, and SIGINFO where there is one; other processes of a pool do not."""
    own = os.getpid()

    def answer(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler
        if os.getpid() == own:
            text = _in_hand[-1].text if _in_hand else "nothing to report yet"
            _write(f"{_CLEAR if sys.stderr and sys.stderr.isatty() else ''}rmqtool: {text}")

    for number in _SIGNALS:
        signal.signal(number, answer)


def _write(line: str) -> None:
    """At once, whatever else is being written; a reader that is gone misses it."""
    try:
        os.write(_STDERR, f"{line}\n".encode())
    except OSError:
        return


class ByteProgress:
    """How many of `total` bytes are done."""

    def __init__(self, work: Work, *, shown: bool, as_json: bool) -> None:
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

            self._start(bar_of_bytes(lambda: self._work.rate), self._work.title, self._work.total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def add(self, size: int) -> None:
        """Show that so many bytes more are done."""
        self.update(min(self._work.done + size, self._work.total))

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

    Meanwhile `answer_signals` answers with it.
    """
    work = Work(title, total)
    shown = style.progress == "auto" and not style.quiet and sys.stderr.isatty()
    progress = ByteProgress(work, shown=shown, as_json=style.progress == "json")
    _in_hand.append(work)
    before_pager(progress.hide)
    try:
        yield progress
    finally:
        _in_hand.remove(work)
        progress.close()


@contextmanager
def job_progress(style: Style, title: str) -> Iterator[Callable[[int, int], None]]:
    """What a job calls with the bytes that it has read, and with all there are; the first call begins a bar."""
    bar: ByteProgress | None = None
    with ExitStack() as stack:

        def progress(done: int, total: int) -> None:
            nonlocal bar
            bar = bar or stack.enter_context(byte_progress(title, total, style=style))
            bar.update(done)

        yield progress
