"""A consume queue ext unit: what does not fit into a consume queue unit (`ConsumeQueueExt.CqExtUnit`).

The consume queue unit's tags code then is an address: the unit's position in the ext files of the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from construct import Bytes, Int16sb, Int64sb, Struct, this

from .layout import build, dtype_of, struct_of

ConsumeQueueExtUnit = Struct(
    "size" / Int16sb * "size of the whole unit, bytes; 0 or less: nothing more in this file",
    "tags_code" / Int64sb * "hash of the tag",
    "store_timestamp" / Int64sb * "broker's clock at storing, epoch ms",
    "bit_map_size" / Int16sb * "size of the bit map, bytes",
    "filter_bit_map" / Bytes(this.bit_map_size) * "bloom filter: bit i is bit i % 8 of byte i / 8, from the lowest",
)
HEADER_DTYPE = dtype_of(ConsumeQueueExtUnit, until="filter_bit_map")
HEADER = struct_of(HEADER_DTYPE, *(HEADER_DTYPE.names or ()))
MIN_UNIT_SIZE = HEADER_DTYPE.itemsize  # ConsumeQueueExt.MIN_EXT_UNIT_SIZE
MAX_UNIT_SIZE = 0x7FFF  # ConsumeQueueExt.MAX_EXT_UNIT_SIZE
END_BLANK_SIZE = 4  # a unit leaves so much room before the end of its file, ConsumeQueueExt.END_BLANK_DATA_LENGTH
_ADDRESS_BASE = 1 << 63  # Long.MIN_VALUE, subtracted
_MAX_REAL_OFFSET = (1 << 63) - (1 << 31) - 1


class ExtUnit(NamedTuple):
    """One unit at `position` in its file, bytes; `is_sound` when its two sizes fit each other and the file."""

    position: int
    size: int
    tags_code: int
    store_timestamp: int
    filter_bit_map: bytes
    is_sound: bool


def address_of(offset: int) -> int:
    """The tags code that leads to the unit at `offset`, bytes in the queue's ext files (`ConsumeQueueExt#decorate`)."""
    return offset - _ADDRESS_BASE


def offset_of(address: int) -> int | None:
    """Where an address leads, bytes; None when it is a plain tags code (`ConsumeQueueExt#unDecorate`)."""
    offset = address + _ADDRESS_BASE
    return offset if 0 <= offset <= _MAX_REAL_OFFSET else None


def decode_units(data: bytes) -> Iterator[ExtUnit]:
    """The units of one file up to its end mark; one that is not sound is the last (`ConsumeQueueExt#recover`).

    The size of a unit leads to the next, so nothing after a wrong size can be decoded.
    """
    position = 0
    while position + 2 <= len(data):
        size = int.from_bytes(data[position : position + 2], "big", signed=True)
        if size <= 0:
            return
        unit = data[position : position + size]
        _, tags_code, store_timestamp, bit_map_size = HEADER.unpack(unit[:MIN_UNIT_SIZE].ljust(MIN_UNIT_SIZE, b"\0"))
        sound = len(unit) == size and size == MIN_UNIT_SIZE + bit_map_size
        yield ExtUnit(position, size, tags_code, store_timestamp, unit[MIN_UNIT_SIZE:], sound)
        if not sound:
            return
        position += size


def build_unit(tags_code: int, store_timestamp: int, filter_bit_map: bytes = b"") -> bytes:
    """Encode one unit."""
    return build(
        ConsumeQueueExtUnit,
        {
            "size": MIN_UNIT_SIZE + len(filter_bit_map),
            "tags_code": tags_code,
            "store_timestamp": store_timestamp,
            "bit_map_size": len(filter_bit_map),
            "filter_bit_map": filter_bit_map,
        },
    )
