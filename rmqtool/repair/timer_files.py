"""The timer's files, taken out together so that the broker reads its timer queue again (`TimerMessageStore#recover`).

A real 5.3.3 delivers all that waits once when wheel, log and check are gone together; without the log alone nothing,
without the check alone everything twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import list_directory, read_all
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.times import rfc3339
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.timer_deliveries import delivered, delivered_after, due_at, stale_units, unlogged_waiting
from rmqtool.broker.timer_start import (
    TimerState,
    WaitingUnits,
    next_timer_read,
    reached_units,
    read_timer_queue,
    timer_queue_end,
    timer_state_of,
    waiting_units,
)
from rmqtool.findings.finding import Finding, counted
from rmqtool.formats import timer_wheel
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE, TIMER_CHECK_DTYPE, TimerCheck
from rmqtool.formats.layout import build
from rmqtool.formats.timer_wheel import is_wheel_name
from rmqtool.repair.change import KEPT, Change, FileChange, Patched, TakenOut, codes_of, name_in_store, names_in_store
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.store.timer_wheel import newest_wheel

_UNIT, _AHEAD, _CHAIN, _READ_TIME = "timer.unit", "timer.ahead", "timer.chain", "timer.read-time"
_CODE_AGAIN = "timer.again"
IN_PLACE = frozenset({_UNIT, _AHEAD, _CHAIN, _READ_TIME})
"""The codes of findings that are healed without taking the timer's files out."""

_READ = "last_read_timestamp"
_OFFSETS = ("last_timer_queue_offset", "master_timer_queue_offset")


def mended_timer_files(snapshot: Snapshot, codes: frozenset[str]) -> Iterator[Change]:
    """The changes for findings about units that lead nowhere, and about an offset past the end of the queue."""
    if not codes & {*IN_PLACE, _CODE_AGAIN}:
        return
    state = timer_state_of(snapshot)
    if _UNIT in codes:
        yield from _passed_over(snapshot, state)
    if _CHAIN in codes:
        yield from _linked_again(snapshot, state)
    if codes & {_AHEAD, _READ_TIME, _CODE_AGAIN}:
        yield from _right_check(snapshot, state, codes)


def _passed_over(snapshot: Snapshot, state: TimerState) -> Iterator[Change]:
    queue = read_timer_queue(state, snapshot.log.files)
    for file, positions, _ in stale_units(state, queue, snapshot.log.files):
        name = name_in_store(snapshot.store, file.path)
        if name:
            what = f"{name}: the timer skips {counted(len(positions), 'entry')} that point to no timer message"
            places = positions + timer_wheel.MESSAGE_SIZE_POSITION  # a size of 0 is passed over
            writes = [(place, timer_wheel.NO_MESSAGE) for place in places.tolist()]
            yield Patched(codes=frozenset({_UNIT}), what=what, name=name, path=file.path, writes=writes)


