"""The offset message id: store host and physical offset in hex (`MessageDecoder#createMessageId`)."""

from __future__ import annotations

from construct import Bytes, Int64sb, Struct

from .host import HOST_V4_SIZE, HOST_V6_SIZE
from .layout import FormatError, build, parse, size_of

MessageIdV4 = Struct(
    "store_host" / Bytes(HOST_V4_SIZE) * "broker's IPv4 address and port",
    "physical_offset" / Int64sb * "position of the record in the commit log, bytes",
)
MessageIdV6 = Struct(
    "store_host" / Bytes(HOST_V6_SIZE) * "broker's IPv6 address and port",
    "physical_offset" / Int64sb * "position of the record in the commit log, bytes",
)


def format_message_id(store_host: bytes, physical_offset: int) -> str:
    """Upper-case hex, 32 characters for an IPv4 store host and 56 for IPv6."""
    layout = MessageIdV4 if len(store_host) == HOST_V4_SIZE else MessageIdV6
    return build(layout, {"store_host": store_host, "physical_offset": physical_offset}).hex().upper()


def parse_message_id(text: str) -> tuple[bytes, int]:
    """Store host (8 or 20 bytes) and physical offset; raise FormatError when `text` is not a message id."""
    layouts = {2 * size_of(layout): layout for layout in (MessageIdV4, MessageIdV6)}
    if len(text) not in layouts:
        raise FormatError(f"a message id has 32 or 56 hex digits, this has {len(text)} characters")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise FormatError(f"a message id has hex digits only: {text!r}") from error
    if 2 * len(data) != len(text):
        raise FormatError(f"a message id has hex digits only: {text!r}")
    fields = parse(layouts[len(text)], data)
    return fields.store_host, fields.physical_offset
