"""A copy of a whole broker that clients use: consumers go on where they were, and what waits for its time comes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.real_broker.harness import Harness
from tests.real_broker.replays import QUEUES, TOPIC, write_source
from tests.real_broker.served import NAME_SERVER, Served, served

pytestmark = [pytest.mark.broker, pytest.mark.rare]

_READ, _BEFORE, _MEANWHILE = 200, 100, 3000  # messages
_TIMERS, _DELAY_MS = 40, 60_000


def replayed(broker: Served, source: Path, scratch: Path) -> None:
    found = broker.replay(source, "--send", "--yes", "--journal", scratch / f"{source.name}.journal")
    assert found.returncode == 0, found.stderr


def test_consumers_and_timers(harness: Callable[[str], Harness], tmp_path: Path) -> None:
    """What was sent before is there; a group gets what it had not read, and no timer is lost."""
    harness("5.5.0")
    chance = random.Random(5)
    read = write_source(tmp_path / "read", _READ, chance)
    before = write_source(tmp_path / "before", _BEFORE, chance, first=_READ)
    meanwhile = write_source(tmp_path / "meanwhile", _MEANWHILE, chance, first=_READ + _BEFORE)
    root, copy = tmp_path / "store", tmp_path / "copy"
    with served("5.5.0", root) as broker:
        broker.declare(TOPIC, QUEUES)
        broker.declare("alarms", 1)
        replayed(broker, read, tmp_path)
        had = broker.consume(TOPIC, _READ, "billing")
        replayed(broker, before, tmp_path)
        broker.send_timers("alarms", _TIMERS, _DELAY_MS)
        journal = tmp_path / "meanwhile.journal"
        words = ("replay", meanwhile, "--nameserver", NAME_SERVER, "--send", "--yes", "--journal", journal)
        with subprocess.Popen(broker.command(*words), stdout=subprocess.DEVNULL) as sending:
            done = rmqtool("copy", root, "--output", copy, "--json")
            assert done.status == 0, done.out
            sending.wait()
    assert done.document["result"]["proven"] is True
    with served("5.5.0", copy) as broker:
        rest = broker.consume(TOPIC, _BEFORE, "billing")
        everything = broker.consume(TOPIC, _READ + _BEFORE)
        alarms = broker.consume("alarms", _TIMERS)
    places = [{(each["queue_id"], each["queue_offset"]) for each in found} for found in (had, rest, everything)]
    assert len(places[0]) == _READ
    assert places[0] | places[1] == places[2]
    assert len(everything) >= _READ + _BEFORE
    assert len({each["message_id"] for each in alarms}) == _TIMERS
