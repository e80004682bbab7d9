"""Timer messages one by one: when they are due, whether they were delivered, and those that nothing leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.timer_copies import TimerCopies
from rmqtool.broker.timer_start import TIMER_LAG, NextRead, TimerQueue, TimerState
from rmqtool.formats.properties import TIMER_DUE, TIMER_ROLL_TIMES, UNIQUE_KEY
from rmqtool.scan.single_record import properties_at
from rmqtool.store.deliveries import find_copy
from rmqtool.store.single_messages import SingleMessages

_MAX_READ = 10_000  # messages whose time of delivery is read
_MAX_DIGITS = 19  # as many may be too large for 64 bits
_WITHOUT_DOUBT = 3000  # ms; a broker reads no slot before its time


class TimerMessage(NamedTuple):
    """A message of the timer; `due` is epoch ms, `put_off` how often it was put off before it was stored."""

    queue_offset: int
    due: int
    unique_key: str | None
    put_off: int


def newest_timers(queue: TimerQueue, rows: NDArray[np.bool_], log: Sequence[MappedFile]) -> list[TimerMessage]:
    """The newest messages among `rows`, the newest first."""
    found = []
    for row in np.flatnonzero(rows)[::-1][:_MAX_READ].tolist():
        timer = _timer_at(log, int(queue.physical_offsets[row]), int(queue.queue_offsets[row]))
        if timer is not None:
            found.append(timer)
    return found


def unlogged_waiting(
    state: TimerState, queue: TimerQueue, rows: NDArray[np.bool_], log: Sequence[MappedFile]
) -> list[TimerMessage]:
    """Those of the messages `rows` that are not due yet, and of which no newer copy was stored."""
    waiting = [each for each in newest_timers(queue, rows, log) if each.due >= state.read_until + TIMER_LAG]
    if not waiting:
        return waiting
    copies = TimerCopies()
    later = queue.queue_offsets > min(each.queue_offset for each in waiting)
    copies.add((each.unique_key, each.due, each.put_off) for each in newest_timers(queue, later, log))
    return [each for each in waiting if not copies.is_replaced(each.unique_key, each.due, each.put_off)]


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
    candidates = candidates[np.argsort(next_read.slots[candidates], kind="stable")][:_MAX_READ]
    found = []
    for row in candidates.tolist():
        message = messages.at(int(queue.physical_offsets[row]))
        copy = find_copy(messages, message, int(next_read.slots[row])) if message else None
        if copy and copy.record:
            found.append(int(next_read.slots[row]))
    return np.array(found, np.int64)


def due_at(log: Sequence[MappedFile], physical_offset: int) -> int | None:
    """When the timer message at a physical offset is due, epoch ms."""
    timer = _timer_at(log, physical_offset, 0)
    return None if timer is None else timer.due


def _timer_at(log: Sequence[MappedFile], physical_offset: int, queue_offset: int) -> TimerMessage | None:
    properties = properties_at(log, physical_offset)
    if properties is None:
        return None
    due = _number(properties.get(TIMER_DUE, ""))
    put_off = _number(properties.get(TIMER_ROLL_TIMES, ""))
    return None if due is None else TimerMessage(queue_offset, due, properties.get(UNIQUE_KEY), put_off or 0)


def _number(value: str) -> int | None:
    return int(value) if value.isdecimal() and len(value) < _MAX_DIGITS else None
