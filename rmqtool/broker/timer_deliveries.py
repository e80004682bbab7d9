"""Timer messages one by one: when they are due, whether they were delivered, and those that nothing leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.timer_start import TIMER_LAG, NextRead, TimerQueue, TimerState, written_units
from rmqtool.formats import timer_wheel
from rmqtool.formats.properties import REAL_QUEUE_ID, TIMER_DELETES, TIMER_DUE, TIMER_ROLL_TIMES, UNIQUE_KEY
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import TIMER_BUFFER_HOLDS_PROPERTIES, TIMER_PASSES_OVER, Version
from rmqtool.scan.single_record import properties_at
from rmqtool.store.commit_log import log_start
from rmqtool.store.single_messages import SingleMessages, find_copy


class TimerCopies:
    """How often messages were put off, by their unique keys and times of delivery."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], int] = {}

    def add(self, copies: Iterable[tuple[str | None, int | None, int]]) -> None:
        """Add copies: unique key, when it is due (epoch ms), and how often it was put off before it was stored."""
        for unique_key, due, put_off in copies:
            if put_off and unique_key is not None and due is not None:
                self._newest[unique_key, due] = max(put_off, self._newest.get((unique_key, due), 0))

    def is_replaced(self, unique_key: str | None, due: int | None, put_off: int) -> bool:
        """Whether a newer copy of a message was added."""
        if unique_key is None or due is None:
            return False
        return self._newest.get((unique_key, due), 0) > put_off


_MAX_READ = 10_000  # messages whose time of delivery is read
_MAX_DIGITS = 19  # as many may be too large for 64 bits
_WITHOUT_DOUBT = 3000  # ms; a broker reads no slot before its time


class TimerMessage(NamedTuple):
    """A message of the timer; `due` is epoch ms, `put_off` how often it was put off before it was stored.

    Of one that takes others back `deletes` has their unique keys.
    """

    queue_offset: int
    due: int
    unique_key: str | None
    put_off: int
    deletes: str = ""


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
    timers = newest_timers(queue, rows, log)
    return _not_put_off([each for each in timers if each.due >= state.read_until + TIMER_LAG], queue, log)


def _not_put_off(waiting: list[TimerMessage], queue: TimerQueue, log: Sequence[MappedFile]) -> list[TimerMessage]:
    """The timer messages that were not put off: the log has no newer copy of them."""
    if not waiting:
        return waiting
    copies = TimerCopies()
    later = queue.queue_offsets > min(each.queue_offset for each in waiting)
    copies.add((each.unique_key, each.due, each.put_off) for each in newest_timers(queue, later, log))
    return [each for each in waiting if not copies.is_replaced(each.unique_key, each.due, each.put_off)]


def delivered_after(
    state: TimerState, queue: TimerQueue, next_read: NextRead, messages: SingleMessages, *, until_waiting: bool = False
) -> NDArray[np.int64]:
    """The slots, epoch ms, of messages that a start reaches in the wheel though they were delivered; they ascend.

    With `until_waiting` those before the first slot that also has one that was not: the others have to be read. Nothing
    is looked at where `timercheck` has been read nearly up to when it was written.
    """
    if state.ran_until is None or state.ran_until - state.read_until <= _WITHOUT_DOUBT:
        return np.empty(0, np.int64)
    rows = next_read.logged & (next_read.slots >= state.read_until) & (next_read.slots < state.ran_until)
    candidates = np.flatnonzero(rows)
    candidates = candidates[np.argsort(next_read.slots[candidates], kind="stable")][:_MAX_READ]
    found, is_waiting = [], np.zeros(len(rows), np.bool_)
    for row in candidates.tolist():
        message = messages.at(int(queue.physical_offsets[row]))
        copy = find_copy(messages, message, int(next_read.slots[row])) if message else None
        if copy and copy.record:
            found.append(int(next_read.slots[row]))
        is_waiting[row] = until_waiting and copy is not None and copy.record is None
    log = messages.snapshot.log.files
    left = [each.queue_offset for each in _not_put_off(newest_timers(queue, is_waiting, log), queue, log)]
    end = int(next_read.slots[np.isin(queue.queue_offsets, left)].min(initial=state.ran_until))
    return np.array([slot for slot in found if slot < end], np.int64)


