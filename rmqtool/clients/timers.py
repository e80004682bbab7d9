"""Timer messages: what clients had coming, against what comes after a start (`TimerMessageStore`).

A start delivers what it reaches in the wheel, each at the time of its slot, and what it reads from the timer's queue.
With timers in RocksDB since 5.4.0 it delivers the rows from its timeline on (`TimerMessageRocksDBStore`, `Timeline`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import TIMER_QUEUE, QueueUnits
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.timer_deliveries import (
    TimerCopies,
    delivered_after,
    due_at,
    never_delivered,
    newest_timers,
    passed_over,
    unlogged_waiting,
)
from rmqtool.broker.timer_start import (
    MAX_UNITS,
    NextRead,
    TimerQueue,
    TimerState,
    aged_out,
    is_timer_elsewhere,
    next_timer_read,
    read_timer_queue,
    timer_state,
    waiting_from,
)
from rmqtool.clients.losses import Due
from rmqtool.clients.queues import read_change
from rmqtool.rules.versions import TIMER_SKIPS_UNKNOWN, TIMER_WHEEL, parse_version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.rocksdb import DamagedDatabaseError, is_readable
from rmqtool.store.side_rows import NO_TIMELINE_MS, TimerRows, timer_rows
from rmqtool.store.single_messages import SingleMessages, find_copy
from rmqtool.store.snapshot import Snapshot


def timers_due(
    snapshot: Snapshot,
    start: StartPrediction,
    newest: int,
    now: int,
    undeliverable: Sequence[int] = (),
    *,
    goes_beyond: bool = False,
    made: TimerQueue | None = None,
) -> Due:
    """Count timer messages that come early, late, never or again after the predicted `start`, which is at `now`.

    `newest` is the newest store timestamp of the log; times are epoch ms. `undeliverable` are the queue offsets of
    messages that no broker can deliver. `goes_beyond` says that queues lead past the last file of the log. `made` is
    the timer's queue where it is made of the log before the start. Raises RmqtoolError.
    """
    files = snapshot.log.files
    if parse_version(start.version) < TIMER_WHEEL:
        return Due()
    state = _state_after(snapshot, start, newest)
    if is_timer_elsewhere(snapshot.store):
        return _of_rows(snapshot, start, state)
    queue = made or read_timer_queue(state, files)
    start = start if made is None else replace(start, queues=[])  # which finds nothing to change in it
    is_shorter = goes_beyond or start.messages_lost or not newest
    gone = waiting_from(state, state.log_end if start.messages_lost else _files_end(snapshot)) if is_shorter else 0
    if queue is None:
        return Due(never=gone)
    next_read = next_timer_read(state, queue)
    again = delivered_after(state, queue, next_read, SingleMessages(snapshot))
    due = _of_other_slots(snapshot, next_read)
    never = _never(snapshot, start, state, queue, next_read, now)
    if undeliverable:
        lost = _not_reached(undeliverable, snapshot, start, state, queue, next_read)
        never = np.union1d(never, queue.physical_offsets[lost])
    due.never = gone + len(never)
    due.again += len(again) + _read_again(snapshot, state, queue, next_read)
    if state.ran_until is None:  # nothing says what was delivered: the wheel is read from the beginning
        slots = next_read.slots
        was_due = next_read.logged & (slots >= max(state.read_until, state.first_slot(now))) & (slots < newest)
        due.again += int(np.count_nonzero(was_due))
    return due


def timers_never(
    snapshot: Snapshot, start: StartPrediction, newest: int, now: int
) -> tuple[NDArray[np.int64], TimerQueue] | None:
    """The physical offsets of the messages in the timer's queue that a start never delivers, and that queue.

    None without one, and where the wheel is not in use; arguments as those of `timers_due`. Raises RmqtoolError.
    """
    if parse_version(start.version) < TIMER_WHEEL or is_timer_elsewhere(snapshot.store):
        return None
    state = _state_after(snapshot, start, newest)
    queue = read_timer_queue(state, snapshot.log.files)
    if queue is None:
        return None
    return _never(snapshot, start, state, queue, next_timer_read(state, queue), now), queue


def _state_after(snapshot: Snapshot, start: StartPrediction, newest: int) -> TimerState:
    """The timer's files, and where a start ends the log."""
    end = start.max_offset_after if start.max_offset_after is not None else snapshot.log_range.max_offset
    return timer_state(snapshot.store, snapshot.reading, newest, end, snapshot.database)


