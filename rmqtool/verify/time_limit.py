"""How long a verification may read log and index."""

from __future__ import annotations

import time


class OutOfTimeError(KeyboardInterrupt):
    """The time is up: ends a verification as Ctrl-C does, and what was found until then stays."""


class TimeLimit:
    """So many seconds from the first `check` on; None: no end."""

    def __init__(self, seconds: float | None) -> None:
        self.is_over = False
        self._seconds = seconds
        self._begun: float | None = None

    def check(self) -> None:
        """Raise OutOfTimeError once the time is up."""
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        if self._seconds is not None and now - self._begun >= self._seconds:
            self.is_over = True
            raise OutOfTimeError
