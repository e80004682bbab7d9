"""Timer messages that are put off, as those of more than two days: they are stored again (`TimerMessageStore#convert`).

Only the newest copy of a message is delivered.
"""

from __future__ import annotations

from collections.abc import Iterable


class TimerCopies:
    """How often messages were put off, by their unique keys and times of delivery."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], int] = {}

    def add(self, copies: Iterable[tuple[str | None, int | None, int]]) -> None:
        """Add copies: unique key, when it is due (epoch ms), and how often it was put off before it was stored."""
        for unique_key, due, put_off in copies:
            if put_off and unique_key is not None and due is not None:
                self._newest[unique_key, due] = max(put_off, self._newest.get((unique_key, due), 0))

    def is_replaced(self, unique_key: str | None, due: int | None, put_off: int) -> bool:
        """Whether a newer copy of a message was added."""
        if unique_key is None or due is None:
            return False
        return self._newest.get((unique_key, due), 0) > put_off
