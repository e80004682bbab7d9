"""The zone in which people see times: ``--time-zone``, or this machine's; programs get UTC."""

from __future__ import annotations

from datetime import tzinfo
from typing import TYPE_CHECKING

from rmqtool.base.times import local_rfc3339, with_local_times

if TYPE_CHECKING:
    import pyarrow as pa

TIME = "_time"
"""How the names of fields end that hold a time as `rfc3339` writes it."""

_MINUTE_MS = 60_000
_QUARTER_MS = 15 * 60_000  # every zone's offset is a multiple of it since 1972
_WITHOUT_ZONE = len("2026-11-21T10:52:00.123")


class _Shown:
    """The zone of the command that runs; it is set once, before anything is shown."""

    zone: tzinfo | None = None


def show_times_in(zone: tzinfo | None) -> None:
    """Show times in `zone` from now on, None: this machine's."""
    _Shown.zone = zone


def shown_zone() -> tzinfo | None:
    """The zone in which times are shown, and in which those without one are read; None: this machine's."""
    return _Shown.zone


def time_text(timestamp: int | None) -> str:
    """A time, epoch ms, as people see it; with its number where no calendar has it, ``-`` without one."""
    if timestamp is None:
        return "-"
    return local_rfc3339(timestamp, _Shown.zone) or f"{timestamp} ms"


def duration(milliseconds: int) -> str:
    """A length of time in its two largest units, such as ``3 d 4 h``."""
    minutes = abs(milliseconds) // _MINUTE_MS
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h" if days < 100 else f"{days} d"
    return f"{hours} h {rest} min" if hours else f"{rest} min"


def sentence(text: str) -> str:
    """A sentence as people see it: findings, plans and errors have their times in UTC, as JSON shows them."""
    return with_local_times(text, _Shown.zone)


def time_column(values: pa.StringArray) -> pa.StringArray:
    """A column of times in UTC, as `rfc3339` writes them or null, as people see it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from rmqtool.scan.rows import times_of

    times = values.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    quarters, rows = np.unique(np.asarray(times.fill_null(0)) // _QUARTER_MS, return_inverse=True)
    shown = [local_rfc3339(quarter * _QUARTER_MS, _Shown.zone) or "" for quarter in quarters.tolist()]
    zones = pa.array([text[_WITHOUT_ZONE:] for text in shown], pa.string())
    if set(zones.to_pylist()) <= {"Z"}:
        return values
    return pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(times_of(pc.add(times, _distances(zones).take(pa.array(rows)))), 0, _WITHOUT_ZONE),
        zones.take(pa.array(rows)),
        "",
    )


def _distances(zones: pa.StringArray) -> pa.Int64Array:
    """Milliseconds from UTC of ``Z`` and ``+08:00``."""
    import pyarrow as pa

    def distance(zone: str) -> int:
        minutes = 0 if zone == "Z" else int(zone[1:3]) * 60 + int(zone[4:6])
        return (-minutes if zone.startswith("-") else minutes) * 60_000

    return pa.array(map(distance, zones.to_pylist()), pa.int64())
