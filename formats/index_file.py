"""An index file: header, hash slots, index units (`IndexFile`, `IndexHeader`)."""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

from .java import string_hash
from .layout import dtype_of

IndexHeader = Struct(
    "begin_timestamp" / Int64sb * "store timestamp of the first unit, epoch ms",
    "end_timestamp" / Int64sb * "store timestamp of the last put, epoch ms",
    "begin_physical_offset" / Int64sb * "commit log position of the first unit's message, bytes",
    "end_physical_offset" / Int64sb * "commit log position of the last put's message, bytes",
    "hash_slot_count" / Int32sb * "used hash slots; before 4.7.1 every put counted",
    "index_count" / Int32sb * "number of the next unit: units + 1; 0 in a file never written",
)
HashSlot = Struct(
    "newest_unit" / Int32sb * "number of the newest unit of the slot's chain, 0 when empty",
)
IndexUnit = Struct(
    "key_hash" / Int32sb * "hash of topic#key, never negative",
    "physical_offset" / Int64sb * "commit log position of the message, bytes",
    "seconds_since_begin" / Int32sb * "store time after the header's begin_timestamp, seconds",
    "previous" / Int32sb * "number of the older unit in the same slot, 0 at the end",
)
HEADER_DTYPE = dtype_of(IndexHeader)
HEADER_SIZE = HEADER_DTYPE.itemsize
SLOT_DTYPE = dtype_of(HashSlot)["newest_unit"]
UNIT_DTYPE = dtype_of(IndexUnit)
UNIT_SIZE = UNIT_DTYPE.itemsize

DEFAULT_SLOTS = 5_000_000  # maxHashSlotNum
DEFAULT_UNITS = 20_000_000  # maxIndexNum


def key_hash(topic: str, key: str) -> int:
    """Hash that a unit stores for a key of a topic (`IndexFile#indexKeyHashMethod`)."""
    value = abs(string_hash(f"{topic}#{key}"))
    return value if value < 1 << 31 else 0  # abs(Integer.MIN_VALUE) is negative in Java and becomes 0


def file_size(slots: int, units: int) -> int:
    """Size of an index file of that geometry, bytes."""
    return HEADER_SIZE + SLOT_DTYPE.itemsize * slots + UNIT_SIZE * units


def slot_position(slot: int) -> int:
    """Position of hash slot `slot`, from 0 on, bytes."""
    return file_size(slot, 0)


def unit_position(slots: int, unit_index: int) -> int:
    """Position of unit `unit_index` in a file with `slots` hash slots, bytes; unit 0 is never used."""
    return file_size(slots, unit_index)
