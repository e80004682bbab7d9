"""The unique key that a client gives to a message (`MessageClientIDSetter`)."""

from __future__ import annotations

from typing import Any

from construct import Bytes, Int16ub, Int32sb, Int32ub, Struct

from .layout import FormatError, parse, size_of

_REST = (
    "process_id" / Int16ub * "low 16 bits of the client's process id",
    "class_loader_hash" / Int32sb * "hash code of the client's class loader",
    "ms_in_month" / Int32ub * "time since the start of the month in the client's time zone, ms",
    "counter" / Int16ub * "counter of the client, wraps",
)
UniqueKeyV4 = Struct("address" / Bytes(4) * "client's IPv4 address", *_REST)
UniqueKeyV6 = Struct("address" / Bytes(16) * "client's IPv6 address", *_REST)


def parse_unique_key(text: str) -> Any:
    """Decode a unique key of 32 (IPv4) or 56 (IPv6) hex digits; raise FormatError for anything else."""
    layouts = {2 * size_of(layout): layout for layout in (UniqueKeyV4, UniqueKeyV6)}
    try:
        return parse(layouts[len(text)], bytes.fromhex(text))
    except (KeyError, ValueError) as error:
        raise FormatError(f"a unique key has 32 or 56 hex digits: {text!r}") from error
