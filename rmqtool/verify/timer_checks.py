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
from rmqtool.broker.dispatched_units import QueueName
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
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.formats import timer_check, timer_wheel
from rmqtool.formats.layout import parse
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.rules.versions import TIMER_OFFSET_IN_RANGE, Releases
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.paths import TIMER_CHECK
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.timer_wheel import WHEEL, is_wheel_whole, newest_slot, used_slots, written_unit
from rmqtool.verify.task import StoreReader


def check_timers(
    reader: StoreReader, state: TimerState, queue_end: int, messages: SingleMessages, releases: Releases, report: Report
) -> None:
    """Compare each unit of the queue with the timer log, and the other way round.

    `queue_end` is the maximum offset that the log gives the queue.
    """
    if is_timer_elsewhere(reader.store) or not reader.files:
        return
    queue = read_timer_queue(state, reader.files)
    next_read = None if queue is None else next_timer_read(state, queue)
    _report_stale(reader, state, queue, report)
    begin = state.queue_offset if next_read is None else next_read.begin
    _report_ahead(state, begin, max(queue_end, timer_queue_end(state)), releases, report)
    if queue is None or next_read is None:
        return
    for code in ("timer.too-large", "timer.chain", "timer.read-time", "timer.lost", "timer.again", "timer.aged"):
        report.check(code, len(queue.queue_offsets))
    conf = reader.store.conf
    is_passed_over = passed_over(queue, next_read, conf, releases.oldest)
    is_stuck = never_delivered(queue, next_read, state.read_until, conf, releases.newest)
    _report_too_large(reader, state, queue, is_passed_over, is_stuck, releases, report)
    _report_chains(state, queue, next_read, report)
    _report_read_time(state, queue, next_read, messages, report)
    has_chains = is_wheel_whole(state.store)
    _report_lost(reader, state, queue, next_read, ~is_passed_over & ~(next_read.unreached & has_chains), report)
    _report_repeated(reader, state, queue, next_read, report)
    _report_aged(state, queue, next_read, report)


def _report_stale(reader: StoreReader, state: TimerState, queue: TimerQueue | None, report: Report) -> None:
    report.check("timer.unit", len(state.log.files))
    for file, positions, targets in stale_units(state, queue, reader.files):
        behind = int(np.count_nonzero(targets >= state.log_end))
        facts = {"problem": "behind-log" if behind == len(targets) else "other", "units": len(positions)}
        facts["physical_offset"] = int(targets[0])
        report.add("timer.unit", details=facts, count=len(positions), file=reader.store.relative(file.path),
                   offset=int(positions[0]))  # fmt: skip


def _report_ahead(state: TimerState, begin: int, queue_end: int, releases: Releases, report: Report) -> None:
    """`begin` is where a start goes on, which may be before the offset of timercheck."""
    report.check("timer.ahead")
    next_offset = max(begin, state.queue_offset)
    if next_offset > queue_end:
        is_corrected = begin <= queue_end or releases.oldest >= TIMER_OFFSET_IN_RANGE
        report.add("timer.ahead", details={"read": next_offset, "end": queue_end},
                   severity="warning" if is_corrected else None,
                   file=f"{CONFIG}/{TIMER_CHECK}", topic=TIMER_TOPIC, queue_id=0, queue_offset=queue_end)  # fmt: skip


