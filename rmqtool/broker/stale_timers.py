"""Units of the timer log that lead to no timer message any more (`TimerMessageStore#dequeuePut`).

Nothing cuts the timer log where the commit log has lost its end. Where another message has come to such a place by the
time that the unit is due, the timer tries to deliver it for ever, and delivers nothing else any more; where there is
none, the unit is passed over, and so is one with a message of no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.timer_start import TimerQueue, TimerState, written_units
from rmqtool.formats import timer_log
from rmqtool.formats.properties import REAL_QUEUE_ID
from rmqtool.scan.single_record import properties_at
from rmqtool.store.commit_log import log_start

_MAX_READ = 10_000  # records that are read at once, since no unit of the queue leads to them


class StaleUnits(NamedTuple):
    """Units of one file of the timer log: their positions in it, bytes, and the physical offsets they lead to."""

    file: MappedFile
    positions: NDArray[np.int64]
    targets: NDArray[np.int64]


def stale_units(state: TimerState, queue: TimerQueue | None, log: Sequence[MappedFile]) -> Iterator[StaleUnits]:
    """The units that are not due yet and lead past the end of the log, or to a message that is no timer message."""
    known = np.empty(0, np.int64) if queue is None else np.sort(queue.physical_offsets)
    for mapped in state.log.files:
        positions, targets = [], []
        for start, units, _ in written_units(mapped, state.reading):
            waits = timer_log.leads_on(units) & (timer_log.dues(units) >= state.read_until)
            rows = np.flatnonzero(waits)
            offsets = units["physical_offset"][rows].astype(np.int64)
            is_stale = offsets >= state.log_end
            in_log = (offsets >= log_start(log)) & ~is_stale
            for row in np.flatnonzero(in_log & ~_are_among(known, offsets))[:_MAX_READ].tolist():
                is_stale[row] = _is_another(log, int(offsets[row]))
            positions.append(start - mapped.start_offset + timer_log.UNIT_SIZE * rows[is_stale])
            targets.append(offsets[is_stale])
        if sum(map(len, positions)):
            yield StaleUnits(mapped, np.concatenate(positions), np.concatenate(targets))


def _are_among(known: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of `offsets` is one of those `known`, which are sorted."""
    at: NDArray[np.bool_] = np.searchsorted(known, offsets, "right") > np.searchsorted(known, offsets, "left")
    return at


def _is_another(log: Sequence[MappedFile], physical_offset: int) -> bool:
    """Whether a sound message begins there that the timer cannot deliver."""
    properties = properties_at(log, physical_offset)
    return properties is not None and REAL_QUEUE_ID not in properties
