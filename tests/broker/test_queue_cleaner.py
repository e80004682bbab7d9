"""Many runs over many queues come to what each run by itself does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.broker.cleaner import QueueAfterRun, QueueCleaner, first_state, follow
from rmqtool.formats.consume_queue import UNIT_SIZE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, NEWEST, OLDEST, Version
from rmqtool.store.consume_queues import list_queues
from rmqtool.store.store import open_store

UNITS = 3  # in a file


def random_queues(root: Path, chance: random.Random) -> None:
    """Queues of ascending offsets; some have a unit in a file that was never written."""
    for number in range(6):
        folder = root / "consumequeue" / "orders" / str(number)
        folder.mkdir(parents=True)
        offsets = sorted(chance.sample(range(10, 1000, 10), chance.randrange(1, 14)))
        for first in range(0, len(offsets), UNITS):
            data = b"".join(build_unit(offset, 10, 0) for offset in offsets[first : first + UNITS])
            (folder / file_name(first * UNIT_SIZE)).write_bytes(data.ljust(UNITS * UNIT_SIZE, b"\0"))


def states_of(root: Path, version: Version, log_min_offset: int = 0) -> list[QueueAfterRun]:
    return [first_state(queue, log_min_offset, version) for queue in list_queues(open_store(root))]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("version", [OLDEST, EXPIRED_QUEUE_MIN_IS_MAX])
def test_runs_are_as_one_by_one(tmp_path: Path, seed: int, version: Version) -> None:
    """Files of each run and states after it, with minimums on units, between them and after all."""
    chance = random.Random(seed)
    random_queues(tmp_path, chance)
    expected = states_of(tmp_path, version)
    cleaner = QueueCleaner(states_of(tmp_path, version), version)
    for minimum in sorted(chance.sample(range(5, 1100, 5), 5)):
        files = []
        for number, state in enumerate(expected):
            gone, expected[number] = follow(state, minimum, version)
            files += [(state.queue.queue_id, file.start_offset) for file in gone]
        found = cleaner.clean(minimum)
        assert [(queue.queue_id, file.start_offset) for queue, file in found] == files
        assert cleaner.states() == expected


def test_without_a_run_nothing_moves(tmp_path: Path) -> None:
    random_queues(tmp_path, random.Random(1))
    states = states_of(tmp_path, NEWEST)
    assert QueueCleaner(states, NEWEST).states() == states
