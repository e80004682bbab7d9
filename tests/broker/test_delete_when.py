"""Hours of deleteWhen, in the broker's time zone."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from rmqtool.base.times import parse_time, parse_zone
from rmqtool.broker.trigger import (
    CleanerFailsError,
    failing_hours,
    is_time,
    local_time,
    matching_hours,
    next_start,
)

UTC = timezone.utc


@pytest.mark.parametrize(
    ("delete_when", "matching"),
    [
        ("04", [4]),
        ("4", [4]),
        ("04;16", [4, 16]),
        ("24", []),
        ("-1", []),
        ("+4", [4]),
        (";", []),
        ("04;;", [4]),
        ("٤", [4]),
    ],
)
def test_matching_hours(delete_when: str, matching: list[int]) -> None:
    assert matching_hours(delete_when) == matching
    assert failing_hours(delete_when) == []


@pytest.mark.parametrize(
    ("delete_when", "fine"),
    [
        ("04; 16", [4]),
        ("04 ", []),
        ("", []),
        (";04", []),
        ("04;;16", [4]),
        ("4,16", []),
        ("04;x", [4]),
        ("9999999999", []),
    ],
)
def test_pieces_that_are_no_number(delete_when: str, fine: list[int]) -> None:
    """The run fails in every hour that no earlier piece has matched."""
    assert failing_hours(delete_when) == [hour for hour in range(24) if hour not in fine]
    with pytest.raises(CleanerFailsError):
        is_time(delete_when, 23)


def test_the_first_match_ends_it() -> None:
    """What stands after it is not parsed."""
    assert is_time("04;x", 4)


def test_after_the_calendar() -> None:
    """Some file systems keep modification times of the year 10000."""
    assert local_time(253_402_300_800_000, UTC).year == 9999
    assert next_start("04", 253_402_300_800_000, UTC) is None


@pytest.mark.parametrize(
    ("delete_when", "now", "zone", "expected"),
    [
        ("04", "2026-11-21T03:59:59Z", UTC, "2026-11-21T04:00:00Z"),
        ("04", "2026-11-21T04:00:00Z", UTC, "2026-11-22T04:00:00Z"),
        ("04", "2026-11-21T04:30:00Z", UTC, "2026-11-22T04:00:00Z"),
        ("04;05", "2026-11-21T04:30:00Z", UTC, "2026-11-21T05:00:00Z"),
        ("04", "2026-11-21T00:00:00Z", timezone(timedelta(hours=5, minutes=45)), "2026-11-21T22:15:00Z"),
        ("02", "2026-03-28T20:00:00Z", parse_zone("Europe/Berlin"), "2026-03-30T00:00:00Z"),  # 02 is left out
        ("02", "2026-10-24T20:00:00Z", parse_zone("Europe/Berlin"), "2026-10-25T00:00:00Z"),  # 02 comes twice
    ],
)
def test_next_start(delete_when: str, now: str, zone: timezone, expected: str) -> None:
    """When the next hour begins, where clocks change too."""
    assert next_start(delete_when, parse_time(now), zone) == parse_time(expected)


def test_no_next_start() -> None:
    assert next_start("24", 0, UTC) is None
    assert next_start("x", 0, UTC) is None
