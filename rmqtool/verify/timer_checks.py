"""Checks of the timer's files: wheel, log and `timercheck`, each alone and against the others (`TimerMessageStore`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError, note_failure
from rmqtool.base.files import read_all
from rmqtool.base.mapped_files import MappedFiles, file_at
from rmqtool.broker.dispatched_units import TIMER_QUEUE
from rmqtool.broker.timer_deliveries import (
    delivered_after,
    never_delivered,
    newest_timers,
    passed_over,
    room_beside_body,
    stale_units,
    timer_buffer,
    unlogged_waiting,
)
from rmqtool.broker.timer_start import (
    TIMER_LAG,
    NextRead,
    TimerQueue,
    TimerState,
    aged_out,
    is_timer_elsewhere,
    next_timer_read,
    read_timer_queue,
    timer_queue_end,
    timer_state,
)
from rmqtool.findings.report import Report
from rmqtool.formats import timer_wheel
from rmqtool.formats.checkpoint import TIMER_CHECK_SIZE, TimerCheck
from rmqtool.formats.layout import parse
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.rules.versions import TIMER_OFFSET_IN_RANGE, Releases
from rmqtool.store.lock import has_abort
from rmqtool.store.paths import TIMER_CHECK
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.timer_wheel import WHEEL, is_wheel_whole, newest_slot, used_slots, written_unit
from rmqtool.verify.log_witnesses import ScannedLog
from rmqtool.verify.task import StoreReader


class _TimerMessages:
    """The messages of the timer's queue against the timer log, and the other way round."""

    def __init__(self, reader: StoreReader, state: TimerState, releases: Releases, report: Report) -> None:
        self._reader = reader
        self._state = state
        self._releases = releases
        self._report = report

    def check(self, queue_end: int, messages: SingleMessages) -> None:
        """Check each unit of the queue, whose maximum offset by the log is `queue_end`."""
        state, queue = self._state, read_timer_queue(self._state, self._reader.files)
        next_read = None if queue is None else next_timer_read(state, queue)
        self._report_stale(queue)
        begin = state.queue_offset if next_read is None else next_read.begin
        self._report_ahead(begin, max(queue_end, timer_queue_end(state)))
        if queue is None or next_read is None:
            return
        for code in ("timer.too-large", "timer.chain", "timer.read-time", "timer.lost", "timer.again", "timer.aged"):
            self._report.check(code, len(queue.queue_offsets))
        conf, releases = self._reader.store.conf, self._releases
        is_passed_over = passed_over(queue, next_read, conf, releases.oldest)
        is_stuck = never_delivered(queue, next_read, state.read_until, conf, releases.newest)
        self._report_too_large(queue, is_passed_over, is_stuck)
        self._report_chains(queue, next_read)
        self._report_read_time(queue, next_read, messages)
        is_in_chain = ~(next_read.unreached & is_wheel_whole(state.store))
        self._report_lost(queue, next_read, ~is_passed_over & is_in_chain)
        self._report_repeated(queue, next_read)
        self._report_aged(queue, next_read)

    def _add(self, code: str, details: Mapping[str, Any], count: int, queue_offset: int | None, **given: Any) -> None:
        self._report.add(code, details=details, count=count, topic=TIMER_TOPIC, queue_id=0, queue_offset=queue_offset,
                         **given)  # fmt: skip

    def _report_stale(self, queue: TimerQueue | None) -> None:
        self._report.check("timer.unit", len(self._state.log.files))
        for file, positions, targets in stale_units(self._state, queue, self._reader.files):
            behind = int(np.count_nonzero(targets >= self._state.log_end))
            facts = {"problem": "behind-log" if behind == len(targets) else "other", "units": len(positions)}
            facts["physical_offset"] = int(targets[0])
            self._report.add("timer.unit", details=facts, count=len(positions),
                             file=self._reader.store.relative(file.path), offset=int(positions[0]))  # fmt: skip

    def _report_ahead(self, begin: int, queue_end: int) -> None:
        """`begin` is where a start goes on, which may be before the offset of timercheck."""
        self._report.check("timer.ahead")
        next_offset = max(begin, self._state.queue_offset)
        if next_offset > queue_end:
            is_corrected = begin <= queue_end or self._releases.oldest >= TIMER_OFFSET_IN_RANGE
            self._add("timer.ahead", {"read": next_offset, "end": queue_end}, 1, queue_end, file=_CHECK,
                      severity="warning" if is_corrected else None)  # fmt: skip

    def _report_too_large(
        self, queue: TimerQueue, is_passed_over: NDArray[np.bool_], is_stuck: NDArray[np.bool_]
    ) -> None:
        """Report messages that do not fit into the timer's buffer; those due when it passed over them are noted."""
        log, conf, oldest = self._reader.files, self._reader.store.conf, self._releases.oldest
        passed, stuck = (newest_timers(queue, rows, log) for rows in (is_passed_over, is_stuck))
        waiting = [each for each in passed if each.due >= self._state.read_until + TIMER_LAG]
        can_come = bool(waiting or stuck)
        messages = [*waiting, *stuck] if can_come else passed
        if not messages:
            return
        rows = np.flatnonzero(is_passed_over | is_stuck)
        largest = int(queue.message_sizes[rows].max())
        count = int(np.count_nonzero(is_stuck)) + len(waiting if can_come else passed)
        facts = {"problem": "waiting" if can_come else "passed", "messages": count,
                 "first_due": min(each.due for each in messages), "largest_message": largest,
                 "buffer_size": timer_buffer(queue, conf, oldest),
                 "origin": None if conf.decides("maxMessageSize") else "by default"}  # fmt: skip
        if can_come:
            facts["needed_size"] = largest - room_beside_body(oldest)
        self._add("timer.too-large", facts, count, int(queue.queue_offsets[rows[0]]),
                  severity=None if can_come else "info")  # fmt: skip

    def _report_chains(self, queue: TimerQueue, next_read: NextRead) -> None:
        """Report slots whose chain leaves out units of messages that wait; without a wheel they are lost with it."""
        reached = next_read.reached
        lost = next_read.unreached & (queue.queue_offsets < next_read.begin)
        count = int(np.count_nonzero(lost))
        if not len(reached.broken) or not is_wheel_whole(self._state.store) or not (count or reached.strays):
            if next_read.cut_chains:
                facts = {"problem": "delivered", "units": next_read.cut_chains, "messages": 0}
                self._add("timer.chain", facts, next_read.cut_chains, None, severity="info",
                          effect="none: their messages are delivered")  # fmt: skip
            return
        details = {"slots": len(reached.broken), "first_due": int(reached.broken[0]), "messages": count,
                   "loops_at": reached.loops_at, "other_slots": reached.strays,
                   "chain": "loops" if reached.loops_at else "broken",
                   "left_out": "messages" if count else "other-slots"}  # fmt: skip
        self._add("timer.chain", details, max(1, count), int(queue.queue_offsets[lost][0]) if count else None)

    def _report_read_time(self, queue: TimerQueue, next_read: NextRead, messages: SingleMessages) -> None:
        """Report a time up to which the wheel has been read that is later than any broker ran, or before deliveries."""
        state = self._state
        times = {"read_until": state.read_until, "ran_until": state.ran_until or 0}
        if state.is_ahead and state.ran_until is not None:
            count = int(np.count_nonzero(next_read.skipped))
            details = {"problem": "ahead", **times, "messages": count}
            self._add("timer.read-time", details, max(1, count), None, file=_CHECK,
                      severity=None if count else "warning")  # fmt: skip
        elif count := len(delivered_after(state, queue, next_read, messages, until_waiting=True)):
            is_mild = has_abort(state.store.root)
            details = {"problem": "delivered", **times, "messages": count}
            self._add("timer.read-time", details, count, None, file=_CHECK, effect="the broker delivers them again",
                      severity="info" if is_mild else "warning")  # fmt: skip

    def _report_lost(self, queue: TimerQueue, next_read: NextRead, is_asked: NDArray[np.bool_]) -> None:
        rows = is_asked & (queue.queue_offsets < next_read.begin) & ~next_read.logged
        waiting = unlogged_waiting(self._state, queue, rows, self._reader.files)
        if waiting:
            facts = {"messages": len(waiting), "first_due": min(each.due for each in waiting)}
            self._add("timer.lost", facts, len(waiting), min(each.queue_offset for each in waiting))

    def _report_aged(self, queue: TimerQueue, next_read: NextRead) -> None:
        """Note messages that only a start today loses, as the store has been stopped for long: it is not damaged."""
        now, state = int(time.time() * 1000), self._state
        aged = aged_out(state, queue, next_read, now) & ~aged_out(state, queue, next_read, state.latest)
        if count := int(np.count_nonzero(aged)):
            facts = {"messages": count, "first_due": int(next_read.slots[aged].min())}
            self._add("timer.aged", facts, count, int(queue.queue_offsets[aged][0]))

    def _report_repeated(self, queue: TimerQueue, next_read: NextRead) -> None:
        state, begin, logged = self._state, next_read.begin, next_read.logged
        read_again = queue.queue_offsets >= begin
        waiting = int(np.count_nonzero(read_again & logged))
        is_unlogged = read_again & ~logged & (queue.queue_offsets < next_read.end)
        unlogged = newest_timers(queue, is_unlogged, self._reader.files)
        delivered = sum(each.due < state.delivered_until for each in unlogged)
        if not waiting and not delivered:
            return
        was_reset = not waiting and state.check is None  # an operator deletes timercheck to have the queue read again
        # A crash loses its newest offsets.
        is_crash = state.check is not None and has_abort(self._reader.store.root)
        first = max(begin, int(queue.queue_offsets[0]))
        details = {"begin": first, "messages": waiting, "delivered": delivered}
        self._add("timer.again", details, waiting + delivered, first,
                  severity="info" if was_reset or is_crash else None)  # fmt: skip


