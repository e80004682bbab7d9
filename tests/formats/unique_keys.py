"""The unique key that a client gives to a message (`MessageClientIDSetter`)."""

from __future__ import annotations

from typing import Any

from construct import Bytes, Int16ub, Int32sb, Int32ub, Struct

from rmqtool.formats.layout import parse

_REST = (
    "process_id" / Int16ub * "low 16 bits of the client's process id",
    "class_loader_hash" / Int32sb * "hash code of the client's class loader",
    "ms_in_month" / Int32ub * "time since the start of the month in the client's time zone, ms",
    "counter" / Int16ub * "counter of the client, wraps",
)
UniqueKeyV4 = Struct("address" / Bytes(4) * "client's IPv4 address", *_REST)
UniqueKeyV6 = Struct("address" / Bytes(16) * "client's IPv6 address", *_REST)


def parse_unique_key(text: str) -> Any:
    """Decode a unique key of 32 (IPv4) or 56 (IPv6) hex digits."""
    return parse({32: UniqueKeyV4, 56: UniqueKeyV6}[len(text)], bytes.fromhex(text))
