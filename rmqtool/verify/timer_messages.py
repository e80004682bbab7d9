"""Timer messages against the timer's files: those that a start would never deliver, or deliver twice.

`TimerMessageStore#recover`: the broker goes on in its queue behind the newest unit of the timer log, or at the offset
of `timercheck` when the log is empty. Messages that it does not read again must be in the timer log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile, ReadPolicy, list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.base.times import rfc3339
from rmqtool.findings.finding import Severity, counted
from rmqtool.findings.report import Report
from rmqtool.formats import timer_log
from rmqtool.formats.consume_queue import is_written
from rmqtool.formats.properties import decode_properties
from rmqtool.scan.record_at import record_at
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.queue_units import find_queue
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.rocksdb_queues import NO_UNIT
from rmqtool.store.store import SIDE_STORE, Store, holds_rocksdb
from rmqtool.store.unit_files import count_leading, open_units
from rmqtool.verify.gaps import holds_rows
from rmqtool.verify.task import StoreReader
from rmqtool.verify.timer_wheel import newest_wheel, slots_lead_to

TIMER_TOPIC = "rmq_sys_wheel_timer"
_DUE = "TIMER_OUT_MS"
_FAMILY = "timer"
_MAX_UNITS = 1 << 22  # newest units of the queue that are checked; a delay is three days at most
_MAX_READ = 10_000  # newest messages whose time of delivery is read
_LAG = 3000  # ms; what is due meanwhile is delivered at once and never gets into the timer log
_ROWS = 1 << 16  # of RocksDB that are read at once
_PIECE = timer_log.UNIT_SIZE << 14  # bytes, whole units


@dataclass(frozen=True)
class TimerState:
    """The timer's files of a store; `check` is `timercheck`, None without one."""

    log: MappedFiles
    check: Any
    precision: int  # ms
    latest: int  # the newest store timestamp in the commit log, epoch ms

    @property
    def revised_from(self) -> int:
        """Timer log position from which a start enters units into the wheel again."""
        flushed = self.check.last_timer_log_flush_position if self.check else 0
        size = self.log.files[-1].size if self.log.files else 0
        first = max(0, flushed - size)
        return max((file.start_offset for file in self.log.files if file.start_offset <= first), default=0)

    @property
    def read_until(self) -> int:
        """The time up to which the wheel has been read, epoch ms."""
        return int(self.check.last_read_timestamp) if self.check else 0

    @property
    def delivered_until(self) -> int:
        """The time up to which due messages may have been delivered, epoch ms."""
        return self.read_until if self.check else self.latest


@dataclass(frozen=True)
class TimerQueue:
    """The units of the timer's queue whose messages are in the log: queue offsets and physical offsets."""

    queue_offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]

    def behind(self, physical_offset: int) -> int | None:
        """The queue offset behind a message."""
        rows = np.flatnonzero(self.physical_offsets == physical_offset)
        return int(self.queue_offsets[rows[-1]]) + 1 if len(rows) else None


@dataclass(frozen=True)
class NextRead:
    """Where a start goes on in the queue: from `begin`, when it had read to before `end` (queue offsets).

    `logged` are the rows of messages that it reaches through the wheel, or has delivered.
    """

    begin: int
    end: int
    logged: NDArray[np.bool_]


def check_timers(reader: StoreReader, state: TimerState, report: Report) -> None:
    """Compare each unit of the queue with the timer log."""
    if _is_elsewhere(reader.store):
        return
    queue = _read_queue(reader)
    if queue is None:
        return
    report.check("timer.lost", len(queue.queue_offsets))
    report.check("timer.again", len(queue.queue_offsets))
    next_read = _next_read(reader, state, queue)
    _report_lost(reader, state, queue, next_read, report)
    _report_repeated(reader, state, queue, next_read, report)


def _is_elsewhere(store: Store) -> bool:
    settings = (store.conf.text("timerWheelEnable") or "true").lower(), store.conf.text("timerRocksDBEnable") or ""
    return settings[0] == "false" or settings[1].lower() == "true" or _are_in_rocksdb(store)


def _are_in_rocksdb(store: Store) -> bool:
    """Whether timers are in RocksDB, though no broker.conf says so; without the library, whether any row is there."""
    directory = store.root / SIDE_STORE
    if not holds_rocksdb(directory):
        return False
    try:
        with RocksDb(directory) as database:
            return _FAMILY in database.families and any(True for _ in database.rows(_FAMILY))
    except RmqtoolError:
        return any(map(holds_rows, list_directory(directory)))


def _read_queue(reader: StoreReader) -> TimerQueue | None:
    log, queue_offsets, physical_offsets, count = reader.files, [], [], 0
    for numbers, units in _newest_units(reader) if log else ():
        targets = units["physical_offset"].astype(np.int64)
        rows = is_written(units) & (targets >= log[0].start_offset) & (targets < log[-1].end_offset)
        queue_offsets.append(numbers[rows])
        physical_offsets.append(targets[rows])
        count += len(targets)
        if count >= _MAX_UNITS:
            break
    if not sum(map(len, queue_offsets)):
        return None
    return TimerQueue(np.concatenate(queue_offsets[::-1]), np.concatenate(physical_offsets[::-1]))


def _newest_units(reader: StoreReader) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    """Numbers of units and the units of the timer's queue, piece by piece, the newest first."""
    queue = find_queue(reader.store, TIMER_TOPIC, 0)
    if queue is None and reader.database:
        name = TIMER_TOPIC, 0
        for stop in range(reader.database.lasts.get(name, NO_UNIT).queue_offset + 1, 0, -_ROWS):
            yield reader.database.units(name, max(0, stop - _ROWS), stop)
    if queue is None or queue.kind != "simple":
        return
    with open_units(queue, reader.reading) as files:
        for mapped in reversed(files.files):
            units = files.units_in(mapped, 0, files.room_of(mapped))
            yield mapped.start_offset // files.size + np.arange(len(units)), units


