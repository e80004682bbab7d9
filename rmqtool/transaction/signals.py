"""SIGINT, SIGTERM and SIGHUP wait until a step that must not stop half-way is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Deferred:
    """The signal that came meanwhile; `number` is None as long as none did."""

    number: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler: remember."""
        self.number = number


@contextmanager
def deferred_signals() -> Iterator[Deferred]:
    """Hold signals back inside the block and raise the last of them behind it; only the main thread gets any."""
    deferred = Deferred()
    if threading.current_thread() is not threading.main_thread():
        yield deferred
        return
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, deferred.note) for number in heard}
    try:
        yield deferred
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if deferred.number is not None:
            signal.raise_signal(deferred.number)