def _linked_again(snapshot: Snapshot, state: TimerState) -> Iterator[Change]:
    """The units of each broken slot in the order of the timer log, and the slot that leads to the newest."""
    units = waiting_units(state)
    broken = reached_units(state, units).broken
    delays = _right_delays(snapshot, units, np.isin(units.slots, broken))
    slots_of, precision = units.slots.copy(), state.precision
    for row, (due, _) in delays.items():
        slots_of[row] = due // precision * precision
    links = {int(units.positions[row]) + timer_wheel.DELAY_POSITION: delay.to_bytes(4, "big", signed=True)
             for row, (_, delay) in delays.items()}  # fmt: skip
    slots = list[tuple[int, bytes]]()
    for slot in np.union1d(broken, slots_of[list(delays)]).tolist():
        positions = units.positions[slots_of == slot].tolist()
        for before, position in pairwise([-1, *positions]):
            links[position + timer_wheel.PREVIOUS_POSITION] = before.to_bytes(8, "big", signed=True)
        if positions:
            slots.append(_slot(slot // precision, positions))
    for file in state.log.files:
        own = [
            (at - file.start_offset, data) for at, data in links.items() if file.start_offset <= at < file.end_offset
        ]
        if own and (name := name_in_store(snapshot.store, file.path)):
            yield _relinked(name, file.path, own)
    wheel = newest_wheel(snapshot.store)
    if slots and (name := name_in_store(snapshot.store, wheel)):
        yield _relinked(name, wheel, slots)


def _relinked(name: str, path: Path, writes: Sequence[tuple[int, bytes]]) -> Patched:
    what = f"{name}: {counted(len(writes), 'link')} set, so that the timer finds all entries of its slots"
    return Patched(codes=frozenset({_CHAIN}), what=what, name=name, path=path, writes=writes)


def _slot(time: int, positions: Sequence[int]) -> tuple[int, bytes]:
    """Position and content of the slot of a wheel with units at these timer log positions."""
    content = {"time": time, "first_position": positions[0], "last_position": positions[-1],
               "count": len(positions), "magic": 0}  # fmt: skip
    place = time % timer_wheel.WHEEL_SLOTS * timer_wheel.SLOT_SIZE
    return place, build(timer_wheel.TimerSlot, content)


def _right_delays(snapshot: Snapshot, units: WaitingUnits, rows: NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Of units whose time is not that of their message: when it is due, epoch ms, and the delay to that, ms.

    A unit that puts its message off has a time of its own.
    """
    found = {}
    is_final = rows & timer_wheel.leads_on(units.values) & ((units.values["magic"] & timer_wheel.MAGIC_ROLL) == 0)
    times = timer_wheel.dues(units.values)
    for row in np.flatnonzero(is_final).tolist():
        due = due_at(snapshot.log.files, int(units.values["physical_offset"][row]))
        if due is not None and due != times[row]:
            delay = due - int(units.values["write_timestamp"][row])
            if 0 <= delay < 1 << 31:
                found[row] = due, delay
    return found


def _right_check(snapshot: Snapshot, state: TimerState, codes: frozenset[str]) -> Iterator[Change]:
    """Write into `timercheck` the end of the queue, and the time up to which a broker has read the wheel."""
    path = snapshot.store.root / CONFIG / TIMER_CHECK
    name = name_in_store(snapshot.store, path)
    if name is None or state.check is None:
        if name and state.check is None and _CODE_AGAIN in codes:
            yield from _new_check(snapshot, state, name, codes & {_CODE_AGAIN, _LOG})
        return
    content = bytearray(read_all(path, CHECKPOINT_FILE_SIZE))
    check = np.frombuffer(content, TIMER_CHECK_DTYPE, 1)  # a view, by which the content changes
    what, details = [], []
    if _AHEAD in codes:
        end = timer_queue_end(state)
        what.append(f"the timer continues at the end of its queue, {end}")
        for field in _OFFSETS:
            before = int(check[field][0])
            check[field] = min(before, end)
            details += [f"{field}: {before} becomes {end}"] * (before > end)
    if _CODE_AGAIN in codes and (end_of_log := reads_on(snapshot, state)) is not None:
        what.append(f"the timer continues in its queue at {end_of_log}, after the messages in the timer log")
        for field in _OFFSETS:
            details += [f"{field}: {int(check[field][0])} becomes {end_of_log}"]
            check[field] = end_of_log
    if _READ_TIME in codes and (time := _right_read_time(snapshot, state)) is not None:
        what.append(f"the timer reads the wheel from {rfc3339(time)} on")
        details.append(f"{_READ}: {int(check[_READ][0])} becomes {time}")
        check[_READ] = time
    if what:
        codes = codes & {_AHEAD, _READ_TIME, _CODE_AGAIN}
        what_all = f"{name}: {'; '.join(what)}"
        yield FileChange(codes=codes, what=what_all, details=tuple(details), name=name, content=bytes(content))


def _new_check(snapshot: Snapshot, state: TimerState, name: str, codes: frozenset[str]) -> Iterator[Change]:
    """A lost `timercheck`, where timer log and queue show how far each was read: the wheel is filled from the log."""
    queue = read_timer_queue(state, snapshot.log.files)
    if queue is None:
        return
    found = next_timer_read(state, queue)
    is_done = delivered(queue, found.slots, state.latest, SingleMessages(snapshot), snapshot.log.files)
    if is_done is None or found.logged_end is None or len(found.reached.broken):
        return
    waiting = found.slots[found.logged & ~is_done]
    after_deliveries = int(found.slots[found.logged & is_done].max(initial=0)) + state.precision
    newest = max(state.latest // state.precision * state.precision, after_deliveries)
    read_until = int(waiting.min(initial=newest))
    is_left_out = ~found.logged & ~is_done & (queue.queue_offsets < found.logged_end)
    if after_deliveries > read_until or is_left_out.any():
        return
    offsets = dict.fromkeys(_OFFSETS, found.logged_end)
    content = {_READ: read_until, "last_timer_log_flush_position": 0, **offsets, "state_version": 0,
               "version_timestamp": state.latest, "version_counter": 1}  # fmt: skip
    what = f"{name}: written again; the timer continues in its queue at {found.logged_end}, and reads the wheel from "
    data = build(TimerCheck, content).ljust(CHECKPOINT_FILE_SIZE, b"\0")
    yield FileChange(codes=codes, what=f"{what}{rfc3339(read_until)} on", name=name, content=data)


def reads_on(snapshot: Snapshot, state: TimerState) -> int | None:
    """The queue offset after the newest message of the timer log, where all before it were delivered or are in it."""
    queue = read_timer_queue(state, snapshot.log.files) if state.check else None
    if queue is None:
        return None
    found = next_timer_read(state, queue)
    if found.logged_end is None or found.begin >= found.logged_end:
        return None
    rows = (queue.queue_offsets < found.logged_end) & ~found.logged
    is_whole = not unlogged_waiting(state, queue, rows, snapshot.log.files) and not len(found.reached.broken)
    return found.logged_end if is_whole else None


def _right_read_time(snapshot: Snapshot, state: TimerState) -> int | None:
    """The slot from which the wheel has to be read: that in which `timercheck` was changed, or behind deliveries."""
    if state.is_ahead and state.ran_until is not None:
        return state.ran_until - 2 * state.precision  # it is up to two slots later than what was read
    queue = read_timer_queue(state, snapshot.log.files)
    if queue is None:
        return None
    again = delivered_after(state, queue, next_timer_read(state, queue), SingleMessages(snapshot), until_waiting=True)
    return int(again[-1]) + state.precision if len(again) else None


_LOST, _AGAIN, _LOG, _WHEEL = "timer.lost", "timer.again", "timer.log", "timer.wheel-size"
_READ_AGAIN = "the next start reads its queue from the beginning and delivers waiting messages"
_DELIVERED = "which timer messages were delivered: those still in the log are delivered a second time"
_TWICE = (
    "nothing; but timer messages that were delivered, and are still in the log, are delivered a second time, and "
    "those that the timer has postponed (timerRollWindowSlot, two days) once for each time"
)


def lost_by_rebuilt_queue(snapshot: Snapshot, findings: Sequence[Finding]) -> list[str]:
    """What a rebuild of the missing timer queue does not bring back where the timer's other files are gone, too."""
    root = snapshot.store.root
    is_rebuilt = any(each.topic == TIMER_TOPIC and each.code == "consumequeue.missing-queue" for each in findings)
    is_known = (root / CONFIG / TIMER_CHECK).exists() or list_mapped_files(
        root / TIMER_LOG, scope=skip_wrong_type
    ).files
    return [_DELIVERED] if is_rebuilt and not is_known else []


def timer_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Change]:
    """The files that are taken out, or fixed; of a wheel of another size only the wheel, which the log fills again."""
    codes = codes_of(findings)
    taken = codes & {_LOST, _AGAIN, _LOG, _WHEEL}
    is_log_read = all(each.details.get("problem") == "short" for each in findings if each.code == _LOG)  # of timercheck
    if {_AGAIN} <= taken <= {_AGAIN, _LOG} and is_log_read:
        changes = [*mended_timer_files(snapshot, codes)]
        if any(_AGAIN in change.codes for change in changes):
            return changes
    if taken & {_LOST, _AGAIN, _LOG} and not _only_strays(snapshot, taken, findings):
        return _taken_out_together(snapshot, codes & {*taken, *IN_PLACE})
    return [*_taken_out_alone(snapshot, taken), *mended_timer_files(snapshot, codes)]


def _only_strays(snapshot: Snapshot, codes: frozenset[str], findings: Sequence[Finding]) -> bool:
    """Whether the findings are only about entries of timerlog/ that are not timer log files."""
    files = {finding.file for finding in findings if finding.code == _LOG}
    return codes == {_LOG} and files <= {snapshot.store.relative(path) for path in _strays(snapshot)}


def _strays(snapshot: Snapshot) -> list[Path]:
    return [stray.path for stray in list_mapped_files(snapshot.store.root / TIMER_LOG, scope=skip_wrong_type).strays]


def _wheels(root: Path) -> list[Path]:
    return [root / entry.name for entry in list_directory(root) if is_wheel_name(entry.name)]


def _taken_out_together(snapshot: Snapshot, codes: frozenset[str]) -> list[Change]:
    root = snapshot.store.root
    others = (path for path in (root / TIMER_LOG, root / CONFIG / TIMER_CHECK) if path.exists())
    names = names_in_store(snapshot.store, [*_wheels(root), *others])
    what = f"the timer's files together: {KEPT}; {_READ_AGAIN}"
    return [TakenOut(codes=codes, what=what, lost=_TWICE, details=names)] if names else []


def _taken_out_alone(snapshot: Snapshot, codes: frozenset[str]) -> list[Change]:
    """The wheel, or what is no file of the timer log: nothing is delivered again."""
    if _WHEEL in codes:
        names = names_in_store(snapshot.store, _wheels(snapshot.store.root))
        what = f"the timer wheel: {KEPT}; a start creates a new one and fills it from the timer log"
    else:
        names = names_in_store(snapshot.store, _strays(snapshot) if _LOG in codes else [])
        what = f"{len(names)} entries of {TIMER_LOG}/ that are not timer log files: {KEPT}"
    return [TakenOut(codes=codes, what=what, details=names)] if names else []
