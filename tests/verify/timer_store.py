"""A store with timer messages: one is delivered, the others wait, in a timer log of three files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rmqtool.formats import timer_wheel
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE, TimerCheck
from rmqtool.formats.consume_queue import UNIT_DTYPE
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import build
from rmqtool.formats.message import MAGIC_CODE_BLANK
from tests.building import START_TIME
from tests.verify.small_store import FILE_SIZE, StoreBuilder, finish, write_topics

TIMERS = 9
PUT_OFF = 2
LOG_FILE_SIZE = 4 * timer_wheel.UNIT_SIZE  # three entries and a blank
WRITTEN = START_TIME + 1000  # by the broker's clock, ms
READ_UNTIL = START_TIME + 20_000  # the first message was due before


def due_of(number: int) -> int:
    """When a message is due, epoch ms."""
    return START_TIME + 10_000 + 60_000 * number


def size_of(store: Path, number: int) -> int:
    """The size of a timer message, bytes."""
    data = b"".join(path.read_bytes() for path in sorted((store / "consumequeue/rmq_sys_wheel_timer/0").iterdir()))
    return int.from_bytes(data[20 * number + 8 :][:4], "big")


def store_with_timers(store: Path, large: int = TIMERS) -> Path:
    """Log, queues and index, and the files of the timer as after a clean stop; one message may be a `large` one."""
    timers = [{"TIMER_OUT_MS": str(due_of(number))} for number in range(TIMERS)]
    for timer in timers[large : large + 1]:
        timer["KEYS"] = "k" * 200
    return _store_with(timers, store)


def store_with_timers_put_off(store: Path) -> Path:
    """After the message that was delivered, `PUT_OFF` messages of the longest delays, each stored again and again."""
    rounds = (divmod(number, PUT_OFF) for number in range(TIMERS - 1))
    copies = ({"UNIQ_KEY": f"message-{which}", "TIMER_OUT_MS": str(due_of(TIMERS + which)),
               **({"TIMER_ROLL_TIMES": str(put_off)} if put_off else {})} for put_off, which in rounds)  # fmt: skip
    return _store_with([{"TIMER_OUT_MS": str(due_of(0))}, *copies], store)


def _store_with(timers: Sequence[dict[str, str]], store: Path) -> Path:
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number, properties in enumerate(timers):
        builder.put(
            "rmq_sys_wheel_timer",
            store_timestamp=START_TIME + number,
            properties={"REAL_TOPIC": "orders", "REAL_QID": "0", **properties},
        )
    finish(builder.write(store), geometry=None)
    write_topics(store, ("orders", "rmq_sys_wheel_timer"))
    write_timer(store, builder.offsets)
    return store


def write_timer(store: Path, offsets: list[int]) -> None:
    """The timer's files for messages at these physical offsets."""
    (store / "timerlog").mkdir()
    for number, offset in enumerate(offsets):
        _write_unit(store, _position_of(number), offset, due_of(number) - WRITTEN)
    write_wheel(store, len(offsets))
    write_check(store, queue_offset=len(offsets))


def write_wheel(store: Path, count: int = TIMERS, precision: int = timer_wheel.DEFAULT_PRECISION_MS) -> None:
    """The wheel of so many messages, with slots of `precision` ms."""
    with (store / "timerwheel").open("wb") as wheel:
        wheel.truncate(timer_wheel.WHEEL_SIZE)
        for number in range(count):
            slot, position = due_of(number) // precision, _position_of(number)
            wheel.seek(slot % timer_wheel.WHEEL_SLOTS * timer_wheel.SLOT_SIZE)
            values = {"time": slot, "first_position": position, "last_position": position, "count": 1, "magic": 0}
            wheel.write(build(timer_wheel.TimerSlot, values))


def _position_of(number: int) -> int:
    """The timer log position of a unit."""
    return number // 3 * LOG_FILE_SIZE + number % 3 * timer_wheel.UNIT_SIZE


def _write_unit(store: Path, position: int, offset: int, delay: int) -> None:
    base = position // LOG_FILE_SIZE * LOG_FILE_SIZE
    path = store / "timerlog" / file_name(base)
    values = {"size": timer_wheel.UNIT_SIZE, "previous_position": -1, "magic": 1, "write_timestamp": WRITTEN,
              "delay": delay, "physical_offset": offset, "message_size": 1, "topic_hash": 0, "reserved": 0}  # fmt: skip
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(LOG_FILE_SIZE)
        file.seek(position - base)
        file.write(build(timer_wheel.TimerLogUnit, values))
        file.write(build(timer_wheel.TimerLogBlank, {"size": 52, "reserved": 0, "magic": MAGIC_CODE_BLANK}))


def write_check(store: Path, *, queue_offset: int, read_until: int = READ_UNTIL) -> None:
    """The file `timercheck`: all of the timer log is flushed."""
    flushed = (TIMERS - 1) // 3 * LOG_FILE_SIZE + ((TIMERS - 1) % 3 + 1) * timer_wheel.UNIT_SIZE
    values = {"last_read_timestamp": read_until, "last_timer_log_flush_position": flushed,
              "last_timer_queue_offset": queue_offset, "master_timer_queue_offset": queue_offset,
              "state_version": 0, "version_timestamp": 0, "version_counter": 0}  # fmt: skip
    data = build(TimerCheck, values)
    (store / "config" / "timercheck").write_bytes(data.ljust(CHECKPOINT_FILE_SIZE, b"\0"))


def cut_log_before(store: Path, number: int) -> None:
    """The commit log has lost this timer message and all after it; the other files are newer."""
    [log] = (store / "commitlog").iterdir()
    queue = sorted((store / "consumequeue" / "rmq_sys_wheel_timer" / "0").iterdir())
    units = np.concatenate([np.frombuffer(file.read_bytes(), UNIT_DTYPE) for file in queue])
    size = log.stat().st_size
    os.truncate(log, int(units["physical_offset"][number]))
    os.truncate(log, size)
