"""Numbers as people and programs write them: sizes, bounds of options, and 64-bit numbers in JSON."""

from __future__ import annotations

from numbers import Real
from typing import Annotated, Any, Literal, NamedTuple

Long = Annotated[int, "int64"]
"""A Java `long`, of a field that is shown as JSON."""
Count = Annotated[int, "count"]
"""A number of at least 0, of a field that is shown as JSON."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def byte_size(size: int) -> str:
    """A size for people, in IEC units with three significant digits."""
    value = float(size)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"


class Bounds(NamedTuple):
    """The least and the largest number; None without a limit."""

    least: int
    most: int | None = None

    def __contains__(self, number: object) -> bool:
        value: Any = number
        return isinstance(number, Real) and self.least <= value and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f"of at least {self.least}" if self.most in (None, _LONG) else f"from {self.least} to {self.most}"


_LONG = (1 << 63) - 1  # Java's Long.MAX_VALUE

JOBS = Bounds(1, 256)
OFFSETS = Bounds(0, _LONG)
"""Physical offsets, queue offsets and counts."""

QUEUE_IDS = Bounds(-(1 << 31), (1 << 31) - 1)
"""Numbers of queues, which are Java ints."""

EXAMPLES = Bounds(1)
PERCENT = Bounds(0, 100)
RATE = Bounds(1)
"""Bytes per second."""

SECONDS = Bounds(0)


Int64 = Literal["number", "string"]

SMALL_FIELDS = frozenset(
    {"queue_id", "message_size", "body_size", "flag", "sys_flag", "reconsume_times", "body_crc", "code"}
)
"""Fields that are numbers in any case: 32-bit fields of a message, and the exit status.

It is the name that decides, and never the value: a field has one type in all lines.
"""


def is_text(name: str, int64: Int64) -> bool:
    """Whether whole numbers in a field are written as text."""
    return int64 == "string" and name not in SMALL_FIELDS


def with_int64(value: Any, int64: Int64, name: str = "") -> Any:
    """`value`, the field `name` of what goes into JSON, with its whole numbers as they are wanted."""
    if int64 == "number":
        return value
    if isinstance(value, dict):
        return {key: with_int64(item, int64, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_int64(item, int64, name) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value)) if is_text(name, int64) else value
    return value
