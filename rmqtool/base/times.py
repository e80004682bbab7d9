"""Times: as output shows them, RFC 3339 in UTC from epoch ms, and as people write them."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone

MIN_TIMESTAMP = -(1 << 63)
MAX_TIMESTAMP = (1 << 63) - 1
"""Timestamps are Java's `long`: a broker stores what a client sends, whatever it is."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
_EPOCH_MS = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_RELATIVE = re.compile(r"([+-])((?:\d{1,12}(?:ms|[wdhms]))+)", re.ASCII)
_DURATION_ITEM = re.compile(r"(\d+)(ms|[wdhms])", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_MAX_SECONDS = 1 << 33  # later times no file system keeps
_RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?\s?(?:([Zz])|([+-])(\d\d):?(\d\d))", re.ASCII
)
_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?", re.ASCII)


def rfc3339(timestamp: int | None) -> str | None:
    """``2026-11-21T10:52:00.123Z``; None without a timestamp or outside the years 1 to 9999."""
    if timestamp is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def file_time(timestamp: int) -> int:
    """A store timestamp, epoch ms, as a modification time that every file system keeps, ns."""
    return min(max(timestamp, 0), _MAX_SECONDS * 1000) * 1_000_000


def parse_time(text: str, now: int | None = None) -> int:
    """Epoch ms of a time as people write it; raise ValueError with a sentence that says what is wrong.

    RFC 3339 with its zone (``2026-11-21T10:52:00Z``), epoch ms (any 64-bit integer), or a distance from `now`
    (epoch ms, default: the clock): ``-2h``, ``-1d12h``, ``+30m``; units are w, d, h, m, s and ms.
    """
    text = text.strip()
    if _EPOCH_MS.fullmatch(text):
        return _checked(int(text), text)
    if relative := _RELATIVE.fullmatch(text):
        distance = sum(int(count) * _UNIT_MS[unit] for count, unit in _DURATION_ITEM.findall(relative[2]))
        start = time.time_ns() // 1_000_000 if now is None else now
        return _checked(start - distance if relative[1] == "-" else start + distance, text)
    if match := _RFC_3339.fullmatch(text):
        return _from_rfc3339(match)
    if _WITHOUT_ZONE.fullmatch(text):
        day, _, clock = text.replace(" ", "T").upper().partition("T")
        raise ValueError(f"{text!r} has no time zone: write {day}T{clock or '00:00:00'}Z for UTC, or +08:00 for Z")
    raise ValueError(f"{text!r} is no time such as 2026-11-21T10:52:00Z, 1795258320000 (epoch ms) or -2h")


def _from_rfc3339(match: re.Match[str]) -> int:
    """Epoch ms of a match of RFC 3339; digits finer than a millisecond are cut off."""
    day, clock, fraction, utc, sign, hours, minutes = match.groups()
    try:
        local = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=timezone.utc)
        offset = timedelta() if utc else timedelta(hours=int(hours), minutes=int(minutes))
        if offset >= timedelta(days=1):
            raise ValueError("a time zone is less than a day from UTC")
    except ValueError as error:
        raise ValueError(f"{match[0]!r} is no time: {error}") from error
    passed = (local - _EPOCH) // _MS + int((fraction or "0").ljust(3, "0")[:3])
    return passed - (offset if sign != "-" else -offset) // _MS


def _checked(timestamp: int, text: str) -> int:
    if not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise ValueError(f"{text!r} does not fit into 64 bits")
    return timestamp
