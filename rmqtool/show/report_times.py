"""Times and lengths of time as a report shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from rmqtool.broker.delete_when import MAX_TIME, local_time

_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))


@dataclass(frozen=True)
class Clock:
    """Shows times in one zone, None: this machine's."""

    zone: tzinfo | None

    def time(self, timestamp: int | None, timespec: str = "minutes") -> str:
        """``2026-11-21 14:34 +08:00`` of epoch ms; with its number where no calendar has it."""
        if timestamp is None:
            return "-"
        if not 0 <= timestamp <= MAX_TIME:
            return f"{timestamp} ms"
        text = local_time(timestamp, self.zone).isoformat(" ", timespec)
        return f"{text[:-6]} {text[-6:]}"

    def exact(self, timestamp: int) -> str:
        """The same with milliseconds."""
        return self.time(timestamp, "milliseconds")

    def length(self, milliseconds: int) -> str:
        """``3 hours``, or ``hour`` for one of them, behind "each"."""
        size, name = next((unit for unit in _UNITS if milliseconds >= unit[0]), _UNITS[-1])
        count = milliseconds // size
        return name if count == 1 else f"{count} {name}s"
