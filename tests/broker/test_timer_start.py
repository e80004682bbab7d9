"""What a start of the timer reaches, by its log: rows of the queue and the times of their slots."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rmqtool.base.files import UNLIMITED
from rmqtool.broker.timer_start import TimerQueue, next_timer_read, timer_state
from rmqtool.formats.layout import decode_units
from rmqtool.formats.timer_wheel import UNIT_DTYPE, is_written
from rmqtool.store.store import open_store
from tests.verify.timer_store import TIMERS, due_of, store_with_timers


def test_slots(tmp_path: Path) -> None:
    """Each message that the log names has the time of its slot, also one that two units of the queue point to."""
    state = timer_state(open_store(store_with_timers(tmp_path)), UNLIMITED, 0, 1 << 40)
    offsets = sorted(_targets(tmp_path))
    twice = np.array([*offsets, offsets[4], 1 << 40], dtype=np.int64)
    found = next_timer_read(state, TimerQueue(np.arange(len(twice)), twice, np.full(len(twice), 300)))
    dues = [due_of(number) // 1000 * 1000 for number in (*range(TIMERS), 4)]
    assert found.slots.tolist() == [*dues, 0]
    assert found.logged.tolist() == [True] * (TIMERS + 1) + [False]


def _targets(store: Path) -> list[int]:
    """Physical offsets that the timer log names."""
    units = [decode_units(UNIT_DTYPE, path.read_bytes()) for path in sorted((store / "timerlog").iterdir())]
    return [int(offset) for each in units for offset in each[is_written(each)]["physical_offset"]]
