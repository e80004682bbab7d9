"""Which timer messages the next start of a broker delivers, by the timer's files (`TimerMessageStore#recover`).

The broker goes on in its queue after the newest unit of the timer log, or at the offset of `timercheck` when the log
is empty. Messages that it does not read again must be in the timer log, in a slot that the wheel has not passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile, ReadPolicy, list_directory, read_all
from rmqtool.base.mapped_files import MappedFile, MappedFiles, list_mapped_files, read_at
from rmqtool.base.tolerant import skip_unreadable, skip_wrong_type
from rmqtool.formats import timer_wheel
from rmqtool.formats.checkpoint import TIMER_CHECK_SIZE, TimerCheck
from rmqtool.formats.consume_queue import is_written
from rmqtool.formats.layout import decode_units, parse
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, credible, read_checkpoint
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.queue_units import find_queue
from rmqtool.store.rocksdb import holds_rows
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, is_rocksdb_directory
from rmqtool.store.timer_wheel import newest_wheel, precision_of, used_slots
from rmqtool.store.unit_files import count_leading, open_units

Offsets = NDArray[np.int64]

_FAMILY = "timer"
MAX_UNITS = 1 << 22  # newest units of the queue that are read; a delay is three days at most
_PIECE = timer_wheel.UNIT_SIZE << 14  # bytes, whole units
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
    log_end: int  # physical offset after its last record
    database: QueueDatabase | None = None  # that of the queues, where they are in RocksDB
    read_from: int | None = None  # a time up to which the wheel is taken to be read instead, epoch ms

    @cached_property
    def precision(self) -> int:
        """How long a slot of the wheel is, ms."""
        return precision_of(lambda: self.wheel, self.log, self.store.conf, self.reading)

    @cached_property
    def wheel(self) -> NDArray[np.void]:
        """The used slots of the wheel that a start reads; none where it cannot be read, which has its own finding."""
        with skip_unreadable():
            return used_slots(newest_wheel(self.store), self.reading)
        return decode_units(timer_wheel.SLOT_DTYPE, b"")

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
        if self.read_from is not None:
            return self.read_from
        return int(self.check.last_read_timestamp) if self.check else 0

    @property
    def changed_at(self) -> int | None:
        """When a broker changed `timercheck` last, epoch ms; None where it does not say so."""
        return int(self.check.version_timestamp) if self.check and self.check.version_timestamp > 0 else None

    @cached_property
    def ran_until(self) -> int | None:
        """The slot, epoch ms, after which no broker can have read the wheel: none has run then; None if not known.

        The time in `timercheck` changes with what is read; checkpoint and log show that a broker ran later.
        """
        if self.changed_at is None:
            return None
        known = [self.changed_at, self.latest]
        with skip_unreadable():
            fields = credible(read_checkpoint(self.store))
            known += [fields.get(name, 0) for name in CHECKPOINT_TIMES]
        return (max(known) // self.precision + 1) * self.precision

    @property
    def is_ahead(self) -> bool:
        """Whether the wheel would be read from a time on that no broker has reached.

        Never on a slave, which takes the time over from its master, up to 5.1 without its version
        (`SlaveSynchronize#syncTimerCheckPoint`): how long the slave itself has run is not known.
        """
        if self.ran_until is None or self.read_until <= self.ran_until:
            return False
        is_slaves = self.store.conf.is_slave or (self.check and self.check.version_counter == 0)
        return not is_slaves

    @property
    def queue_offset(self) -> int:
        """The queue offset at which a start goes on whose timer log leads to no message of the queue."""
        return min(self.check.last_timer_queue_offset, self.check.master_timer_queue_offset) if self.check else 0

    @property
    def delivered_until(self) -> int:
        """The time up to which due messages may have been delivered, epoch ms."""
        return self.read_until if self.check and not self.is_ahead else self.latest

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
        """The queue offset after a message."""
        rows = np.flatnonzero(self.physical_offsets == physical_offset)
        return int(self.queue_offsets[rows[-1]]) + 1 if len(rows) else None


@dataclass(frozen=True)
class NextRead:
    """Where a start goes on in the queue: from `begin`, when it had read to before `end` (queue offsets).

    `logged` are the rows of messages that it reaches through the wheel, or has delivered; `slots` are the times of
    their slots, epoch ms, 0 of those that are not logged. `unreached` are the rows of messages that wait in the timer
    log, but in no chain of the wheel, `skipped` those of messages whose slots are before the time from which the wheel
    would be read, though no broker has read them. `logged_end` is the queue offset after the newest message of the
    timer log, None where it leads to none.
    """

    begin: int
    end: int
    logged: NDArray[np.bool_]
    slots: NDArray[np.int64]
    unreached: NDArray[np.bool_]
    skipped: NDArray[np.bool_]
    reached: ReachedUnits
    cut_chains: int
    logged_end: int | None


def aged_out(state: TimerState, queue: TimerQueue, next_read: NextRead, now: int) -> NDArray[np.bool_]:
    """The messages that wait in the wheel, and that a start `now`, epoch ms, leaves out: due a week before."""
    waits = next_read.logged & (queue.queue_offsets < next_read.begin) & (next_read.slots >= state.read_until)
    aged: NDArray[np.bool_] = waits & (next_read.slots < state.first_slot(now))
    return aged


def timer_state(
    store: Store, reading: ReadPolicy, latest: int, log_end: int, database: QueueDatabase | None = None
) -> TimerState:
    """The timer's files of a store; `latest` is the newest store timestamp in the commit log, epoch ms."""
    log = list_mapped_files(store.root / TIMER_LOG, scope=skip_wrong_type)
    return TimerState(store, log, _read_check(store), reading, latest, log_end, database)


