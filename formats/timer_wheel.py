"""The timer wheel: one slot for each second of two weeks (`TimerWheel`, `Slot`), in `timerwheel` and its snapshots."""

from __future__ import annotations

import re

import numpy as np
from construct import Int32sb, Int64sb, Struct
from numpy.typing import NDArray

from .layout import dtype_of

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
FILE_SIZE = WHEEL_SLOTS * SLOT_SIZE  # 38,707,200; a broker refuses another size
DEFAULT_PRECISION_MS = 1000  # timerPrecisionMs
_NAME = re.compile(r"timerwheel(?:\.(\d{1,19}))?", re.ASCII)


def decode_slots(data: bytes | bytearray | memoryview) -> NDArray[np.void]:
    """View `data` as whole slots, shape ``(len(data) // 32,)``."""
    return np.frombuffer(data, dtype=SLOT_DTYPE, count=len(data) // SLOT_SIZE)


def is_wheel_name(name: str) -> bool:
    """Whether `name` is that of the wheel or of a snapshot, ``timerwheel.<timer log position>``, since 5.3.4."""
    return _NAME.fullmatch(name) is not None