def made_timer_queue(snapshot: Snapshot, start: StartPrediction, log_end: int, *, lacks: bool) -> TimerQueue | None:
    """The newest units of the timer's queue as they are made of the log; None without one.

    A rebuild makes them where it `lacks` some that the start does not make, else a start that finds nothing of it; of
    another queue None. Raises RmqtoolError.
    """
    change = read_change(TIMER_QUEUE, start, twice=snapshot.has_queues_twice)
    if not lacks and (change is None or not change.dispatched or change.max_offset_before):
        return None
    files, found, count = snapshot.log.files, deque[QueueUnits](), 0
    dispatcher = Dispatcher(DispatchRules.of_snapshot(snapshot), snapshot.topics.with_batch_queues)
    for event in scan_files(files, files[0].start_offset, log_end, snapshot.reading) if files else ():
        if isinstance(event, RecordRun):
            units = dispatcher.dispatch(event).units
            numbers = [number for number, name in enumerate(dispatcher.queues) if name == TIMER_QUEUE]
            found.append(units[np.isin(units.queues, numbers)])
            count += len(found[-1])
            while count - len(found[0]) > MAX_UNITS:
                count -= len(found.popleft())
    if not count:
        return None
    units = QueueUnits.concatenate(found)
    units = units[np.unique(units.queue_offsets, return_index=True)[1]]  # a repeated one is dropped
    return TimerQueue(units.queue_offsets, units.physical_offsets, units.message_sizes.astype(np.int64))


def timers_without_files(
    snapshot: Snapshot,
    start: StartPrediction,
    newest: int,
    undeliverable: Sequence[int] = (),
    made: TimerQueue | None = None,
    *,
    goes_beyond: bool = False,
) -> Due:
    """The same where the timer's files are taken out: a start reads the queue from the beginning."""
    state = timer_state(snapshot.store, snapshot.reading, newest, snapshot.log_range.max_offset, snapshot.database)
    gone = waiting_from(state, _files_end(snapshot), without_files=True) if goes_beyond or not newest else 0
    queue = made or read_timer_queue(state, snapshot.log.files)
    if queue is None:
        return Due(never=gone)
    dues = newest_timers(queue, np.ones(len(queue.queue_offsets), np.bool_), snapshot.log.files)
    copies = TimerCopies()
    copies.add((each.unique_key, each.due, each.put_off) for each in dues)
    waiting = [each for each in dues if not each.deletes]
    is_odd = np.isin([each.queue_offset for each in waiting], undeliverable)
    times = np.array([each.due - each.due % state.precision for each in waiting], np.int64)
    return Due(
        never=gone + int(np.count_nonzero(_not_delivered(is_odd, times, snapshot, start))),
        again=sum(
            each.due < state.delivered_until or copies.is_replaced(each.unique_key, each.due, each.put_off)
            for each in dues
        ),
    )


def _files_end(snapshot: Snapshot) -> int:
    files = snapshot.log.files
    return files[-1].end_offset if files else snapshot.log_began_by


def _of_rows(snapshot: Snapshot, start: StartPrediction, state: TimerState) -> Due:
    """Timers in RocksDB: of rows before the timeline, and of what the queue was read to, no start delivers any."""
    store, log = snapshot.store, snapshot.log.files
    if not is_readable():
        return Due()
    try:
        rows = timer_rows(store)
    except DamagedDatabaseError:
        return Due()  # which has a finding of its own
    if rows is None and not store.conf.is_on("timerRocksDBEnable"):
        return Due()  # the timer is turned off
    rows = rows or TimerRows(np.zeros(0, np.int64), np.zeros(0, np.int64), None, 0)
    queue = read_timer_queue(state, log)
    timeline = state.latest - NO_TIMELINE_MS if rows.timeline is None else rows.timeline
    targets = rows.physical_offsets[rows.dues >= timeline]
    log_min = snapshot.log_min_offset if log else snapshot.log_began_by
    in_queue = np.zeros(0, np.int64) if queue is None else queue.physical_offsets
    unproven = targets[(targets >= log_min) & ((targets >= state.log_end) | ~np.isin(targets, in_queue))]
    due = Due(never=sum(each >= state.log_end or due_at(log, each) is None for each in unproven.tolist()))
    if queue is None:
        return due
    scanned = max(rows.indexed_to, state.check.last_timer_queue_offset if state.check else 0)
    is_read = queue.queue_offsets < scanned
    without = newest_timers(queue, is_read & ~np.isin(queue.physical_offsets, rows.physical_offsets), log)
    taken_back = [each.deletes for each in without if each.deletes]
    due.never += sum(
        each.due >= timeline and each.due not in rows.dues and not each.deletes
        and not any((each.unique_key or "") in text for text in taken_back) for each in without
    )  # fmt: skip
    change = read_change(TIMER_QUEUE, start, twice=snapshot.has_queues_twice)
    due.never += int(np.count_nonzero(~is_read & (queue.queue_offsets >= change.served_end))) if change else 0
    past = rows.physical_offsets[(rows.dues >= timeline) & (rows.dues <= state.latest)]
    due.again = _with_copies(snapshot, queue, ~is_read | np.isin(in_queue, past), state.latest)
    return due


