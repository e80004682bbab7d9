"""64-bit numbers in JSON: as numbers, or as text for programs that read numbers as doubles, such as JavaScript."""

from __future__ import annotations

from typing import Any, Literal

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
