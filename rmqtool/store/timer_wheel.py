"""The timer wheel of a store, or the newest of its snapshots, and the units in its slots (`TimerWheel`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile, ReadPolicy, list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.formats import timer_wheel
from rmqtool.formats.layout import decode_units
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.store import Store

WHEEL = "timerwheel"
_PIECE = 1 << 22  # bytes, whole slots
_LONGEST_SLOT = 60_000  # ms; a longer one is damage


def newest_wheel(store: Store) -> Path:
    """The wheel that a start reads: the snapshot of the largest position, since 5.3.4, else the wheel itself."""
    names = [entry.name for entry in list_directory(store.root) if timer_wheel.is_wheel_name(entry.name)]
    newest = max((int(name.removeprefix(f"{WHEEL}.")) for name in names if name != WHEEL), default=None)
    return store.root / (WHEEL if newest is None else f"{WHEEL}.{newest}")


def is_wheel_whole(store: Store) -> bool:
    """Whether there is a wheel of the right size, so that its slots can be compared with the timer log."""
    path = newest_wheel(store)
    return path.is_file() and path.stat().st_size == timer_wheel.WHEEL_SIZE


def used_slots(path: Path, reading: ReadPolicy) -> NDArray[np.void]:
    """The slots of a wheel that hold a unit, in the order of the file; slots are never cleared.

    A slot counts only at the place of its time. Holes of the file are not read.
    """
    found = [decode_units(timer_wheel.SLOT_DTYPE, b"")]
    with InputFile(path, reading) as wheel:
        at = 0
        while (at := wheel.next_data(at, wheel.size)) < wheel.size:
            at -= at % timer_wheel.SLOT_SIZE
            slots = decode_units(timer_wheel.SLOT_DTYPE, wheel.read(at, _PIECE))
            if not len(slots):
                break
            numbers = at // timer_wheel.SLOT_SIZE + np.arange(len(slots))
            is_used = (slots["time"] > 0) & (slots["time"] % timer_wheel.WHEEL_SLOTS == numbers)
            found.append(slots[is_used & (slots["last_position"] >= 0)])
            at += len(slots) * timer_wheel.SLOT_SIZE
    return np.concatenate(found)


def newest_slot(used: NDArray[np.void]) -> np.void | None:
    """The slot of `used` ones whose newest unit is the last in the timer log, None when no slot is used."""
    newest: np.void | None = used[np.argmax(used["last_position"])] if len(used) else None
    return newest


def precision_of(used: Callable[[], NDArray[np.void]], log: MappedFiles, conf: BrokerConf, reading: ReadPolicy) -> int:
    """How long a slot of a wheel is, ms (`timerPrecisionMs`).

    Where no broker.conf says so, the newest of the `used` slots does, and the unit of the timer log that it leads to.
    """
    shown = None
    if not conf.decides("timerPrecisionMs"):
        with skip_unreadable():  # which has its own finding
            shown = _shown_precision(newest_slot(used()), log, reading)
    return conf.size("timerPrecisionMs") or shown or timer_wheel.DEFAULT_PRECISION_MS


def _shown_precision(slot: np.void | None, log: MappedFiles, reading: ReadPolicy) -> int | None:
    file = None if slot is None else file_at(log.files, int(slot["last_position"]))
    if slot is None or file is None or slot["time"] < 0:
        return None
    units = written_unit(file, int(slot["last_position"]), reading)
    precision = int(timer_wheel.dues(units)[0]) // int(slot["time"]) if len(units) else 0
    return precision if 0 < precision <= _LONGEST_SLOT else None


def written_unit(file: MappedFile, position: int, reading: ReadPolicy) -> NDArray[np.void]:
    """The unit at a timer log position, which is in `file`; empty where none is written."""
    with InputFile(file.path, reading) as opened:
        units = decode_units(timer_wheel.UNIT_DTYPE, opened.read(position - file.start_offset, timer_wheel.UNIT_SIZE))
    return units[timer_wheel.is_written(units)]
