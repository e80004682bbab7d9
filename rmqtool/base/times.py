"""Times: RFC 3339 from epoch ms, in UTC for programs and in a zone for people; as people write them; time zones."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MIN_TIMESTAMP = -(1 << 63)
MAX_TIMESTAMP = (1 << 63) - 1
"""Timestamps are Java's `long`: a broker stores what a client sends, whatever it is."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
_EPOCH_NUMBER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_SECONDS = range(10**8, 10**11)
"""Numbers that are epoch seconds, 1973 to 5138: as milliseconds they would be older than RocketMQ."""
_RELATIVE = re.compile(r"([+-])((?:\d{1,12}(?:ms|[wdhms]))+)", re.ASCII)
_DURATION_ITEM = re.compile(r"(\d+)(ms|[wdhms])", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_MAX_SECONDS = 1 << 33  # later times no file system keeps
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CALENDAR = re.compile(
    r"(\d{4}-\d\d-\d\d|yesterday|today|tomorrow)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?)?"
    r"\s?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_UTC_TIME = re.compile(r"(?<![\w.:+-])\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z(?![\w-])", re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?([0-5]\d)", re.ASCII)


Moment = Annotated[int | None, "moment"]
"""A time, epoch ms, where there is one; a field of it has two names in JSON, ``*_timestamp`` and ``*_time``."""
CertainMoment = Annotated[int, "moment"]


def rfc3339(timestamp: int | None) -> str | None:
    """``2026-11-21T10:52:00.123Z``; None without a timestamp or outside the years 1 to 9999."""
    if timestamp is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def with_times(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the time, as `rfc3339` writes it, after each timestamp."""
    shown: dict[str, Any] = {}
    for name, value in values.items():
        shown[name] = value
        if name.endswith("timestamp"):
            shown[name.removesuffix("stamp")] = rfc3339(value)
    return shown


def local_rfc3339(timestamp: int | None, zone: tzinfo | None) -> str | None:
    """``2026-11-21T18:52:00.123+08:00``, in `zone`, None for this machine's; ``Z`` where that is UTC.

    None as `rfc3339` has it. A time that has no calendar in the zone, at the ends of the years, stays in UTC.
    """
    if timestamp is None:
        return None
    try:
        text = (_EPOCH + timedelta(milliseconds=timestamp)).astimezone(zone).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return rfc3339(timestamp)
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def with_local_times(text: str, zone: tzinfo | None) -> str:
    """A sentence with each time that `rfc3339` wrote into it as `local_rfc3339` shows it."""
    return _UTC_TIME.sub(lambda found: local_rfc3339(epoch_ms(found[0]), zone) or found[0], text)


def epoch_ms(text: str) -> int | None:
    """Epoch ms of what `rfc3339` wrote; None for a day that no calendar has."""
    try:
        return (datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=timezone.utc) - _EPOCH) // _MS
    except ValueError:
        return None


def file_time(timestamp: int) -> int:
    """A store timestamp, epoch ms, as a modification time that every file system keeps, ns."""
    return min(max(timestamp, 0), _MAX_SECONDS * 1000) * 1_000_000


def parse_time(text: str, now: int | None = None, zone: tzinfo | None = None) -> int:
    """Epoch ms of a time as people write it; raise ValueError with a sentence that says what is wrong.

    A date with or without a time of day (``2026-11-21 10:52``; a date alone is its first moment; ``today``,
    ``yesterday`` and ``tomorrow`` are dates), in its own zone (``2026-11-21T10:52:00Z``) or in `zone`, None for this
    machine's; epoch ms, or seconds where those cannot be meant; ``now`` (`now`, epoch ms, default: the clock) or a
    distance from it: ``-2h``, ``-1d12h``, ``+30m``; units are w, d, h, m, s and ms.
    """
    text = text.strip()
    if _EPOCH_NUMBER.fullmatch(text):
        number = int(text)
        return _checked(number * 1000 if number in _SECONDS else number, text)
    now = time.time_ns() // 1_000_000 if now is None else now
    if relative := _RELATIVE.fullmatch(text):
        distance = _milliseconds(relative[2])
        return _checked(now - distance if relative[1] == "-" else now + distance, text)
    if text.lower() == "now":
        return now
    if match := _CALENDAR.fullmatch(text):
        return _from_calendar(match, now, zone)
    raise ValueError(f"{text!r} is not a time; examples: 2026-11-21T10:52:00Z, '2026-11-21 10:52', yesterday or -2h")


def parse_duration(text: str) -> int:
    """Milliseconds of ``10m`` or ``1h30m``; units are those of `parse_time`. Raise ValueError."""
    found = _RELATIVE.fullmatch(f"+{text.strip()}")
    if not found:
        raise ValueError(f"{text!r} is not a duration; examples: 90s, 10m, 1h30m")
    return _milliseconds(found[2])


def _milliseconds(items: str) -> int:
    return sum(int(count) * _UNIT_MS[unit] for count, unit in _DURATION_ITEM.findall(items))


def parse_zone(text: str) -> tzinfo:
    """A time zone: a name such as Asia/Shanghai, or a distance from UTC such as +08:00; raise ValueError."""
    text = text.strip()
    if text.upper() in ("Z", "UTC", "GMT"):
        return timezone.utc
    if offset := _OFFSET.fullmatch(text):
        distance = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if distance < timedelta(hours=24):
            return timezone(distance if offset[1] == "+" else -distance)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{text!r} is not a time zone; examples: Asia/Shanghai or +08:00") from error


def _from_calendar(match: re.Match[str], now: int, zone: tzinfo | None) -> int:
    """Epoch ms of a date, perhaps with a time of day; digits finer than a millisecond are cut off."""
    day, clock, fraction, own_zone = match.groups()
    try:
        if own_zone:
            zone = parse_zone(own_zone.upper())
        if day.lower() in _DAYS:
            today = (_EPOCH + now * _MS).astimezone(zone).date()
            day = (today + timedelta(days=_DAYS[day.lower()])).isoformat()
        local = datetime.fromisoformat(f"{day}T{clock or '00:00'}")
        passed = (local.replace(tzinfo=zone) if zone else local.astimezone()) - _EPOCH
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{match[0]!r} is not a time: {error}") from error
    return passed // _MS + int((fraction or "0").ljust(3, "0")[:3])


def _checked(timestamp: int, text: str) -> int:
    if not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise ValueError(f"{text!r} does not fit into 64 bits")
    return timestamp
