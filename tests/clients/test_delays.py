"""Delayed messages that a start delivers early, late, never or again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.clients.losses import Due
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from tests.clients.due_times import delays_after_start
from tests.conftest import GoldenStore
from tests.copies import copied

LEVEL_17 = Path("consumequeue/SCHEDULE_TOPIC_XXXX/16") / ("0" * 20)  # of three messages, not due yet
_TAGS_CODE = 12  # where it stands in a unit


def delays(levels: str) -> BrokerConf:
    """A broker.conf with these levels up to the 16th, and those after it."""
    return BrokerConf({"messageDelayLevel": f"1s 1s 1s 1s {'9m ' * 12}{levels}".strip()})


def set_offsets(**levels: int) -> Callable[[Path], None]:
    """Set the offsets of levels in delayOffset.json and its .bak."""

    def change(store: Path) -> None:
        for path in (store / "config").glob("delayOffset.json*"):
            content = json.loads(re.sub(r"([{,]\s*)(\d+)(?=\s*:)", r'\1"\2"', path.read_text()))
            content["offsetTable"].update({level[1:]: offset for level, offset in levels.items()})
            path.write_text(json.dumps(content))

    return change


def without_offsets(store: Path) -> None:
    for path in (store / "config").glob("delayOffset.json*"):
        path.unlink()


def write(position: int, data: bytes) -> Callable[[Path], None]:
    """Write into the queue of level 17."""

    def change(store: Path) -> None:
        with (store / LEVEL_17).open("r+b") as file:
            file.seek(position)
            file.write(data)

    return change


def moved(store: Path) -> None:
    """The second message of level 17 would come a minute early."""
    data = (store / LEVEL_17).read_bytes()
    due = int.from_bytes(data[UNIT_SIZE + _TAGS_CODE :][:8], "big") - 60_000
    write(UNIT_SIZE + _TAGS_CODE, due.to_bytes(8, "big"))(store)


LOSSES: dict[str, tuple[Callable[[Path], object], Due]] = {
    "no offsets": (without_offsets, Due(again=10)),
    "offsets of the beginning": (set_offsets(l1=0, l2=0, l3=0, l4=0), Due(again=10)),
    "an offset ahead": (set_offsets(l17=2), Due(never=2)),
    "an offset past the end": (set_offsets(l17=9), Due(never=3)),
    "a queue is gone": (lambda store: shutil.rmtree((store / LEVEL_17).parent), Due(never=3)),
    "a unit is gone": (write(UNIT_SIZE, bytes(UNIT_SIZE)), Due(never=2)),
    "a time is zero": (write(UNIT_SIZE + _TAGS_CODE, bytes(8)), Due(early=1)),
    "a time is another": (moved, Due(early=1)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, tmp_path: Path, unpacked: GoldenStore) -> None:
    """Each damage costs what a real broker does not deliver as before."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    LOSSES[name][0](store)
    assert delays_after_start(store, "4.9.7", checks_times=True) == LOSSES[name][1]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [("30m 2h", Due()), ("3h 6h", Due()), ("1m 2m", Due(early=5)), ("30m", Due(never=2)), ("", Due(never=5))],
)
@pytest.mark.parametrize("name", ["5.3.3-shop", pytest.param("more/5.3.3-rocksdb", marks=pytest.mark.slow)])
def test_other_levels(levels: str, expected: Due, name: str, golden_store: GoldenStore) -> None:
    """A broker keeps to the times in the queue, at most the level's delay from now; levels that are gone never come."""
    assert delays_after_start(golden_store(name), "5.3.3", delays(levels)) == expected


def test_what_is_overdue_is_not_early(golden_store: GoldenStore) -> None:
    """It comes at once in any case."""
    conf = delays("1m 2m")
    assert not delays_after_start(golden_store("5.3.3-shop"), "5.3.3", conf, later=3 * 3_600_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-shop", "4.7.1-shop", "5.1.4-shop", "5.5.0-shop", "more/5.5.0-rocksdb-twice"])
def test_nothing_is_lost_of_what_is_whole(name: str, golden_store: GoldenStore) -> None:
    """Real stores lose nothing."""
    assert not delays_after_start(golden_store(name), name.removeprefix("more/")[:5])