_CHECK = f"{CONFIG}/{TIMER_CHECK}"


def check_wheel_size(store: Store, report: Report) -> None:
    """Check the wheel's size: with another one no broker starts; an empty wheel is created again (`TimerWheel`)."""
    try:
        size = (store.root / WHEEL).stat().st_size
    except OSError as error:
        note_failure(store.root / WHEEL, error)
        return
    report.check("timer.wheel-size")
    if size not in (0, timer_wheel.WHEEL_SIZE):
        report.add("timer.wheel-size", file=WHEEL, details={"size": size, "expected": timer_wheel.WHEEL_SIZE})


def check_timer(log: ScannedLog, messages: SingleMessages, report: Report) -> None:
    """Check the timer's files and messages of a stopped broker."""
    store, reader = log.store, log.reader
    state = timer_state(store, reader.reading, log.totals.latest, log.end, reader.database)
    if reader.files and not is_timer_elsewhere(store):
        _TimerMessages(reader, state, log.snapshot.releases, report).check(log.queue_ends.get(TIMER_QUEUE, 0), messages)
    report.check("timer.log", len(state.log.files))
    for file, facts in (*_files_out_of_line(store, state.log), *_checkpoint_ahead(store, state.log)):
        report.add("timer.log", file=file, details=facts)
    if state.log.files:
        _check_slots(reader, state.log, report)