def delivered(
    queue: TimerQueue, slots: NDArray[np.int64], latest: int, messages: SingleMessages, log: Sequence[MappedFile]
) -> NDArray[np.bool_] | None:
    """Which messages of the queue were delivered or put off, by the log, which ends at `latest`; None if not known.

    `slots` are the times of their slots, 0 of those that are in none, whose own time counts.
    """
    timers = {each.queue_offset: each for each in newest_timers(queue, np.ones(len(slots), np.bool_), log)}
    copies, found = TimerCopies(), np.zeros(len(slots), np.bool_)
    copies.add((each.unique_key, each.due, each.put_off) for each in timers.values())
    if len(timers) < len(slots):
        return None
    for row, queue_offset in enumerate(queue.queue_offsets.tolist()):
        timer = timers[queue_offset]
        due = int(slots[row]) or timer.due
        if copies.is_replaced(timer.unique_key, timer.due, timer.put_off):
            found[row] = True
        elif due <= latest:
            message = messages.at(int(queue.physical_offsets[row]))
            copy = find_copy(messages, message, due) if message else None
            if copy is None:
                return None
            found[row] = copy.record is not None
    return found


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
    deletes = properties.get(TIMER_DELETES, "")
    return None if due is None else TimerMessage(queue_offset, due, properties.get(UNIQUE_KEY), put_off or 0, deletes)


def _number(value: str) -> int | None:
    return int(value) if value.isdecimal() and len(value) < _MAX_DIGITS else None


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
            waits = timer_wheel.leads_on(units) & (timer_wheel.dues(units) >= state.read_until)
            rows = np.flatnonzero(waits)
            offsets = units["physical_offset"][rows].astype(np.int64)
            is_stale = offsets >= state.log_end
            in_log = (offsets >= log_start(log)) & ~is_stale
            for row in np.flatnonzero(in_log & ~_are_among(known, offsets))[:_MAX_READ].tolist():
                is_stale[row] = _is_another(log, int(offsets[row]))
            positions.append(start - mapped.start_offset + timer_wheel.UNIT_SIZE * rows[is_stale])
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


_MAX_BODY = 4 << 20  # maxMessageSize, bytes
_MOST_BESIDE_BODY = 64 << 10  # bytes of a record


def room_beside_body(version: Version) -> int:
    """How much larger than `maxMessageSize` the buffer is, bytes."""
    return _MOST_BESIDE_BODY if version >= TIMER_BUFFER_HOLDS_PROPERTIES else 100


def timer_buffer(queue: TimerQueue, conf: BrokerConf, version: Version) -> int:
    """The bytes of the largest record that the timer reads.

    Where no broker.conf gives `maxMessageSize`, a record that the default would not have let in shows that it is more:
    then the largest is taken for one that fits.
    """
    largest = int(queue.message_sizes.max())
    if conf.decides("maxMessageSize") or largest <= _MAX_BODY + _MOST_BESIDE_BODY:
        return (conf.size("maxMessageSize") or _MAX_BODY) + room_beside_body(version)
    return largest


def passed_over(queue: TimerQueue, next_read: NextRead, conf: BrokerConf, version: Version) -> NDArray[np.bool_]:
    """The messages that the timer has passed over: a start does not read them again, nor are they in the timer log."""
    is_read = queue.queue_offsets < next_read.begin
    return _are_too_large(queue, conf, version) & is_read & ~next_read.logged


def never_delivered(
    queue: TimerQueue, next_read: NextRead, read_until: int, conf: BrokerConf, version: Version
) -> NDArray[np.bool_]:
    """The messages that a start neither reads from the queue nor delivers from the timer log, for the size of one.

    `read_until` is the time up to which the wheel has been read, epoch ms.
    """
    too_large = _are_too_large(queue, conf, version)
    is_waiting = next_read.logged & (next_read.slots >= read_until)
    is_unread, is_stuck = too_large & (queue.queue_offsets >= next_read.begin), too_large & is_waiting
    if version < TIMER_PASSES_OVER:  # which stands still there: in its queue, and in the slot of one
        is_unread = np.maximum.accumulate(is_unread)
        if is_stuck.any():
            is_stuck = is_waiting & (next_read.slots >= next_read.slots[is_stuck].min())
    found: NDArray[np.bool_] = is_unread | is_stuck
    return found


def _are_too_large(queue: TimerQueue, conf: BrokerConf, version: Version) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = queue.message_sizes > timer_buffer(queue, conf, version)
    return found
