"""Times as people see them: in one zone, which is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.base.times import local_rfc3339, parse_zone, rfc3339
from rmqtool.show.times import sentence, show_times_in, time_column, time_text

NOON = 1_795_258_320_123
ZONES = ("Asia/Kolkata", "America/St_Johns", "Europe/London", "UTC", "-09:30")


@pytest.fixture(autouse=True)
def _zone_of_the_machine_again() -> Iterator[None]:
    yield
    show_times_in(None)


@pytest.mark.parametrize(
    ("zone", "timestamp", "expected"),
    [
        ("Asia/Kolkata", NOON, "2026-11-21T16:22:00.123+05:30"),
        ("UTC", NOON, "2026-11-21T10:52:00.123Z"),
        ("Europe/London", NOON, "2026-11-21T10:52:00.123Z"),
        ("Europe/London", 1_782_000_000_000, "2026-06-21T01:00:00.000+01:00"),
        ("UTC", 1 << 62, f"{1 << 62} ms"),
        ("UTC", None, "-"),
    ],
)
def test_a_time_has_its_zone(zone: str, timestamp: int | None, expected: str) -> None:
    show_times_in(parse_zone(zone))
    assert time_text(timestamp) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stored at 2026-11-21T10:52:00.123Z, in the future", "stored at 2026-11-21T16:22:00.123+05:30, in the future"),
        ("of 2026-11-21T10:52:00.123Z: copied", "of 2026-11-21T16:22:00.123+05:30: copied"),
        ("key order-2026-11-21T10:52:00.123Z", "key order-2026-11-21T10:52:00.123Z"),
        ("key 2026-11-21T10:52:00.123Z-7", "key 2026-11-21T10:52:00.123Z-7"),
        ("2026-11-21T10:52:00Z", "2026-11-21T10:52:00Z"),
        ("2026-13-41T10:52:00.123Z", "2026-13-41T10:52:00.123Z"),
    ],
)
def test_the_times_of_a_sentence(text: str, expected: str) -> None:
    """What `rfc3339` wrote is shown in the zone; what only looks so, as a part of a key, stays."""
    show_times_in(parse_zone("Asia/Kolkata"))
    assert sentence(text) == expected


@pytest.mark.parametrize("zone", ZONES)
@given(times=st.lists(st.none() | st.integers(63_072_000_000, 250_000_000_000_000)))
def test_a_column_of_times_is_as_each_of_them(zone: str, times: list[int | None]) -> None:
    """Whole columns are shown as single times are, across the changes of summer time, since 1972."""
    show_times_in(parse_zone(zone))
    column = pa.array(map(rfc3339, times), pa.string())
    assert time_column(column).to_pylist() == [local_rfc3339(each, parse_zone(zone)) for each in times]


def test_a_column_at_the_ends_of_the_years() -> None:
    """Years 1 and 9999 have no local time beyond them."""
    show_times_in(parse_zone("Asia/Kolkata"))
    first, last = -62_135_596_800_000, 253_402_300_799_999
    column = pa.array([rfc3339(first), rfc3339(last), None], pa.string())
    shown = time_column(column).to_pylist()
    assert shown[1:] == ["9999-12-31T23:59:59.999Z", None]
