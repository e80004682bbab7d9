"""Which timer messages the next start of a broker delivers, by the timer's files (`TimerMessageStore#recover`).

The broker goes on in its queue behind the newest unit of the timer log, or at the offset of `timercheck` when the log
is empty. Messages that it does not read again must be in the timer log, in a slot that the wheel has not passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile, ReadPolicy, list_directory, read_all
from rmqtool.base.mapped_files import MappedFile, MappedFiles, list_mapped_files
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.formats import timer_check, timer_log, timer_wheel
from rmqtool.formats.consume_queue import is_written
from rmqtool.formats.layout import parse
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.queue_units import find_queue
from rmqtool.store.rocksdb import RocksDb, holds_rows
from rmqtool.store.rocksdb_queues import NO_UNIT, QueueDatabase
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, is_rocksdb_directory
from rmqtool.store.timer_wheel import newest_wheel, precision_of, slots_lead_to
from rmqtool.store.unit_files import count_leading, open_units

_FAMILY = "timer"
_MAX_UNITS = 1 << 22  # newest units of the queue that are read; a delay is three days at most
_ROWS = 1 << 16  # of RocksDB that are read at once
_PIECE = timer_log.UNIT_SIZE << 14  # bytes, whole units
TIMER_LAG = 3000  # ms; what is due meanwhile is delivered at once and never gets into the timer log
_BLANK_SLOTS = 60  # TimerMessageStore.TIMER_BLANK_SLOTS


@dataclass(frozen=True)
class TimerState:
    """The timer's files of a store; `check` is `timercheck`, None without one. `log_end` is that of the commit log."""

    store: Store
    log: MappedFiles
    check: Any
    reading: ReadPolicy
    latest: int  # the newest store timestamp in the commit log, epoch ms
    log_end: int  # physical offset behind its last record

    @cached_property
    def precision(self) -> int:
        """How long a slot of the wheel is, ms."""
        return precision_of(newest_wheel(self.store), self.log, self.store.conf, self.reading)

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
    def queue_offset(self) -> int:
        """The queue offset at which a start goes on whose timer log leads to no message of the queue."""
        return min(self.check.last_timer_queue_offset, self.check.master_timer_queue_offset) if self.check else 0

    @property
    def delivered_until(self) -> int:
        """The time up to which due messages may have been delivered, epoch ms."""
        return self.read_until if self.check else self.latest

    def first_slot(self, now: int) -> int:
        """The time from which a start `now` reads the wheel, epoch ms: what was due a week before is skipped."""
        skipped = timer_wheel.WHEEL_SLOTS // 2 - _BLANK_SLOTS
        return max(self.read_until, now - now % self.precision - skipped * self.precision)


@dataclass(frozen=True)
class TimerQueue:
    """The units of the timer's queue whose messages are in the log: queue offsets, physical offsets and sizes (bytes).

    Queue offsets ascend.
    """

    queue_offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    message_sizes: NDArray[np.int64]

    def behind(self, physical_offset: int) -> int | None:
        """The queue offset behind a message."""
        rows = np.flatnonzero(self.physical_offsets == physical_offset)
        return int(self.queue_offsets[rows[-1]]) + 1 if len(rows) else None


@dataclass(frozen=True)
class NextRead:
    """Where a start goes on in the queue: from `begin`, when it had read to before `end` (queue offsets).

    `logged` are the rows of messages that it reaches through the wheel, or has delivered; `slots` are the times of
    their slots, epoch ms, 0 of those that are not logged.
    """

    begin: int
    end: int
    logged: NDArray[np.bool_]
    slots: NDArray[np.int64]


def timer_state(store: Store, reading: ReadPolicy, latest: int, log_end: int) -> TimerState:
    """The timer's files of a store; `latest` is the newest store timestamp in the commit log, epoch ms."""
    log = list_mapped_files(store.root / TIMER_LOG, scope=skip_wrong_type)
    return TimerState(store, log, _read_check(store), reading, latest, log_end)


def timer_state_of(snapshot: Snapshot) -> TimerState:
    """The timer's files of a store, with the end of its log as a look at the last file shows it."""
    log = snapshot.log_range
    return timer_state(snapshot.store, snapshot.reading, log.last_store_timestamp or 0, log.max_offset)


def _read_check(store: Store) -> Any:
    """The content of `timercheck`, None when it cannot be read."""
    try:
        data = read_all(store.root / CONFIG / TIMER_CHECK, timer_check.USED_SIZE)
    except RmqtoolError:
        return None
    return parse(timer_check.TimerCheck, data) if len(data) == timer_check.USED_SIZE else None


def is_timer_elsewhere(store: Store) -> bool:
    """Whether the wheel is not in use: it is turned off, or timers are in RocksDB."""
    is_off = not store.conf.is_on("timerWheelEnable", default=True)
    return is_off or store.conf.is_on("timerRocksDBEnable") or _are_in_rocksdb(store)


def _are_in_rocksdb(store: Store) -> bool:
    """Whether timers are in RocksDB, though no broker.conf says so; without the library, whether any row is there."""
    directory = store.root / SIDE_STORE
    if not is_rocksdb_directory(directory):
        return False
    try:
        with RocksDb(directory) as database:
            return _FAMILY in database.families and any(True for _ in database.rows(_FAMILY))
    except RmqtoolError:
        return any(map(holds_rows, list_directory(directory)))