def _report_too_large(
    reader: StoreReader,
    state: TimerState,
    queue: TimerQueue,
    is_passed_over: NDArray[np.bool_],
    is_stuck: NDArray[np.bool_],
    releases: Releases,
    report: Report,
) -> None:
    """Report messages that do not fit into the timer's buffer; those that were due when it passed over are noted."""
    passed, stuck = (newest_timers(queue, rows, reader.files) for rows in (is_passed_over, is_stuck))
    waiting = [each for each in passed if each.due >= state.read_until + TIMER_LAG]
    can_come = bool(waiting or stuck)
    messages = [*waiting, *stuck] if can_come else passed
    if not messages:
        return
    rows = np.flatnonzero(is_passed_over | is_stuck)
    largest, oldest = int(queue.message_sizes[rows].max()), releases.oldest
    count = int(np.count_nonzero(is_stuck)) + len(waiting if can_come else passed)
    facts = {"problem": "waiting" if can_come else "passed", "messages": count,
             "first_due": min(each.due for each in messages), "largest_message": largest,
             "buffer_size": timer_buffer(queue, reader.store.conf, oldest),
             "origin": None if reader.store.conf.decides("maxMessageSize") else "by default"}  # fmt: skip
    if can_come:
        facts["needed_size"] = largest - room_beside_body(oldest)
    report.add("timer.too-large", details=facts, severity=None if can_come else "info", count=count,
               topic=TIMER_TOPIC, queue_id=0, queue_offset=int(queue.queue_offsets[rows[0]]))  # fmt: skip


def _report_chains(state: TimerState, queue: TimerQueue, next_read: NextRead, report: Report) -> None:
    """Report slots whose chain leaves out units of messages that wait; without a wheel they are lost with it."""
    reached = next_read.reached
    lost = next_read.unreached & (queue.queue_offsets < next_read.begin)
    count = int(np.count_nonzero(lost))
    if not len(reached.broken) or not is_wheel_whole(state.store) or not (count or reached.strays):
        if next_read.cut_chains:
            facts = {"problem": "delivered", "units": next_read.cut_chains, "messages": 0}
            report.add("timer.chain", severity="info", count=next_read.cut_chains, topic=TIMER_TOPIC, queue_id=0,
                       effect="none: their messages are delivered", details=facts)  # fmt: skip
        return
    first = int(reached.broken[0])
    details = {"slots": len(reached.broken), "first_due": first, "messages": count, "loops_at": reached.loops_at,
               "other_slots": reached.strays, "chain": "loops" if reached.loops_at else "broken",
               "left_out": "messages" if count else "other-slots"}  # fmt: skip
    offset = int(queue.queue_offsets[lost][0]) if count else None
    report.add("timer.chain", count=max(1, count), topic=TIMER_TOPIC, queue_id=0, queue_offset=offset,
               details=details)  # fmt: skip


def _report_read_time(
    state: TimerState, queue: TimerQueue, next_read: NextRead, messages: SingleMessages, report: Report
) -> None:
    """Report a time up to which the wheel has been read that is later than any broker ran, or before deliveries."""
    file = f"{CONFIG}/{TIMER_CHECK}"
    if state.is_ahead and state.ran_until is not None:
        count = int(np.count_nonzero(next_read.skipped))
        details = {"problem": "ahead", "read_until": state.read_until, "ran_until": state.ran_until, "messages": count}
        report.add("timer.read-time", severity=None if count else "warning", count=max(1, count), file=file,
                   topic=TIMER_TOPIC, queue_id=0, details=details)  # fmt: skip
        return
    again = delivered_after(state, queue, next_read, messages)
    if len(again):
        is_mild = (state.store.root / ABORT_FILE).exists()
        details = {
            "problem": "delivered",
            "read_until": state.read_until,
            "ran_until": state.ran_until or 0,
            "messages": len(again),
        }
        report.add("timer.read-time", severity="info" if is_mild else "warning", count=len(again), file=file,
                   effect="the broker delivers them again", topic=TIMER_TOPIC, queue_id=0, details=details)  # fmt: skip


def _report_lost(
    reader: StoreReader,
    state: TimerState,
    queue: TimerQueue,
    next_read: NextRead,
    is_asked: NDArray[np.bool_],
    report: Report,
) -> None:
    rows = is_asked & (queue.queue_offsets < next_read.begin) & ~next_read.logged
    waiting = unlogged_waiting(state, queue, rows, reader.files)
    if waiting:
        facts = {"messages": len(waiting), "first_due": min(each.due for each in waiting)}
        report.add("timer.lost", details=facts, count=len(waiting), topic=TIMER_TOPIC, queue_id=0,
                   queue_offset=min(each.queue_offset for each in waiting))  # fmt: skip