def _with_copies(snapshot: Snapshot, queue: TimerQueue, rows: NDArray[np.bool_], latest: int) -> int:
    """How many messages of the queue that were due by `latest` were delivered, by the log."""
    messages, count = SingleMessages(snapshot), 0
    physical_offsets = dict(zip(queue.queue_offsets.tolist(), queue.physical_offsets.tolist(), strict=True))
    for each in newest_timers(queue, rows, snapshot.log.files):
        message = messages.at(physical_offsets[each.queue_offset]) if each.due <= latest else None
        copy = find_copy(messages, message, each.due) if message and not each.deletes else None
        count += bool(copy and copy.record)
    return count


def _never(
    snapshot: Snapshot, start: StartPrediction, state: TimerState, queue: TimerQueue, next_read: NextRead, now: int
) -> NDArray[np.int64]:
    """Messages that wait, by their physical offsets: the start neither reaches them in the wheel nor reads them."""
    version, conf = parse_version(start.version), snapshot.store.conf
    before = queue.queue_offsets < next_read.begin
    never = (next_read.unreached | next_read.skipped) & before
    never |= aged_out(state, queue, next_read, now)
    never |= never_delivered(queue, next_read, state.read_until, conf, version)
    change = read_change(TIMER_QUEUE, start, twice=snapshot.has_queues_twice)
    if change:
        never |= ~before & ~next_read.logged & (queue.queue_offsets >= change.served_end)
    unlogged = before & ~next_read.logged & ~never
    too_large = passed_over(queue, next_read, conf, version)
    rows = unlogged & ~too_large | too_large & ~never
    waiting = [each.queue_offset for each in unlogged_waiting(state, queue, rows, snapshot.log.files)]
    return queue.physical_offsets[never | np.isin(queue.queue_offsets, waiting)]


def _not_reached(
    undeliverable: Sequence[int],
    snapshot: Snapshot,
    start: StartPrediction,
    state: TimerState,
    queue: TimerQueue,
    next_read: NextRead,
) -> NDArray[np.bool_]:
    """Waiting messages that no broker can deliver, and all that the timer does not reach for them."""
    is_odd, unread = np.isin(queue.queue_offsets, undeliverable), queue.queue_offsets >= next_read.begin
    waits = next_read.logged & ~unread & (next_read.slots >= state.read_until)
    dues = np.where(waits, next_read.slots, 0)
    for each in newest_timers(queue, waits | unread, snapshot.log.files):
        row = int(np.searchsorted(queue.queue_offsets, each.queue_offset))
        waits[row] = not each.deletes
        dues[row] = dues[row] or each.due - each.due % state.precision
    lost = np.zeros(len(waits), np.bool_)
    lost[waits] = _not_delivered(is_odd[waits], dues[waits], snapshot, start)
    return lost


def _not_delivered(
    is_odd: NDArray[np.bool_], dues: NDArray[np.int64], snapshot: Snapshot, start: StartPrediction
) -> NDArray[np.bool_]:
    """Which messages are not delivered because some cannot be: the timer stops at the first of them.

    With `timerSkipUnknownError` it drops each (`TimerMessageStore.TimerDequeuePutMessageService`).
    """
    skips = parse_version(start.version) >= TIMER_SKIPS_UNKNOWN and snapshot.store.conf.is_on("timerSkipUnknownError")
    return is_odd if skips or not is_odd.any() else is_odd | (dues > dues[is_odd].min())


def _read_again(snapshot: Snapshot, state: TimerState, queue: TimerQueue, next_read: NextRead) -> int:
    """Messages that the start reads from the queue although the timer log has them, or they were delivered."""
    is_read_again = queue.queue_offsets >= next_read.begin
    waiting = int(np.count_nonzero(is_read_again & next_read.logged))
    rows = is_read_again & ~next_read.logged & (queue.queue_offsets < next_read.end)
    return waiting + sum(each.due < state.delivered_until for each in newest_timers(queue, rows, snapshot.log.files))


def _of_other_slots(snapshot: Snapshot, next_read: NextRead) -> Due:
    """Messages to which broken chains lead, from a slot of another time than theirs, or more than once."""
    reached, due = next_read.reached, Due()
    rows = np.flatnonzero(np.isin(reached.targets, reached.targets[np.isin(reached.slots, reached.broken)]))
    first = dict[int, int]()
    for target, slot in zip(reached.targets[rows].tolist(), reached.slots[rows].tolist(), strict=True):
        due.again += target in first
        first[target] = min(slot, first.get(target, slot))
    for target, slot in first.items():
        wanted = due_at(snapshot.log.files, target)
        if wanted is None or abs(wanted - slot) > _PUT_OFF:
            continue  # a rolled message stops at a nearer slot on its way
        due.late += wanted + _ROUNDED < slot
        due.early += slot + _ROUNDED < wanted
    return due


_ROUNDED = 2000  # ms: a slot is the one of its time or the one before it
_PUT_OFF = 24 * 3600 * 1000  # ms: half the window of timerRollWindowSlots
