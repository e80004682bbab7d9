"""Times as output shows them."""

from __future__ import annotations

import pytest

from rmqtool.times import rfc3339


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