def _report_aged(state: TimerState, queue: TimerQueue, next_read: NextRead, report: Report) -> None:
    """Note messages that only a start today loses, since the store has been stopped for long: it is not damaged."""
    now = int(time.time() * 1000)
    aged = aged_out(state, queue, next_read, now) & ~aged_out(state, queue, next_read, state.latest)
    if aged.any():
        facts = {"messages": int(np.count_nonzero(aged)), "first_due": int(next_read.slots[aged].min())}
        report.add("timer.aged", details=facts, count=facts["messages"], topic=TIMER_TOPIC, queue_id=0,
                   queue_offset=int(queue.queue_offsets[aged][0]))  # fmt: skip


def _report_repeated(
    reader: StoreReader, state: TimerState, queue: TimerQueue, next_read: NextRead, report: Report
) -> None:
    begin, logged = next_read.begin, next_read.logged
    read_again = queue.queue_offsets >= begin
    waiting = int(np.count_nonzero(read_again & logged))
    unlogged = newest_timers(queue, read_again & ~logged & (queue.queue_offsets < next_read.end), reader.files)
    delivered = sum(each.due < state.delivered_until for each in unlogged)
    if not waiting and not delivered:
        return
    was_reset = not waiting and state.check is None  # an operator deletes timercheck to have the queue read again
    is_crash = state.check is not None and (reader.store.root / ABORT_FILE).exists()  # which loses its newest offsets
    is_mild = was_reset or is_crash
    severity: Severity | None = "info" if is_mild else None
    first = max(begin, int(queue.queue_offsets[0]))
    report.add("timer.again", severity=severity, count=waiting + delivered, topic=TIMER_TOPIC, queue_id=0,
               queue_offset=first,
               details={"begin": first, "messages": waiting, "delivered": delivered})  # fmt: skip


_CHECK = f"{CONFIG}/timercheck"
_QUEUE = QueueName(TIMER_TOPIC, 0)


def check_wheel_size(store: Store, report: Report) -> None:
    """Check the wheel's size: with another one no broker starts; an empty wheel is created again (`TimerWheel`)."""
    try:
        size = (store.root / WHEEL).stat().st_size
    except OSError as error:
        note_failure(store.root / WHEEL, error)
        return
    report.check("timer.wheel-size")
    if size not in (0, timer_wheel.FILE_SIZE):
        report.add("timer.wheel-size", file=WHEEL, details={"size": size, "expected": timer_wheel.FILE_SIZE})


def check_timer(
    reader: StoreReader,
    log_end: int,
    ends: Mapping[QueueName, int],
    latest: int,
    messages: SingleMessages,
    releases: Releases,
    report: Report,
) -> None:
    """Check the timer's files and messages of a stopped broker.

    `ends` are the maximum offsets that the log gives the queues, up to its end at `log_end`; `latest` is the newest
    store timestamp, epoch ms.
    """
    store = reader.store
    state = timer_state(store, reader.reading, latest, log_end, reader.database)
    log = state.log
    check_timers(reader, state, ends.get(_QUEUE, 0), messages, releases, report)
    report.check("timer.log", len(log.files))
    for file, facts in (*_files_out_of_line(store, log), *_checkpoint_ahead(store, log)):
        report.add("timer.log", file=file, details=facts)
    if log.files:
        _check_slots(reader, log, report)


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
        data = read_all(path, timer_check.USED_SIZE)
    except RmqtoolError as error:
        if path.exists():
            yield _CHECK, {"problem": "unreadable", "why": error.message}
        return
    if len(data) < timer_check.USED_SIZE:
        yield _CHECK, {"problem": "short", "size": len(data), "expected": timer_check.USED_SIZE}
        return
    check = parse(timer_check.TimerCheck, data)
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
