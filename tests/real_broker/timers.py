"""Timers of a broker under test: sent, read by its timer, delivered."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from rmqtool.formats import timer_wheel
from rmqtool.formats.consume_queue import UNIT_DTYPE, is_written
from rmqtool.formats.layout import decode_units
from tests.real_broker.served import Served

TOPIC = "orders"
_LOGGED = 20  # units that are counted at most


def send(broker: Served, count: int, delay_ms: int, topic: str = TOPIC) -> float:
    """Send timers; when they are due, seconds since the epoch."""
    broker.declare(topic, 1)
    broker.send_timers(topic, count, delay_ms)
    return time.time() + delay_ms / 1000


def delivered(root: Path, topic: str = TOPIC) -> int:
    """Messages in the queue of a topic."""
    files = (root / "consumequeue" / topic / "0").glob("*")
    return sum(int(np.count_nonzero(is_written(np.frombuffer(file.read_bytes(), UNIT_DTYPE)))) for file in files)


def logged(root: Path, most: int = _LOGGED) -> int:
    """Units of the timer log, whose first file holds all of them."""
    files = sorted((root / "timerlog").glob("*"))
    if not files:
        return 0
    with files[0].open("rb") as file:
        units = decode_units(timer_wheel.UNIT_DTYPE, file.read(most * timer_wheel.UNIT_SIZE))
    return int(np.count_nonzero(timer_wheel.is_written(units)))
