"""A line about the work in hand: as text for SIGUSR1 and SIGINFO (Ctrl-T), as JSON for ``--progress json``."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from rmqtool.base.numbers import byte_size

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
        """Bytes per second on the average since the first report; 0 before it."""
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

    def as_json(self) -> dict[str, Any]:
        """The JSON object of a line; `seconds` since the first report."""
        seconds = 0 if self.began is None else round(time.monotonic() - self.began, 3)
        return {"progress": self.title, "done": self.done, "total": self.total, "seconds": seconds}

    def write_json(self) -> None:
        """One JSON line on stderr."""
        _write(json.dumps(self.as_json(), ensure_ascii=False))


_in_hand: list[Work] = []  # the innermost last


def begin(work: Work) -> None:
    """From now on signals are answered with this work."""
    _in_hand.append(work)


def end(work: Work) -> None:
    """It is over."""
    _in_hand.remove(work)


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
