"""Timer log and timercheck that fit a commit log which has lost its end: nothing is delivered again by that.

Real brokers of 5.1.4, 5.3.3 and 5.5.0 deliver what is sent later only then: see `rmqtool.broker.stale_timers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import read_all
from rmqtool.broker.stale_timers import stale_units
from rmqtool.broker.timer_start import TimerState, read_timer_queue, timer_queue_end, timer_state_of
from rmqtool.findings.finding import counted
from rmqtool.formats import timer_check, timer_log
from rmqtool.repair.change import Change, FileChange
from rmqtool.repair.places import name_in_store
from rmqtool.store.paths import TIMER_CHECK
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.transaction import Transaction

_UNIT, _AHEAD = "timer.unit", "timer.ahead"
IN_PLACE = frozenset({_UNIT, _AHEAD})
"""The codes of findings that are healed without taking the timer's files out."""

_OFFSETS = ("last_timer_queue_offset", "master_timer_queue_offset")


@dataclass(frozen=True)
class PassedOver:
    """Units at `positions` of a timer log file get a message size of 0: a broker passes them over."""

    name: str
    path: Path
    positions: NDArray[np.int64]
    size: int
    codes: frozenset[str] = frozenset({_UNIT})
    lost: str | None = None
    details: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """One line."""
        units = counted(len(self.positions), "unit")
        return f"{self.name}: the timer passes over {units} that lead to no timer message"

    def stage(self, transaction: Transaction) -> None:
        """Prepare a copy of the file."""
        file = transaction.file(self.name)
        file.copy(self.path)
        for position in self.positions.tolist():
            file.write(timer_log.NO_MESSAGE, position + timer_log.MESSAGE_SIZE_POSITION)
        transaction.put(self.name)


def mended_timer_files(snapshot: Snapshot, codes: frozenset[str]) -> Iterator[Change]:
    """The changes for findings about units that lead nowhere, and about an offset behind the end of the queue."""
    if not codes & IN_PLACE:
        return
    state = timer_state_of(snapshot)
    if _UNIT in codes:
        yield from _passed_over(snapshot, state)
    if _AHEAD in codes:
        yield from _right_offset(snapshot, state)


def _passed_over(snapshot: Snapshot, state: TimerState) -> Iterator[Change]:
    queue = read_timer_queue(state, snapshot.log.files, snapshot.database)
    for file, positions, _ in stale_units(state, queue, snapshot.log.files):
        name = name_in_store(snapshot.store, file.path)
        if name:
            yield PassedOver(name, file.path, positions, file.size)


def _right_offset(snapshot: Snapshot, state: TimerState) -> Iterator[Change]:
    path = snapshot.store.root / CONFIG / TIMER_CHECK
    name, end = name_in_store(snapshot.store, path), timer_queue_end(state, snapshot.database)
    if name is None or state.check is None:
        return
    content = bytearray(read_all(path, timer_check.FILE_SIZE))
    check = np.frombuffer(content, timer_check.CHECK_DTYPE, 1)  # a view, by which the content changes
    before = {field: int(check[field][0]) for field in _OFFSETS}
    for field in _OFFSETS:
        check[field] = min(before[field], end)
    details = tuple(f"{field}: {offset} becomes {end}" for field, offset in before.items() if offset > end)
    what = f"{name}: the timer goes on at the end of its queue, {end}"
    yield FileChange(name, bytes(content), frozenset({_AHEAD}), what, details=details)