def timer_state_of(snapshot: Snapshot) -> TimerState:
    """The timer's files of a store, with the end of its log as a look at the last file shows it."""
    log = snapshot.log_range
    latest = log.last_store_timestamp or 0
    return timer_state(snapshot.store, snapshot.reading, latest, log.max_offset, snapshot.database)


def _read_check(store: Store) -> Any:
    """The content of `timercheck`, None when it cannot be read, or is all zeros, as a start makes a missing one."""
    try:
        data = read_all(store.root / CONFIG / TIMER_CHECK, TIMER_CHECK_SIZE)
    except RmqtoolError:
        return None
    return parse(TimerCheck, data) if len(data) == TIMER_CHECK_SIZE and any(data) else None


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
        with store.opened(directory) as database:
            return _FAMILY in database.families and any(True for _ in database.rows(_FAMILY))
    except RmqtoolError:
        return any(map(holds_rows, list_directory(directory)))


def read_timer_queue(state: TimerState, log: Sequence[MappedFile]) -> TimerQueue | None:
    """The newest units of the timer's queue that lead into the log; None without one."""
    queue_offsets, physical_offsets, message_sizes, count = [], [], [], 0
    for numbers, units in _newest_units(state) if log else ():
        targets = units["physical_offset"].astype(np.int64)
        rows = is_written(units) & (targets >= log[0].start_offset) & (targets < state.log_end)
        queue_offsets.append(numbers[rows])
        physical_offsets.append(targets[rows])
        message_sizes.append(units["message_size"][rows].astype(np.int64))
        count += len(targets)
        if count >= MAX_UNITS:
            break
    if not sum(map(len, queue_offsets)):
        return None
    return TimerQueue(*(np.concatenate(parts[::-1]) for parts in (queue_offsets, physical_offsets, message_sizes)))


def timer_queue_end(state: TimerState) -> int:
    """The maximum offset of the timer's queue once a start has cut the units that lead past the end of the log."""
    first = 0
    for numbers, units in _newest_units(state):
        kept = numbers[is_written(units) & (units["physical_offset"].astype(np.int64) < state.log_end)]
        if len(kept):
            return int(kept[-1]) + 1
        first = int(numbers[0]) if len(numbers) else first
    return first


