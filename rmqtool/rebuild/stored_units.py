"""Units of simple consume queues as they are stored, with filler and placeholders of lost messages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.formats.consume_queue import PRE_BLANK_MESSAGE_SIZE, UNIT_DTYPE, UNIT_SIZE
from rmqtool.rebuild.sinks import Timestamps, Units

RAW_UNIT = np.dtype(f"V{UNIT_SIZE}")
_GROWTH = 1 << 16  # units


class StoredUnits(NamedTuple):
    """Units in log order, one array for each field, all of the same length; `units` are `RAW_UNIT`."""

    queues: NDArray[Any]
    queue_offsets: NDArray[Any]
    units: Units
    timestamps: Timestamps

    @classmethod
    def of(cls, units: QueueUnits) -> StoredUnits:
        """The units that a dispatcher derives, encoded while they are in the processor's cache."""
        stored = units.as_consume_queue().view(RAW_UNIT)
        return cls(units.queues, units.queue_offsets, stored, units.store_timestamps)

    def rows(self, rows: slice | NDArray[Any]) -> StoredUnits:
        """Some of the units."""
        return StoredUnits(*(column[rows] for column in self))


class Prefix(NamedTuple):
    """The units of a queue before the first one of the log; `first` is the number of the first one."""

    first: int
    units: Units
    timestamps: Timestamps


class UnitBuffer:
    """Collects units in arrays that are used again: fresh memory costs page faults."""

    def __init__(self) -> None:
        self.count = 0
        self._columns = _columns(0)

    def add(self, units: StoredUnits) -> None:
        """Copy units after those that are held."""
        end = self.count + len(units.queues)
        if end > len(self._columns.queues):
            larger = _columns(max(end, 2 * self.count) + _GROWTH)
            for old, new in zip(self._columns, larger, strict=True):
                new[: self.count] = old[: self.count]
            self._columns = larger
        for held, column in zip(self._columns, units, strict=True):
            held[self.count : end] = column
        self.count = end

    def drain(self) -> StoredUnits:
        """All collected units, valid until the next `add`; the buffer is empty then."""
        units = self._columns.rows(slice(0, self.count))
        self.count = 0
        return units


def physical_offsets(units: Units) -> NDArray[np.int64]:
    """The physical offsets in stored units, bytes."""
    offsets: NDArray[np.int64] = units.view(UNIT_DTYPE)["physical_offset"].astype(np.int64)
    return offsets


def placeholder_units(following: Units, count: int, missing: int | None) -> Units:
    """Units in place of lost messages, harmless to consumers.

    A pull skips a unit that points to a missing file. Where no file is missing it must point to a message, or garbage
    is delivered: the `following` message then comes more than once, always with its own queue offset.
    """
    units = np.repeat(following, count)
    if missing is not None:
        units.view(UNIT_DTYPE)["physical_offset"] = missing
    return units


def pre_blank_units(count: int) -> Units:
    """`count` units of filler (`ConsumeQueue#fillPreBlank`)."""
    units = np.zeros(count, dtype=UNIT_DTYPE)
    units["message_size"] = PRE_BLANK_MESSAGE_SIZE
    return units.view(RAW_UNIT)


def _columns(count: int) -> StoredUnits:
    queues_and_offsets = np.empty(count, np.int32), np.empty(count, np.int64)
    return StoredUnits(*queues_and_offsets, np.empty(count, RAW_UNIT), np.empty(count, np.int64))
