"""The timer without units of messages that go: its log ends earlier, and the slots of the wheel lead to what is left.

A unit that leads past the end of the log is tried again for ever. What was delivered after the end is delivered again:
the wheel is read again from the slot of the first of those messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqtool.base.files import UNLIMITED, list_directory, read_all
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.broker.timer_start import TimerState, timer_state_of
from rmqtool.cut.queues import required_name
from rmqtool.cut.tail import Tail
from rmqtool.findings.finding import counted
from rmqtool.formats import timer_wheel
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE, TIMER_CHECK_DTYPE
from rmqtool.formats.layout import decode_units
from rmqtool.repair.change import Change, FileChange, Patched, Resized, TakenOut
from rmqtool.store.paths import TIMER_CHECK
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.timer_wheel import WHEEL, newest_wheel, written_unit

_READ, _FLUSHED = "last_read_timestamp", "last_timer_log_flush_position"
_OFFSETS = ("last_timer_queue_offset", "master_timer_queue_offset")


@dataclass(frozen=True)
class _Slot:
    """A slot of the wheel: its newest unit that is left, -1 without one, and by how much its count changes."""

    last: int
    difference: int


def timer_changes(snapshot: Snapshot, offset: int, queue_end: int | None, tail: Tail) -> Iterator[Change]:
    """The changes of files for a cut at an offset; the timer goes on in its queue at `queue_end`, None where it is."""
    store = snapshot.store
    state = timer_state_of(snapshot)
    position = _first_gone(state, offset)
    if position is not None:
        yield from _log_changes(store, state, position)
        yield from _wheel_changes(store, state, position)
    if state.check is not None and tail.records:
        yield from _check_change(store, state, position, queue_end, tail)


def _first_gone(state: TimerState, offset: int) -> int | None:
    """The position of the first unit of a message at an offset or after it; None without one."""
    for file in state.log.files:
        units = decode_units(timer_wheel.UNIT_DTYPE, read_all(file.path, file.size))
        rows = np.flatnonzero(timer_wheel.is_written(units) & (units["physical_offset"] >= offset))
        if len(rows):
            return file.start_offset + int(rows[0]) * timer_wheel.UNIT_SIZE
    return None


def _log_changes(store: Store, state: TimerState, position: int) -> Iterator[Change]:
    for file in state.log.files:
        name = required_name(store, file.path)
        if file.start_offset >= position:
            yield TakenOut(codes=frozenset(), what=f"{name}: no entry is left", details=(name,))
        elif position < file.end_offset:
            yield Resized(codes=frozenset(), what=f"{name}: zeros from {position} on", name=name, path=file.path,
                          kept=position - file.start_offset, new_size=file.size)  # fmt: skip


def _wheel_changes(store: Store, state: TimerState, position: int) -> Iterator[Change]:
    """The wheel with slots that lead to units that are left, under its plain name; snapshots of it go."""
    path, writes = newest_wheel(store), list[tuple[int, bytes]]()
    for slot in state.wheel[state.wheel["last_position"] >= position]:
        left = _left_of(state, int(slot["last_position"]), position)
        new = np.zeros(1, timer_wheel.SLOT_DTYPE)
        if left.last >= 0 and int(slot["first_position"]) < position:
            new[:] = slot
            new["last_position"], new["count"] = left.last, int(slot["count"]) + left.difference
        writes.append((int(slot["time"]) % timer_wheel.WHEEL_SLOTS * timer_wheel.SLOT_SIZE, new.tobytes()))
    others = [entry.name for entry in list_directory(store.root) if timer_wheel.is_wheel_name(entry.name)]
    if not others:
        return
    what = f"{WHEEL}: {counted(len(writes), 'slot')} set"
    name = required_name(store, store.root / WHEEL)
    yield Patched(codes=frozenset(), what=what, name=name, path=path, writes=writes)
    gone = tuple(required_name(store, store.root / each) for each in others if each != WHEEL)
    if gone:
        yield TakenOut(codes=frozenset(), what="snapshots of the wheel", details=gone)


def _left_of(state: TimerState, unit: int, position: int) -> _Slot:
    """Follow a slot's chain back to the first unit before a position."""
    difference = 0
    while unit >= position:
        file = file_at(state.log.files, unit)
        found = _unit(file, unit) if file else None
        if found is None:
            return _Slot(-1, difference)
        difference += 1 if int(found["magic"]) & timer_wheel.MAGIC_DELETE else -1
        before = int(found["previous_position"])
        unit = before if before < unit else -1
    return _Slot(unit, difference)


def _unit(file: MappedFile, position: int) -> np.void | None:
    units = written_unit(file, position, UNLIMITED)
    return units[0] if len(units) else None


def _check_change(
    store: Store, state: TimerState, position: int | None, queue_end: int | None, tail: Tail
) -> Iterator[Change]:
    path = store.root / CONFIG / TIMER_CHECK
    content = bytearray(read_all(path, CHECKPOINT_FILE_SIZE))
    check = np.frombuffer(content, TIMER_CHECK_DTYPE, 1)  # a view, by which the content changes
    before = bytes(content)
    for field in _OFFSETS if queue_end is not None else ():
        check[field] = min(int(check[field][0]), queue_end or 0)
    if position is not None:
        check[_FLUSHED] = min(int(check[_FLUSHED][0]), position)
    check[_READ] = min(int(check[_READ][0]), tail.delivered_timer // state.precision * state.precision)
    if bytes(content) != before:
        name = required_name(store, path)
        yield FileChange(codes=frozenset(), what=f"{name}: nothing after the end", name=name, content=bytes(content))
