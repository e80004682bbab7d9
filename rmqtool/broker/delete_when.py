"""The hours of `deleteWhen`: when they match, and when they stop the cleaner (`UtilAll#isItTimeToDo`)."""

from __future__ import annotations

import re
from datetime import datetime, timezone, tzinfo

_NUMBER = re.compile(r"[+-]?\d{1,18}")  # the digits of all scripts, as Integer#parseInt takes them
_INT = range(-(1 << 31), 1 << 31)
_QUARTER_MS = 15 * 60_000  # every zone's offset is a multiple of it since 1972
_LOOK_AHEAD = 4 * 50  # quarters: two days and the hours that a clock is put forward
MAX_TIME = 253_370_764_800_000  # the year 9999, epoch ms


class CleanerFailsError(Exception):
    """The cleaner's run ends here with a NumberFormatException; the text says which piece it is."""


def is_time(delete_when: str, hour: int) -> bool:
    """Whether `hour` (0 to 23) is one of `delete_when`; raise CleanerFailsError as the broker's run fails.

    The pieces are parsed one by one and the first match ends it, so that a bad piece may go unnoticed for hours.
    """
    for piece in _pieces(delete_when):
        if not _NUMBER.fullmatch(piece) or int(piece) not in _INT:
            raise CleanerFailsError(piece)
        if int(piece) == hour:
            return True
    return False


def matching_hours(delete_when: str) -> list[int]:
    """The matching hours of the day, 0 to 23."""
    return [hour for hour in range(24) if _matches(delete_when, hour)]


def failing_hours(delete_when: str) -> list[int]:
    """The hours of the day in which every run of the cleaner fails."""
    return [hour for hour in range(24) if _matches(delete_when, hour) is None]


def local_time(now: int, zone: tzinfo | None) -> datetime:
    """The wall clock at `now`, epoch ms, in year 9999 at most; `zone` None is this machine's."""
    return datetime.fromtimestamp(min(now, MAX_TIME) / 1000, timezone.utc).astimezone(zone)


def next_start(delete_when: str, now: int, zone: tzinfo | None) -> int | None:
    """When the next matching hour begins, epoch ms; None when none comes within two days."""
    quarter = now // _QUARTER_MS * _QUARTER_MS
    hour = local_time(quarter, zone).hour
    for _ in range(_LOOK_AHEAD):
        quarter += _QUARTER_MS
        before, hour = hour, local_time(quarter, zone).hour
        if hour != before and _matches(delete_when, hour):
            return quarter
    return None


def _matches(delete_when: str, hour: int) -> bool | None:
    try:
        return is_time(delete_when, hour)
    except CleanerFailsError:
        return None


def _pieces(delete_when: str) -> list[str]:
    """As `String#split` gives them: empty pieces at the end are dropped, unless there was nothing to split."""
    pieces = delete_when.split(";")
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    return [] if pieces == [""] and delete_when else pieces
