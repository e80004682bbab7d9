"""Several messages in one body (`MessageDecoder#encodeMessage`, `MessageDecoder#decodeMessage`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from construct import Bytes, Int16ub, Int32sb, Int32ub, Struct, this

from rmqtool.formats.layout import FormatError, build, parse
from rmqtool.formats.properties import decode_properties, encode_properties

BatchUnit = Struct(
    "size" / Int32ub * "size of the unit, this field included, bytes",
    "magic_code" / Int32sb * "not used: 0",
    "body_crc" / Int32sb * "not used: 0",
    "flag" / Int32sb * "flag of the application",
    "body_size" / Int32ub * "size of the body, bytes",
    "body" / Bytes(this.body_size) * "the body",
    "properties_size" / Int16ub * "size of the properties, bytes",
    "properties" / Bytes(this.properties_size) * "properties as a record has them",
)

UNIT_OVERHEAD = 22
"""Bytes of a unit beside its body and properties."""

_SIZE_WIDTH = 4


class BatchError(ValueError):
    """A body that is no batch."""


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a batch."""

    flag: int
    body: bytes
    properties: Mapping[str, str]


def pack(parts: Iterable[Part]) -> bytes:
    """The body of a batch."""
    return b"".join(map(_unit, parts))


def unpack(body: bytes) -> list[Part]:
    """The messages of a batch; raises BatchError."""
    return list(_units(body))


def _unit(part: Part) -> bytes:
    properties = encode_properties(part.properties)
    fields = {
        "size": UNIT_OVERHEAD + len(part.body) + len(properties),
        "magic_code": 0,
        "body_crc": 0,
        "flag": part.flag,
        "body_size": len(part.body),
        "body": part.body,
        "properties_size": len(properties),
        "properties": properties,
    }
    return build(BatchUnit, fields)


def _units(body: bytes) -> Iterator[Part]:
    position = 0
    while position < len(body):
        size = int.from_bytes(body[position : position + _SIZE_WIDTH], "big")
        if not UNIT_OVERHEAD <= size <= len(body) - position:
            raise BatchError(f"a message of {size} bytes at {position} of {len(body)}")
        try:
            unit = parse(BatchUnit, body[position : position + size])
        except FormatError as error:
            raise BatchError(str(error)) from error
        yield Part(unit.flag, bytes(unit.body), decode_properties(bytes(unit.properties)))
        position += size
