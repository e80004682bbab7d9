"""SIGINT, SIGTERM and SIGHUP wait until a step that must not stop half-way is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WAIT_SECONDS = 0.5
"""Of waiting at once: Python hears a signal that comes just before a wait only when it has waited."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Deferred:
    """The last signal that was held back; `signal_number` is None as long as none came."""

    signal_number: int | None = None

    def note(self, signal_number: int, frame: FrameType | None) -> None:
        """The handler: keep the signal."""
        self.signal_number = signal_number


@contextmanager
def deferred_signals() -> Iterator[Deferred]:
    """Hold signals back inside the block and raise the last of them after it; only the main thread gets any.

    To block them for this thread would not do: the system gives them to another one, and Python raises them here.
    """
    deferred = Deferred()
    if threading.current_thread() is not threading.main_thread():
        yield deferred
        return
    heard = [signal_number for signal_number in _SIGNALS if signal.getsignal(signal_number) is not signal.SIG_IGN]
    before = {signal_number: signal.signal(signal_number, deferred.note) for signal_number in heard}
    try:
        yield deferred
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler if handler is not None else signal.SIG_DFL)
        if deferred.signal_number is not None:
            signal.raise_signal(deferred.signal_number)
