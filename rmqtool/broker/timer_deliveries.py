"""Timer messages of slots that a start would read, of which the log holds the copies that were delivered already."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.timer_start import NextRead, TimerQueue, TimerState
from rmqtool.store.deliveries import find_copy
from rmqtool.store.single_messages import SingleMessages

_MAX_LOOKED_AT = 10_000  # messages, those that were due first
_WITHOUT_DOUBT = 3000  # ms; a broker reads no slot before its time


def delivered_after(
    state: TimerState, queue: TimerQueue, next_read: NextRead, messages: SingleMessages
) -> NDArray[np.int64]:
    """The slots, epoch ms, of messages that a start reaches in the wheel though they were delivered; they ascend.

    Nothing is looked at where `timercheck` has been read nearly up to when it was written.
    """
    if state.ran_until is None or state.ran_until - state.read_until <= _WITHOUT_DOUBT:
        return np.empty(0, np.int64)
    rows = next_read.logged & (next_read.slots >= state.read_until) & (next_read.slots < state.ran_until)
    candidates = np.flatnonzero(rows)
    candidates = candidates[np.argsort(next_read.slots[candidates], kind="stable")][:_MAX_LOOKED_AT]
    found = []
    for row in candidates.tolist():
        message = messages.at(int(queue.physical_offsets[row]))
        copy = find_copy(messages, message, int(next_read.slots[row])) if message else None
        if copy and copy.message:
            found.append(int(next_read.slots[row]))
    return np.array(found, np.int64)
