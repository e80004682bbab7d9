"""The timer log: a unit for each message that waits in the timer wheel (`TimerLog`, `TimerMessageStore#doEnqueue`)."""

from __future__ import annotations

import numpy as np
from construct import Int32sb, Int64sb, Struct
from numpy.typing import NDArray

from .layout import dtype_of
from .message import MAGIC_CODE_BLANK

TimerLogUnit = Struct(
    "size" / Int32sb * "size of the unit, 52 bytes",
    "previous_position" / Int64sb * "timer log position of the slot's older unit, -1 without one, bytes",
    "magic" / Int32sb * "bits: 1 default, 2 rolled on to a later slot, 4 a delete",
    "write_timestamp" / Int64sb * "broker's clock at writing (currWriteTimeMs), epoch ms",
    "delay" / Int32sb * "from write_timestamp to the delivery, ms",
    "physical_offset" / Int64sb * "commit log position of the record, bytes",
    "message_size" / Int32sb * "stored size of the whole record, bytes",
    "topic_hash" / Int32sb * "hash of the real topic",
    "reserved" / Int64sb * "0",
)
TimerLogBlank = Struct(
    "size" / Int32sb * "bytes from here to the end of the file",
    "reserved" / Int64sb * "0",
    "magic" / Int32sb * "MAGIC_CODE_BLANK, where a unit has its magic",
)
UNIT_DTYPE = dtype_of(TimerLogUnit)
UNIT_SIZE = UNIT_DTYPE.itemsize  # TimerLog.UNIT_SIZE
MESSAGE_SIZE_POSITION = UNIT_DTYPE.fields["message_size"][1] if UNIT_DTYPE.fields else 0  # in a unit, bytes
PREVIOUS_POSITION = UNIT_DTYPE.fields["previous_position"][1] if UNIT_DTYPE.fields else 0  # in a unit, bytes
DELAY_POSITION = UNIT_DTYPE.fields["delay"][1] if UNIT_DTYPE.fields else 0  # in a unit, bytes
NO_MESSAGE = bytes(4)  # a message size of 0: a broker passes the unit over
BLANK_SIZE = dtype_of(TimerLogBlank).itemsize  # TimerLog.BLANK_MAGIC_CODE's record

MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
_MAGIC_BITS = 0xF  # TimerMessageStore#isMagicOK


def decode_units(data: bytes | bytearray | memoryview) -> NDArray[np.void]:
    """View `data` as whole units, shape ``(len(data) // 52,)``; a partial last unit is left out."""
    return np.frombuffer(data, dtype=UNIT_DTYPE, count=len(data) // UNIT_SIZE)


def is_written(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """The broker's own test of a unit, per unit (`TimerMessageStore#recoverAndRevise`)."""
    written: NDArray[np.bool_] = (units["size"] == UNIT_SIZE) & ((units["magic"] | _MAGIC_BITS) == _MAGIC_BITS)
    return written


def is_blank(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether the blank that ends a full file begins at a unit, per unit (`TimerLog#append`)."""
    blank: NDArray[np.bool_] = units["magic"] == MAGIC_CODE_BLANK
    return blank


def leads_on(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether a unit leads to a message, per unit: one with a message of no bytes is passed over (`StoreUtil`)."""
    leads: NDArray[np.bool_] = units["message_size"] > 0
    return leads


def dues(units: NDArray[np.void]) -> NDArray[np.int64]:
    """When each unit is due, epoch ms: when its message is delivered, or rolled to a later slot."""
    times: NDArray[np.int64] = units["write_timestamp"].astype(np.int64) + units["delay"].astype(np.int64)
    return times