def waiting_from(state: TimerState, log_end: int, *, without_files: bool = False) -> int:
    """How many messages that the timer log or the rest of the queue lead to are at or past a physical offset.

    `without_files` of the timer it is all of the queue.
    """
    begin, found = 0, [np.zeros(0, np.int64)]
    if not without_files:
        begin, units = state.queue_offset, waiting_units(state).values
        found = [units["physical_offset"][timer_wheel.leads_on(units)].astype(np.int64)]
    for numbers, queued in _newest_units(state):
        if len(found) == 1 and len(numbers) and begin > numbers[-1] + 1:
            begin = 0  # a damaged one, which says nothing
        found.append(queued["physical_offset"][is_written(queued) & (numbers >= begin)].astype(np.int64))
        if len(numbers) and numbers[0] <= begin:
            break
    return int(np.count_nonzero(np.unique(np.concatenate(found)) >= log_end))


def _newest_units(state: TimerState) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    """Numbers of units and the units of the timer's queue, piece by piece, the newest first."""
    queue = find_queue(state.store, TIMER_TOPIC, 0, state.database)
    if queue is not None and queue.kind == "simple":
        with open_units(queue, state.reading) as units:
            yield from units.backwards()


def next_timer_read(state: TimerState, queue: TimerQueue) -> NextRead:
    """Where a start goes on: after the newest message of the timer log, or at the offset of `timercheck`.

    The newest message counts only in the last file: a start reads the unit right before the log's end.
    """
    logged = _Logged(queue)
    units = waiting_units(state, logged.add)
    reached = reached_units(state, units)
    logged.add(reached.targets, reached.slots)
    skipped = _Logged(queue)
    if state.is_ahead:
        earlier = waiting_units(replace(state, read_from=state.ran_until))
        rows = timer_wheel.leads_on(earlier.values) & (earlier.slots < state.read_until)
        skipped.add(earlier.values["physical_offset"][rows], earlier.slots[rows])
    leads_on = timer_wheel.leads_on(units.values)
    is_named = np.isin(queue.physical_offsets, units.values["physical_offset"][leads_on].astype(np.int64))
    newest = units.newest
    behind = None if newest is None else queue.behind(newest)
    own = state.check.last_timer_queue_offset if state.check else 0
    master = state.check.master_timer_queue_offset if state.check else 0
    begin = state.queue_offset if behind is None else min(behind, master)
    end = max(own, behind or 0) or int(queue.queue_offsets[-1]) + 1
    is_skipped = skipped.rows & (logged.slots < state.read_until) & (queue.queue_offsets < begin)
    unreached = is_named & ~logged.rows
    columns = logged.rows, logged.slots, unreached, is_skipped
    return NextRead(begin, end, *columns, reached, units.cut_chains, behind)


@dataclass(frozen=True)
class WaitingUnits:
    """The units of the timer log that a start keeps, of slots to be read: positions, slots (epoch ms), and `values`.

    `newest` is the message of the last unit in the last file, -1 where it leads to none, None without a unit there.
    `end` is the timer log position after the last unit. `cut_chains` counts units of slots that were read already
    which do not lead to the unit before them.
    """

    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    values: NDArray[np.void]
    newest: int | None
    end: int
    cut_chains: int


@dataclass(frozen=True)
class ReachedUnits:
    """What the wheel leads to once its slots are due: positions of units, their messages, and the slots (epoch ms).

    A chain that comes back to one of its units is read for ever: `loops_at` is the slot, epoch ms, None without one.
    `broken` are the slots whose chain leaves out one of their units, or leads to one of another slot; `strays` counts
    units that are reached from another slot than theirs.
    """

    positions: NDArray[np.int64]
    targets: NDArray[np.int64]
    slots: NDArray[np.int64]
    broken: NDArray[np.int64]
    strays: int = 0
    loops_at: int | None = None


