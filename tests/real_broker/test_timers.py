"""Timers of a commit log that has lost its end: a real broker delivers what a repair leaves, and what is sent then."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from rmqtool.formats.consume_queue import UNIT_DTYPE, is_written
from tests.commands.running import rmqtool
from tests.real_broker.served import Served, served, wait_for
from tests.verify.timer_store import cut_log_before
from tests.verify.verifying import codes_of, verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "orders"
SENT, KEPT = 6, 3  # timers, and those of them that the log still has
PLAIN = 8
NEW = 4
DUE_MS = 20_000  # for a stop, a repair and a start
AFTER_MS = 2000


@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_the_log_has_lost_its_end(version: str, tmp_path: Path) -> None:
    """Without the repair all stand still at the plain message in place of a timer message that is lost, once it is due.

    5.1.4 also loses the first timers that are sent then.
    """
    root = tmp_path / "store"
    with served(version, root, {"mappedFileSizeConsumeQueue": "2000"}) as broker:
        due = send(broker, SENT, DUE_MS)
        time.sleep(2)  # until the timer has read them
        broker.stop()
        cut_log_before(root, KEPT)
        assert {"timer.unit", "timer.ahead"} <= codes_of(verify(root, version=version))
        rmqtool("repair", root, "--yes", "--broker-version", version)
        assert not {code for code in codes_of(verify(root, version=version)) if code.startswith("timer.")}

        broker.start()
        send(broker, PLAIN, -1000)  # at once
        send(broker, NEW, max(0, int((due - time.time()) * 1000)) + AFTER_MS)
        wait_for("timers to be delivered", lambda: delivered(root) >= KEPT + PLAIN + NEW)
        broker.stop()
    assert delivered(root) == KEPT + PLAIN + NEW


def send(broker: Served, count: int, delay_ms: int) -> float:
    """Send timers; when they are due, seconds since the epoch."""
    broker.declare(TOPIC, 1)
    broker.send_timers(TOPIC, count, delay_ms)
    return time.time() + delay_ms / 1000


def delivered(root: Path) -> int:
    """Messages in the queue of the topic."""
    files = (root / "consumequeue" / TOPIC / "0").iterdir()
    return sum(int(np.count_nonzero(is_written(np.frombuffer(file.read_bytes(), UNIT_DTYPE)))) for file in files)
