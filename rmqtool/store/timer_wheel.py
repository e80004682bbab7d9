"""The timer wheel of a store, or the newest of its snapshots, and the units in its slots (`TimerWheel`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile, ReadPolicy, list_directory
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.formats import timer_wheel
from rmqtool.store.store import Store

WHEEL = "timerwheel"


def newest_wheel(store: Store) -> Path:
    """The wheel that a start reads: the snapshot of the largest position, since 5.3.4, else the wheel itself."""
    names = [entry.name for entry in list_directory(store.root) if timer_wheel.is_wheel_name(entry.name)]
    newest = max((int(name.removeprefix(f"{WHEEL}.")) for name in names if name != WHEEL), default=None)
    return store.root / (WHEEL if newest is None else f"{WHEEL}.{newest}")


def slots_lead_to(
    path: Path, times: NDArray[np.int64], positions: NDArray[np.int64], reading: ReadPolicy
) -> NDArray[np.bool_]:
    """Whether the slot of each time points to a unit at that timer log position or behind it."""
    slots = timer_wheel.decode_slots(b"")
    with skip_unreadable(), InputFile(path, reading) as file:  # missing, or unreadable, which has its own finding
        slots = timer_wheel.decode_slots(file.read(0, timer_wheel.FILE_SIZE))
    if len(slots) != timer_wheel.WHEEL_SLOTS:
        return np.zeros(len(times), dtype=np.bool_)
    own = slots[times % timer_wheel.WHEEL_SLOTS]
    leads: NDArray[np.bool_] = (own["time"] == times) & (own["last_position"] >= positions)
    return leads
