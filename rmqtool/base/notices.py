"""What a user should know while work goes on: whoever shows things, and only a command does, listens."""

from __future__ import annotations

import os
from collections.abc import Callable

_listeners: dict[int, Callable[[str], None]] = {}  # by process: those that help say nothing


def listen(listener: Callable[[str], None]) -> None:
    """Hand the notices of this process to `listener`, and to no other."""
    _listeners[os.getpid()] = listener


def notice(text: str) -> None:
    """Say one sentence."""
    listener = _listeners.get(os.getpid())
    if listener is not None:
        listener(text)
