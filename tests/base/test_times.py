"""Times as output shows them and as people write them."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.base.times import MAX_TIMESTAMP, MIN_TIMESTAMP, parse_time, parse_zone, rfc3339


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_258_320_123, "2026-11-21T10:52:00.123Z"),
        (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_in_utc_with_milliseconds(timestamp: int, expected: str) -> None:
    """Every millisecond is shown, none is rounded."""
    assert rfc3339(timestamp) == expected


@pytest.mark.parametrize(
    "timestamp", [None, 253_402_300_800_000, -62_135_596_800_001, (1 << 63) - 1, -(1 << 63), 10**40]
)
def test_what_is_no_time(timestamp: int | None) -> None:
    """Outside of what a calendar has there is no time, and no error."""
    assert rfc3339(timestamp) is None


NOW = 1_795_258_320_123


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T10:52:00.123Z", 1_795_258_320_123),
        ("2026-11-21T10:52:00Z", 1_795_258_320_000),
        ("2026-11-21t10:52:00z", 1_795_258_320_000),
        ("2026-11-21 10:52Z", 1_795_258_320_000),
        ("2026-11-21T18:52:00+08:00", 1_795_258_320_000),
        ("2026-11-21T05:22:00.5-0530", 1_795_258_320_500),
        ("2026-11-21T10:52:00.123999999Z", 1_795_258_320_123),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0", 0),
        (" 1795258320123 ", 1_795_258_320_123),
        ("-5", -5),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("-2h", NOW - 7_200_000),
        ("-3d", NOW - 259_200_000),
        ("+30m", NOW + 1_800_000),
        ("-1w2d3h4m5s6ms", NOW - 604_800_000 - 172_800_000 - 10_800_000 - 240_000 - 5_006),
    ],
)
def test_times_as_people_write_them(text: str, expected: int) -> None:
    """RFC 3339, epoch ms of any sign, and distances from now; nothing is rounded up."""
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not a time"),
        ("last week", "is not a time"),
        ("yesterday evening", "is not a time"),
        ("2h", "is not a time"),
        ("-2y", "is not a time"),
        ("-2h ago", "is not a time"),
        ("2026-11-31", "day is out of range"),
        ("2026-11-21 25:00", "hour must be in 0..23"),
        ("2026-11-21T10", "is not a time"),
        ("2026-13-21T10:52:00Z", "month must be in 1..12"),
        ("2026-11-21T10:52:00+25:00", "time zone"),
        ("9223372036854775808", "64 bits"),
        ("-999999999999w", "64 bits"),
        ("\u0661\u0662", "is not a time"),
    ],
)
def test_what_is_no_time_is_told(text: str, reason: str) -> None:
    """No text leads anywhere but to a ValueError."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21", "2026-11-20T16:00:00.000Z"),
        ("2026-11-21 10:52", "2026-11-21T02:52:00.000Z"),
        ("2026-11-21T10:52:00.5", "2026-11-21T02:52:00.500Z"),
        ("2026-11-21 10:52Z", "2026-11-21T10:52:00.000Z"),
        ("today", "2026-11-20T16:00:00.000Z"),
        ("Yesterday", "2026-11-19T16:00:00.000Z"),
        ("yesterday 18:30", "2026-11-20T10:30:00.000Z"),
        ("tomorrow 04:00Z", "2026-11-22T04:00:00.000Z"),
        ("now", "2026-11-21T10:52:00.123Z"),
        ("1795258320", "2026-11-21T10:52:00.000Z"),
    ],
)
def test_times_of_a_zone(text: str, expected: str) -> None:
    """Where none is written, it is the zone that was asked for; a number too small for epoch ms is epoch seconds."""
    assert rfc3339(parse_time(text, NOW, parse_zone("Asia/Shanghai"))) == expected


def test_without_a_zone_it_is_the_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert rfc3339(parse_time("2026-11-21 10:52", NOW)) == "2026-11-21T15:52:00.000Z"
        assert rfc3339(parse_time("2026-07-21", NOW)) == "2026-07-21T04:00:00.000Z"
        assert rfc3339(parse_time("today", NOW)) == "2026-11-21T05:00:00.000Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Asia/Shanghai", "08:00"),
        ("+08:00", "08:00"),
        ("-0330", "-1 day, 20:30"),
        ("UTC+5:30", "05:30"),
        ("Z", "00:00"),
        ("Europe/Berlin", "01:00"),
    ],
)
def test_zones(text: str, expected: str) -> None:
    distance = datetime(2026, 11, 21, tzinfo=parse_zone(text)).utcoffset()
    assert str(distance) == expected.lstrip("0").rjust(4, "0") + ":00"


@pytest.mark.parametrize("text", ["", "Nowhere/City", "+25:00", "../../etc/passwd", "8", "+08:75", "\0"])
def test_no_zones(text: str) -> None:
    with pytest.raises(ValueError, match="not a time zone"):
        parse_zone(text)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_what_is_shown_can_be_given(timestamp: int) -> None:
    """Every time that output shows is read back as the same millisecond."""
    assert parse_time(rfc3339(timestamp) or "") == timestamp


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    """Nothing else than ValueError comes out."""
    with suppress(ValueError):
        assert MIN_TIMESTAMP <= parse_time(text, NOW) <= MAX_TIMESTAMP