def waiting_units(state: TimerState, passed: Callable[[Offsets, Offsets], None] | None = None) -> WaitingUnits:
    """The units up to the first that is not written, after which a start cuts the log (`recoverAndRevise`).

    Files before those that it reads are kept as they are. `passed` is called with messages of slots that were read, and
    the slots.
    """
    positions, found, slots_of = [np.empty(0, np.int64)], [np.empty(0, timer_wheel.UNIT_DTYPE)], [np.empty(0, np.int64)]
    newest, end, cut_chains = None, 0, 0
    for mapped in state.log.files:
        newest, is_cut = None, False
        for start, units, goes_on in written_units(mapped, state.reading):
            is_cut = not goes_on
            places = start + timer_wheel.UNIT_SIZE * np.arange(len(units), dtype=np.int64)
            slots = timer_wheel.dues(units) // state.precision * state.precision
            leads_on, is_read = timer_wheel.leads_on(units), slots < state.read_until
            if passed is not None:
                rows = leads_on & is_read
                passed(units["physical_offset"][rows].astype(np.int64), slots[rows])
            cut_chains += _cut_chains(places[is_read], slots[is_read], units[is_read])
            positions.append(places[~is_read])
            slots_of.append(slots[~is_read])
            found.append(units[~is_read])
            end = start + timer_wheel.UNIT_SIZE * len(units)
            if len(units):
                newest = int(units["physical_offset"][-1]) if leads_on[-1] else -1
        if is_cut and mapped.start_offset >= state.revised_from:
            break
    columns = np.concatenate(positions), np.concatenate(slots_of), np.concatenate(found)
    return WaitingUnits(*columns, newest, end, cut_chains)


def _cut_chains(positions: Offsets, slots: Offsets, units: NDArray[np.void]) -> int:
    """How many units do not lead to the one before them in their slot, among those that were read together."""
    order = np.argsort(slots, kind="stable")
    is_next = np.diff(slots[order]) == 0
    previous = units["previous_position"][order].astype(np.int64)[1:]
    return int(np.count_nonzero(is_next & (previous != positions[order][:-1])))