def _files_out_of_line(store: Store, log: MappedFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    for stray in log.strays:
        yield store.relative(stray.path), {"problem": "stray", "kind": stray.kind}
    expected = store.conf.size("mappedFileSizeTimerLog") or log.file_size
    for file in log.files:
        if file.size != expected:
            yield store.relative(file.path), {"problem": "size", "size": file.size, "expected": expected}
    for before, after in pairwise(log.files):
        if before.end_offset != after.start_offset:
            facts = {"problem": "gap", "start_offset": after.start_offset, "end_offset": before.end_offset}
            yield store.relative(after.path), facts


def _checkpoint_ahead(store: Store, log: MappedFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    path = store.root / _CHECK
    try:
        data = read_all(path, TIMER_CHECK_SIZE)
    except RmqtoolError as error:
        if path.exists():
            yield _CHECK, {"problem": "unreadable", "why": error.message}
        return
    if len(data) < TIMER_CHECK_SIZE:
        yield _CHECK, {"problem": "short", "size": len(data), "expected": TIMER_CHECK_SIZE}
        return
    check = parse(TimerCheck, data)
    end = log.files[-1].end_offset if log.files else check.last_timer_log_flush_position
    if check.last_timer_log_flush_position > end:
        flushed = check.last_timer_log_flush_position
        yield _CHECK, {"problem": "flushed", "flushed": flushed, "end_offset": end}


def _check_slots(reader: StoreReader, log: MappedFiles, report: Report) -> None:
    """Check that the newest position in the wheel is that of a unit in the timer log; slots are never cleared."""
    path = reader.store.root / WHEEL
    if not path.is_file():
        return
    slot = newest_slot(used_slots(path, reader.reading))
    if slot is None:
        return
    newest = int(slot["last_position"])
    file = file_at(log.files, newest)
    if file is None and newest < log.files[0].start_offset:
        return  # its message is delivered, and its timer log file deleted
    if file is None:
        end = log.files[-1].end_offset
        facts = {"problem": "slot-behind", "position": newest, "end_offset": end}
        report.add("timer.log", file=WHEEL, details=facts)
        return
    if not len(written_unit(file, newest, reader.reading)):
        report.add("timer.log", file=WHEEL, details={"problem": "slot", "position": newest})
