"""Units of consume queues: of 20 bytes, of 46 for batches, and ext units.

`ConsumeQueue#putMessagePositionInfo`; `BatchConsumeQueue#putBatchMessagePositionInfo`, since 5.0.0; and
`ConsumeQueueExt.CqExtUnit`: what does not fit into a unit of 20 bytes, whose tags code then is an address, the position
of the ext unit in the ext files of the queue.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from construct import Bytes, Int16sb, Int32sb, Int64sb, Struct, this
from numpy.typing import NDArray

from .layout import build, dtype_of, struct_of

ConsumeQueueUnit = Struct(
    "physical_offset" / Int64sb * "commit log position of the message, bytes",
    "message_size" / Int32sb * "stored size of the whole message, bytes",
    "tags_code" / Int64sb * "hash of the tag; the delivery time, ms, for a delayed message; or an ext address",
)
UNIT_DTYPE = dtype_of(ConsumeQueueUnit)
UNIT_SIZE = UNIT_DTYPE.itemsize  # ConsumeQueue.CQ_STORE_UNIT_SIZE
_NO_UNIT = bytes(UNIT_SIZE)
_FEW_UNITS = 32

PRE_BLANK_MESSAGE_SIZE = 0x7FFFFFFF
PRE_BLANK_HEAD = struct.pack(">qi", 0, PRE_BLANK_MESSAGE_SIZE)  # the first bytes of a unit of filler
MAX_EXT_ADDRESS = -(1 << 31) - 1  # ConsumeQueueExt.MAX_ADDR


def is_written(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """The broker's own test of a unit, per unit; pre-blank passes it, zeros do not (`ConsumeQueue#recover`)."""
    written: NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["message_size"] > 0)
    return written


def lead_to_same(units: NDArray[np.void], others: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which units lead to the same bytes of the log as the others in their places; of any kind but ext units."""
    same: NDArray[np.bool_] = units["physical_offset"] == others["physical_offset"]
    same &= units["message_size"] == others["message_size"]
    return same


def leading_offsets(data: bytes) -> tuple[int, ...] | None:
    """The physical offsets of the units at the beginning of `data` that are written, where zeros follow a few of them.

    None elsewhere. Of few units this takes a third of the time of `is_written`.
    """
    end = data.find(_NO_UNIT, 0, _FEW_UNITS * UNIT_SIZE)
    if end < 0:
        return None
    values = _heads(min(-(-end // UNIT_SIZE) + 1, len(data) // UNIT_SIZE)).unpack_from(data)
    offsets, sizes = values[::2], values[1::2]
    if 0 not in sizes or min(sizes) < 0 or min(offsets) < 0:
        return None
    return offsets[: sizes.index(0)]


@lru_cache(_FEW_UNITS)
def _heads(count: int) -> struct.Struct:
    """Physical offset and size of each of `count` units."""
    return struct.Struct(f">{'qi8x' * count}")


def is_pre_blank(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """Filler before a queue's first unit, per unit (`ConsumeQueue#fillPreBlank`)."""
    blank: NDArray[np.bool_] = (units["physical_offset"] == 0) & (units["message_size"] == PRE_BLANK_MESSAGE_SIZE)
    return blank


def is_ext_address(tags_code: int) -> bool:
    """Whether a tags code is the address of an ext unit (`ConsumeQueueExt#isExtAddr`)."""
    return tags_code <= MAX_EXT_ADDRESS


def build_unit(physical_offset: int, message_size: int, tags_code: int) -> bytes:
    """Encode one unit."""
    values = {"physical_offset": physical_offset, "message_size": message_size, "tags_code": tags_code}
    return build(ConsumeQueueUnit, values)


BatchConsumeQueueUnit = Struct(
    "physical_offset" / Int64sb * "commit log position of the record, bytes",
    "message_size" / Int32sb * "stored size of the whole record, bytes",
    "tags_code" / Int64sb * "hash of the tag",
    "store_timestamp" / Int64sb * "broker's clock at storing, epoch ms",
    "base_queue_offset" / Int64sb * "queue offset of the batch's first message (msgBaseOffset)",
    "batch_size" / Int16sb * "messages in the record",
    "compacted_offset" / Int32sb * "-1 (INVALID_POS)",
    "reserved" / Int32sb * "0",
)
BATCH_UNIT_DTYPE = dtype_of(BatchConsumeQueueUnit)
BATCH_UNIT_SIZE = BATCH_UNIT_DTYPE.itemsize  # BatchConsumeQueue.CQ_STORE_UNIT_SIZE


def is_batch_written(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """The broker's own test of a unit, per unit (`BatchConsumeQueue#recover`)."""
    written: NDArray[np.bool_] = (
        (units["physical_offset"] >= 0)
        & (units["message_size"] > 0)
        & (units["base_queue_offset"] >= 0)
        & (units["batch_size"] > 0)
    )
    return written


def is_end_mark(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """The mark that ends a full file of a compacted queue, per unit (`SparseConsumeQueue#putEndPositionInfo`)."""
    mark: NDArray[np.bool_] = (units["physical_offset"] == -1) & (units["message_size"] == 0)
    return mark


ConsumeQueueExtUnit = Struct(
    "size" / Int16sb * "size of the whole unit, bytes; 0 or less: nothing more in this file",
    "tags_code" / Int64sb * "hash of the tag",
    "store_timestamp" / Int64sb * "broker's clock at storing, epoch ms",
    "bit_map_size" / Int16sb * "size of the bit map, bytes",
    "filter_bit_map" / Bytes(this.bit_map_size) * "bloom filter: bit i is bit i % 8 of byte i / 8, from the lowest",
)
EXT_HEADER_DTYPE = dtype_of(ConsumeQueueExtUnit, until="filter_bit_map")
EXT_HEADER = struct_of(EXT_HEADER_DTYPE, *(EXT_HEADER_DTYPE.names or ()))
MIN_EXT_UNIT_SIZE = EXT_HEADER_DTYPE.itemsize  # ConsumeQueueExt.MIN_EXT_UNIT_SIZE
MAX_EXT_UNIT_SIZE = 0x7FFF  # ConsumeQueueExt.MAX_EXT_UNIT_SIZE
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


def ext_address(offset: int) -> int:
    """The tags code that leads to the unit at `offset`, bytes in the queue's ext files (`ConsumeQueueExt#decorate`)."""
    return offset - _ADDRESS_BASE


def ext_offset(address: int) -> int | None:
    """Where an address leads, bytes; None when it is a plain tags code (`ConsumeQueueExt#unDecorate`)."""
    offset = address + _ADDRESS_BASE
    return offset if 0 <= offset <= _MAX_REAL_OFFSET else None


def decode_ext_units(data: bytes) -> Iterator[ExtUnit]:
    """The units of one file up to its end mark; one that is not sound is the last (`ConsumeQueueExt#recover`).

    The size of a unit leads to the next, so nothing after a wrong size can be decoded.
    """
    position = 0
    while position + 2 <= len(data):
        size = int.from_bytes(data[position : position + 2], "big", signed=True)
        if size <= 0:
            return
        unit = data[position : position + size]
        _, tags_code, store_timestamp, bit_map_size = EXT_HEADER.unpack(
            unit[:MIN_EXT_UNIT_SIZE].ljust(MIN_EXT_UNIT_SIZE, b"\0")
        )
        sound = len(unit) == size and size == MIN_EXT_UNIT_SIZE + bit_map_size
        yield ExtUnit(position, size, tags_code, store_timestamp, unit[MIN_EXT_UNIT_SIZE:], sound)
        if not sound:
            return
        position += size
