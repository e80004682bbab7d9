"""The bytes of one unit with its fields named."""

from __future__ import annotations

from typing import Any

from construct import Struct

from rmqtool.base.visible import visible
from rmqtool.formats.host import format_host
from rmqtool.formats.layout import field_extents

_BYTES = 16  # in one line
_SHOWN = 60  # characters of a value


def hex_fields(layout: Struct | None, data: bytes, indent: str = "  ") -> list[str]:
    """A line for each field: its position in the unit, bytes, name and value; then bytes that belong to no field."""
    lines, end = [], 0
    for name, start, stop, value in field_extents(layout, data) if layout else []:
        shown = format_host(value) if name.endswith("_host") else _value(value)
        lines += _lines(data[start:stop], start, f"{name} {shown}", indent)
        end = stop
    return lines + (_lines(data[end:], end, "" if layout is None else "beyond the last field", indent))


def _lines(data: bytes, position: int, label: str, indent: str) -> list[str]:
    lines = []
    for start in range(0, len(data), _BYTES):
        chunk = data[start : start + _BYTES]
        text = label if start == 0 else ""
        if not label:
            text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in chunk)
        lines.append(f"{indent}{position + start:06x}  {chunk.hex(' '):<{3 * _BYTES - 1}}  {text}".rstrip())
    return lines


def _value(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    text = visible(value.decode("utf-8", "replace"))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