def _next_read(reader: StoreReader, state: TimerState, queue: TimerQueue) -> NextRead:
    """Where a start goes on: behind the newest message of the timer log, or at the offset of `timercheck`.

    The newest message counts only in the last file: a start reads the unit right before the log's end.
    """
    logged = np.zeros(len(queue.queue_offsets), dtype=np.bool_)
    known, newest = np.empty(0, np.int64), None
    recent = [file for file in state.log.files if file.start_offset >= state.revised_from]
    for mapped in recent:
        newest, is_cut = None, False
        for _, units, goes_on in _written_units(mapped, reader.reading):
            is_cut = not goes_on
            logged |= np.isin(queue.physical_offsets, units["physical_offset"].astype(np.int64))
            known = np.union1d(known, _times(units) // state.precision)
            newest = int(units["physical_offset"][-1]) if len(units) else newest
        if is_cut:
            break
    for mapped in state.log.files[: -len(recent)]:
        for start, units, _ in _written_units(mapped, reader.reading):
            times = _times(units)
            slots = times // state.precision
            reachable = (times < state.read_until) | np.isin(slots, known)
            rows = np.flatnonzero(~reachable)
            positions = start + timer_log.UNIT_SIZE * rows
            reachable[rows] = slots_lead_to(newest_wheel(reader.store), slots[rows], positions, reader.reading)
            logged |= np.isin(queue.physical_offsets, units["physical_offset"][reachable].astype(np.int64))
    behind = None if newest is None else queue.behind(newest)
    own = state.check.last_timer_queue_offset if state.check else 0
    begin = min(own if behind is None else behind, state.check.master_timer_queue_offset if state.check else 0)
    return NextRead(begin, max(own, behind or 0) or int(queue.queue_offsets[-1]) + 1, logged)


def _times(units: NDArray[np.void]) -> NDArray[np.int64]:
    """When each unit is due, epoch ms."""
    times: NDArray[np.int64] = units["write_timestamp"].astype(np.int64) + units["delay"].astype(np.int64)
    return times


def _written_units(mapped: MappedFile, reading: ReadPolicy) -> Iterator[tuple[int, NDArray[np.void], bool]]:
    """Positions and units of pieces of one timer log file, and whether the log goes on behind each piece."""
    with InputFile(mapped.path, reading) as file:
        for at in range(0, mapped.size, _PIECE):
            units = timer_log.decode_units(file.read(at, _PIECE))
            written = timer_log.is_written(units)
            count = count_leading(written)
            is_whole = count == len(units)
            yield mapped.start_offset + at, units[:count], is_whole or bool(timer_log.is_blank(units)[count])
            if not is_whole:
                return


def _report_lost(
    reader: StoreReader, state: TimerState, queue: TimerQueue, next_read: NextRead, report: Report
) -> None:
    dues = _dues(queue, (queue.queue_offsets < next_read.begin) & ~next_read.logged, reader.files)
    waiting = [(queue_offset, due) for queue_offset, due in dues if due >= state.read_until + _LAG]
    if waiting:
        message = f"{counted(len(waiting), 'message')} due from {rfc3339(min(due for _, due in waiting))} on: read " \
                  "from the queue already, and not in the timer log"  # fmt: skip
        report.add("timer.lost", message, count=len(waiting), topic=TIMER_TOPIC, queue_id=0,
                   queue_offset=min(queue_offset for queue_offset, _ in waiting))  # fmt: skip


def _report_repeated(
    reader: StoreReader, state: TimerState, queue: TimerQueue, next_read: NextRead, report: Report
) -> None:
    begin, logged = next_read.begin, next_read.logged
    read_again = queue.queue_offsets >= begin
    waiting = int(np.count_nonzero(read_again & logged))
    dues = _dues(queue, read_again & ~logged & (queue.queue_offsets < next_read.end), reader.files)
    delivered = sum(due < state.delivered_until for _, due in dues)
    if not waiting and not delivered:
        return
    was_reset = not waiting and state.check is None  # an operator deletes timercheck to have the queue read again
    is_mild = was_reset or (reader.store.root / ABORT_FILE).exists()  # a crash loses the newest offsets of timercheck
    severity: Severity | None = "info" if is_mild else None
    message = f"the queue is read again from {max(begin, int(queue.queue_offsets[0]))} on: " \
              f"{counted(waiting, 'message')} of the timer log, and {delivered} more that were delivered"  # fmt: skip
    report.add("timer.again", message, severity=severity, count=waiting + delivered, topic=TIMER_TOPIC, queue_id=0,
               queue_offset=max(begin, int(queue.queue_offsets[0])))  # fmt: skip


def _dues(queue: TimerQueue, rows: NDArray[np.bool_], log: Sequence[MappedFile]) -> list[tuple[int, int]]:
    """Queue offset and time of delivery, epoch ms, of the newest messages among `rows`."""
    dues = []
    for row in np.flatnonzero(rows)[::-1][:_MAX_READ].tolist():
        due = _due_at(log, int(queue.physical_offsets[row]))
        if due is not None:
            dues.append((int(queue.queue_offsets[row]), due))
    return dues


def _due_at(log: Sequence[MappedFile], physical_offset: int) -> int | None:
    try:
        frames = record_at(log, physical_offset)
    except RmqtoolError:
        return None  # which the scan has reported
    if frames is None:
        return None
    start, size = int(frames.properties_positions[0]), int(frames.properties_sizes[0])
    value = decode_properties(bytes(frames.block.view[start : start + size])).get(_DUE, "")
    return int(value) if value.isdecimal() and len(value) < 19 else None
