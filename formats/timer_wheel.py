"""The timer wheel, and the timer log with a unit for each message that waits in it.

`timerwheel` and its snapshots have one slot for each second of two weeks (`TimerWheel`, `Slot`). The units of a slot
are a chain in the log (`TimerLog`, `TimerMessageStore#doEnqueue`).
"""

from __future__ import annotations

import re

import numpy as np
from construct import Int32sb, Int64sb, Struct
from numpy.typing import NDArray

from .layout import dtype_of, position_of
from .message import MAGIC_CODE_BLANK

TimerSlot = Struct(
    "time" / Int64sb * "when its messages are due: epoch ms divided by the precision (timerPrecisionMs, 1000)",
    "first_position" / Int64sb * "timer log position of the slot's first unit, bytes",
    "last_position" / Int64sb * "timer log position of the newest unit, the head of the chain, bytes",
    "count" / Int32sb * "messages that wait: enqueued less deleted, may be negative",
    "magic" / Int32sb * "0",
)
SLOT_DTYPE = dtype_of(TimerSlot)
SLOT_SIZE = SLOT_DTYPE.itemsize  # Slot.SIZE

WHEEL_SLOTS = 2 * 7 * 24 * 3600  # twice TIMER_WHEEL_TTL_DAY in slots of a second
WHEEL_SIZE = WHEEL_SLOTS * SLOT_SIZE  # 38,707,200; a broker refuses another size
DEFAULT_PRECISION_MS = 1000  # timerPrecisionMs
_NAME = re.compile(r"timerwheel(?:\.(\d{1,19}))?", re.ASCII)


def is_wheel_name(name: str) -> bool:
    """Whether `name` is that of the wheel or of a snapshot, ``timerwheel.<timer log position>``, since 5.3.4."""
    return _NAME.fullmatch(name) is not None


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
MESSAGE_SIZE_POSITION = position_of(UNIT_DTYPE, "message_size")  # in a unit, bytes
PREVIOUS_POSITION = position_of(UNIT_DTYPE, "previous_position")  # in a unit, bytes
DELAY_POSITION = position_of(UNIT_DTYPE, "delay")  # in a unit, bytes
NO_MESSAGE = bytes(4)  # a message size of 0: a broker passes the unit over
BLANK_SIZE = dtype_of(TimerLogBlank).itemsize  # TimerLog.BLANK_MAGIC_CODE's record

MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
_MAGIC_BITS = 0xF  # TimerMessageStore#isMagicOK


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