def read_timer_queue(state: TimerState, log: Sequence[MappedFile], database: QueueDatabase | None) -> TimerQueue | None:
    """The newest units of the timer's queue that lead into the log; None without one.

    `database` holds the queues that are in RocksDB.
    """
    queue_offsets, physical_offsets, message_sizes, count = [], [], [], 0
    for numbers, units in _newest_units(state, database) if log else ():
        targets = units["physical_offset"].astype(np.int64)
        rows = is_written(units) & (targets >= log[0].start_offset) & (targets < state.log_end)
        queue_offsets.append(numbers[rows])
        physical_offsets.append(targets[rows])
        message_sizes.append(units["message_size"][rows].astype(np.int64))
        count += len(targets)
        if count >= _MAX_UNITS:
            break
    if not sum(map(len, queue_offsets)):
        return None
    return TimerQueue(*(np.concatenate(parts[::-1]) for parts in (queue_offsets, physical_offsets, message_sizes)))


def timer_queue_end(state: TimerState, database: QueueDatabase | None) -> int:
    """The maximum offset of the timer's queue once a start has cut the units that lead behind the end of the log."""
    first = 0
    for numbers, units in _newest_units(state, database):
        kept = numbers[is_written(units) & (units["physical_offset"].astype(np.int64) < state.log_end)]
        if len(kept):
            return int(kept[-1]) + 1
        first = int(numbers[0]) if len(numbers) else first
    return first


def _newest_units(
    state: TimerState, database: QueueDatabase | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    """Numbers of units and the units of the timer's queue, piece by piece, the newest first."""
    queue = find_queue(state.store, TIMER_TOPIC, 0)
    if queue is None and database:
        name = TIMER_TOPIC, 0
        for stop in range(database.lasts.get(name, NO_UNIT).queue_offset + 1, 0, -_ROWS):
            yield database.units(name, max(0, stop - _ROWS), stop)
    if queue is None or queue.kind != "simple":
        return
    with open_units(queue, state.reading) as files:
        for mapped in reversed(files.files):
            units = files.units_in(mapped, 0, files.room_of(mapped))
            yield mapped.start_offset // files.size + np.arange(len(units)), units


def next_timer_read(state: TimerState, queue: TimerQueue) -> NextRead:
    """Where a start goes on: behind the newest message of the timer log, or at the offset of `timercheck`.

    The newest message counts only in the last file: a start reads the unit right before the log's end.
    """
    logged = _Logged(queue, state.precision)
    known, newest = np.empty(0, np.int64), None
    recent = [file for file in state.log.files if file.start_offset >= state.revised_from]
    for mapped in recent:
        newest, is_cut = None, False
        for _, units, goes_on in written_units(mapped, state.reading):
            is_cut = not goes_on
            logged.add(units[timer_log.leads_on(units)])
            known = np.union1d(known, timer_log.dues(units) // state.precision)
            if len(units):
                newest = int(units["physical_offset"][-1]) if timer_log.leads_on(units)[-1] else -1
        if is_cut:
            break
    for mapped in state.log.files[: -len(recent)]:
        for start, units, _ in written_units(mapped, state.reading):
            times = timer_log.dues(units)
            slots = times // state.precision
            reachable = (times < state.read_until) | np.isin(slots, known)
            rows = np.flatnonzero(~reachable)
            positions = start + timer_log.UNIT_SIZE * rows
            reachable[rows] = slots_lead_to(newest_wheel(state.store), slots[rows], positions, state.reading)
            logged.add(units[reachable & timer_log.leads_on(units)])
    behind = None if newest is None else queue.behind(newest)
    own = state.check.last_timer_queue_offset if state.check else 0
    master = state.check.master_timer_queue_offset if state.check else 0
    begin = state.queue_offset if behind is None else min(behind, master)
    return NextRead(begin, max(own, behind or 0) or int(queue.queue_offsets[-1]) + 1, logged.rows, logged.slots)


class _Logged:
    """The messages of the queue that units of the timer log name, and the times of their slots."""

    def __init__(self, queue: TimerQueue, precision: int) -> None:
        self._order = np.argsort(queue.physical_offsets, kind="stable")
        self._sorted = queue.physical_offsets[self._order]
        self._precision = precision
        self.rows = np.zeros(len(self._order), dtype=np.bool_)
        self.slots = np.zeros(len(self._order), dtype=np.int64)

    def add(self, units: NDArray[np.void]) -> None:
        """Add what units of the timer log name; of several units of a message the latest slot counts."""
        targets = units["physical_offset"].astype(np.int64)
        slots = timer_log.dues(units) // self._precision * self._precision
        first = np.searchsorted(self._sorted, targets, side="left")
        last = np.searchsorted(self._sorted, targets, side="right") - 1  # two units may point to one message
        for places in (first, last):
            at = np.clip(places, 0, len(self._sorted) - 1)
            named = self._sorted[at] == targets
            rows = self._order[at[named]]
            self.rows[rows] = True
            np.maximum.at(self.slots, rows, slots[named])


def written_units(mapped: MappedFile, reading: ReadPolicy) -> Iterator[tuple[int, NDArray[np.void], bool]]:
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
