"""Java's treatment of text: `String#hashCode`, whole numbers, and UTF-8 with U+FFFD for bytes that are not UTF-8."""

from __future__ import annotations

import re

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_WHOLE_NUMBER = re.compile(r"([+-]?)0*(\d{1,19})")  # the digits of all scripts
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


def string_hash(text: str) -> int:
    """`String#hashCode`: ``h = 31 * h + u`` over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def whole_number(text: str, bits: int = 32) -> int | None:
    """`Integer#parseInt`, `Short#parseShort` or `Long#parseLong`, which take no blanks; None for what they refuse."""
    match = _WHOLE_NUMBER.fullmatch(text)
    value = int(match[1] + match[2]) if match else None
    return value if value is not None and -(1 << bits - 1) <= value < 1 << bits - 1 else None


def decode_text(data: bytes) -> str:
    """`new String(data, UTF_8)`: an encoded surrogate becomes one U+FFFD, not one for each byte."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