def reached_units(state: TimerState, units: WaitingUnits) -> ReachedUnits:
    """The units that the timer reaches from the wheel, slot by slot, once a start has entered the newest ones again."""
    order = np.argsort(units.slots, kind="stable")
    slots, positions, values = units.slots[order], units.positions[order], units.values[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = slots[1:] != slots[:-1]
    is_first = np.roll(is_last, 1)
    previous = values["previous_position"].astype(np.int64)
    oldest = state.log.files[0].start_offset if state.log.files else 0
    is_linked = np.where(is_first, (previous < oldest) | (previous >= units.end), previous == np.roll(positions, 1))
    heads = _heads(state, units, slots[is_last], positions[is_last])
    broken = np.unique(np.concatenate([slots[~is_linked], slots[is_last][heads != positions[is_last]]]))
    is_whole = ~np.isin(slots, broken) & timer_wheel.leads_on(values)
    columns = [np.stack([positions, values["physical_offset"].astype(np.int64), slots])[:, is_whole]]
    loops_at = None
    for slot, head in zip(broken.tolist(), heads[np.isin(slots[is_last], broken)].tolist(), strict=True):
        chain = _follow(state, head)
        columns.append(np.array([(*unit, slot) for unit in chain.units], np.int64).reshape(-1, 3).T)
        if chain.loops:
            loops_at = slot
            break
    found = np.concatenate(columns, axis=1)
    if loops_at is not None:
        found = found[:, found[2] < loops_at]
    own = np.clip(np.searchsorted(units.positions, found[0]), 0, max(0, len(units.positions) - 1))
    is_own = (units.positions[own] == found[0]) & (units.slots[own] == found[2])
    strays = int(np.count_nonzero(~is_own))
    return ReachedUnits(found[0], found[1], found[2], broken, strays, loops_at)


class _Chain(NamedTuple):
    """Position and message of each unit of a chain, and whether it comes back to one of them."""

    units: list[tuple[int, int]]
    loops: bool = False


def _follow(state: TimerState, position: int) -> _Chain:
    """The units from the newest one of a slot on (`TimerMessageStore#dequeue`), which are not checked in any way."""
    units: list[tuple[int, int]] = []
    seen = set[int]()
    while position >= 0 and (data := read_at(state.log.files, position, timer_wheel.UNIT_SIZE, state.reading)):
        if position in seen:
            return _Chain(units, loops=True)
        seen.add(position)
        unit = decode_units(timer_wheel.UNIT_DTYPE, data)
        if not len(unit):
            break
        if timer_wheel.leads_on(unit)[0]:
            units.append((position, int(unit["physical_offset"][0])))
        position = int(unit["previous_position"][0])
    return _Chain(units)


def _heads(
    state: TimerState, units: WaitingUnits, slots: NDArray[np.int64], newest: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where the chain of each slot begins: at its newest unit, where a start enters that again, else as in the wheel.

    -1 where the wheel has no such slot. `newest` are the positions of the newest units of the slots.
    """
    heads = np.full(len(slots), -1, np.int64)
    wheel, from_position = state.wheel, state.revised_from
    times = wheel["time"].astype(np.int64) * state.precision
    firsts, lasts = wheel["first_position"].astype(np.int64), wheel["last_position"].astype(np.int64)
    # A slot that leads after the log has it read again from the slot's first unit on (`checkPhyPos`).
    is_behind = (times >= state.read_until) & (lasts > units.end) & (firsts < units.end)
    is_behind &= ~np.isin(times, slots[newest >= from_position])
    if is_behind.any():
        first = int(firsts[is_behind].min())
        files = [file.start_offset for file in state.log.files]
        from_position = min(from_position, max((start for start in files if start <= first), default=min(files)))
    order = np.argsort(times, kind="stable")
    at = np.clip(np.searchsorted(times[order], slots), 0, max(0, len(times) - 1))
    if len(times):
        in_wheel = times[order][at] == slots
        heads[in_wheel] = lasts[order][at][in_wheel]
    is_entered = newest >= from_position
    heads[is_entered] = newest[is_entered]
    return heads


class _Logged:
    """The messages of the queue that units of the timer log name, and the times of their slots."""

    def __init__(self, queue: TimerQueue) -> None:
        self._order = np.argsort(queue.physical_offsets, kind="stable")
        self._sorted = queue.physical_offsets[self._order]
        self.rows = np.zeros(len(self._order), dtype=np.bool_)
        self.slots = np.zeros(len(self._order), dtype=np.int64)

    def add(self, targets: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Add the messages that units name, with their slots; of several units of a message the latest slot counts."""
        targets = targets.astype(np.int64)
        first = np.searchsorted(self._sorted, targets, side="left")
        last = np.searchsorted(self._sorted, targets, side="right") - 1  # two units may point to one message
        for places in (first, last):
            at = np.clip(places, 0, len(self._sorted) - 1)
            named = self._sorted[at] == targets
            rows = self._order[at[named]]
            self.rows[rows] = True
            np.maximum.at(self.slots, rows, slots[named])


def written_units(mapped: MappedFile, reading: ReadPolicy) -> Iterator[tuple[int, NDArray[np.void], bool]]:
    """Positions and units of pieces of one timer log file, and whether the log goes on after each piece."""
    with InputFile(mapped.path, reading) as file:
        for at in range(0, mapped.size, _PIECE):
            units = decode_units(timer_wheel.UNIT_DTYPE, file.read(at, _PIECE))
            written = timer_wheel.is_written(units)
            count = count_leading(written)
            is_whole = count == len(units)
            yield mapped.start_offset + at, units[:count], is_whole or bool(timer_wheel.is_blank(units)[count])
            if not is_whole:
                return
