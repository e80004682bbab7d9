"""A store with timers that all wait: of three slots, whose units lead to each other through several timer log files."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.formats import timer_wheel
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE, TIMER_CHECK_DTYPE, TimerCheck
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import build
from rmqtool.formats.message import MAGIC_CODE_BLANK
from tests.building import START_TIME
from tests.verify.small_store import FILE_SIZE, StoreBuilder, finish, write_topics

TIMERS = 20
OLD = 8  # timers of the last slot, whose units are in the oldest files of the timer log alone
PER_FILE = 3
LOG_FILE_SIZE = (PER_FILE + 1) * timer_wheel.UNIT_SIZE
WRITTEN = START_TIME + 1000
READ_UNTIL = START_TIME + 20_000
_LATEST_SLOT = START_TIME + 62_000


def due_of(number: int) -> int:
    """When a message is due, epoch ms."""
    return _LATEST_SLOT if number < OLD else START_TIME + 60_000 + 1000 * (number % 2)


def position_of(number: int) -> int:
    """The timer log position of a unit."""
    return number // PER_FILE * LOG_FILE_SIZE + number % PER_FILE * timer_wheel.UNIT_SIZE


@dataclass(frozen=True)
class TimerChains:
    """The store; its methods damage it."""

    store: Path

    def set_unit(self, number: int, field: str, value: int) -> None:
        """Change a field of the entry of a message."""
        position = position_of(number)
        path = self.store / "timerlog" / file_name(position // LOG_FILE_SIZE * LOG_FILE_SIZE)
        kind, place = timer_wheel.UNIT_DTYPE.fields[field][:2]  # type: ignore[index]
        _write(path, position % LOG_FILE_SIZE + place, value.to_bytes(kind.itemsize, "big", signed=True))

    def set_slot(self, number: int, field: str, value: int) -> None:
        """Change a field of the slot in which a message waits."""
        place = due_of(number) // 1000 % timer_wheel.WHEEL_SLOTS * timer_wheel.SLOT_SIZE
        kind, offset = timer_wheel.SLOT_DTYPE.fields[field][:2]  # type: ignore[index]
        _write(self.store / "timerwheel", place + offset, value.to_bytes(kind.itemsize, "big", signed=True))

    def set_check(self, field: str, value: int) -> None:
        """Change a field of `timercheck`."""
        place = TIMER_CHECK_DTYPE.fields[field][1]  # type: ignore[index]
        _write(self.store / "config" / "timercheck", place, struct.pack(">q", value))


def store_with_chains(store: Path, queue_offset: int = TIMERS, delivered: Sequence[int] = ()) -> TimerChains:
    """Log, queues and index, and the files of the timer as after a clean stop; only the `delivered` are due."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(TIMERS):
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": str(due_of(number)),
                      "UNIQ_KEY": f"timer-{number}"}  # fmt: skip
        builder.put("rmq_sys_wheel_timer", store_timestamp=START_TIME + number, properties=properties)
    offsets = [*builder.offsets]
    for number in delivered:
        builder.put("orders", store_timestamp=due_of(number) + 100, properties={"UNIQ_KEY": f"timer-{number}"})
    finish(builder.write(store))
    write_topics(store, ("orders", "rmq_sys_wheel_timer"))
    slots = _write_log(store, offsets)
    with (store / "timerwheel").open("wb") as wheel:
        wheel.truncate(timer_wheel.WHEEL_SIZE)
        for time, positions in slots.items():
            wheel.seek(time % timer_wheel.WHEEL_SLOTS * timer_wheel.SLOT_SIZE)
            content = {"time": time, "first_position": positions[0], "last_position": positions[-1],
                       "count": len(positions), "magic": 0}  # fmt: skip
            wheel.write(build(timer_wheel.TimerSlot, content))
    check = {"last_read_timestamp": READ_UNTIL, "last_timer_queue_offset": queue_offset,
             "last_timer_log_flush_position": position_of(TIMERS - 1) + timer_wheel.UNIT_SIZE,
             "master_timer_queue_offset": queue_offset, "state_version": 0, "version_timestamp": READ_UNTIL + 500,
             "version_counter": 3}  # fmt: skip
    data = build(TimerCheck, check)
    (store / "config" / "timercheck").write_bytes(data.ljust(CHECKPOINT_FILE_SIZE, b"\0"))
    return TimerChains(store)


def _write_log(store: Path, offsets: list[int]) -> dict[int, list[int]]:
    """Write the timer log for messages at these physical offsets; positions of the units of each slot."""
    files, slots = dict[int, bytearray](), dict[int, list[int]]()
    for number, offset in enumerate(offsets):
        position, due = position_of(number), due_of(number)
        positions = slots.setdefault(due // 1000, [])
        unit = {"size": timer_wheel.UNIT_SIZE, "previous_position": positions[-1] if positions else -1, "magic": 1,
                "write_timestamp": WRITTEN, "delay": due - WRITTEN, "physical_offset": offset, "message_size": 200,
                "topic_hash": 0, "reserved": 0}  # fmt: skip
        positions.append(position)
        base, place = position // LOG_FILE_SIZE * LOG_FILE_SIZE, position % LOG_FILE_SIZE
        data = files.setdefault(base, bytearray(LOG_FILE_SIZE))
        data[place : place + timer_wheel.UNIT_SIZE] = build(timer_wheel.TimerLogUnit, unit)
        blank = build(timer_wheel.TimerLogBlank, {"size": 52, "reserved": 0, "magic": MAGIC_CODE_BLANK})
        data[place + timer_wheel.UNIT_SIZE : place + timer_wheel.UNIT_SIZE + len(blank)] = blank
    (store / "timerlog").mkdir()
    for base, content in files.items():
        (store / "timerlog" / file_name(base)).write_bytes(content)
    return slots


def _write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
