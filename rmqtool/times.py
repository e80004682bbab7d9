"""Times as output shows them: RFC 3339 in UTC, from epoch ms."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rfc3339(timestamp: int | None) -> str | None:
    """``2026-11-21T10:52:00.123Z``; None without a timestamp or outside the years 1 to 9999."""
    if timestamp is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None
