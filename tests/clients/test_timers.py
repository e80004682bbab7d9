"""Timer messages that a start delivers early, late, never or again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.clients.losses import Due
from tests.building import START_TIME
from tests.clients.due_times import timers_after_start
from tests.conftest import GoldenStore
from tests.verify.timer_chains import TIMERS, TimerChains, position_of, store_with_chains

LOSSES: dict[str, tuple[Callable[[TimerChains], None], Due]] = {
    "nothing": (lambda _: None, Due()),
    "a unit leads nowhere": (lambda s: s.set_unit(4, "previous_position", -1), Due(never=4)),
    "an old unit is of another slot": (lambda s: s.set_unit(9, "delay", 200_000), Due()),
    "a unit is of a later slot": (lambda s: s.set_unit(19, "delay", 200_000), Due(late=1, again=5)),
    "a chain comes back": (lambda s: s.set_unit(8, "previous_position", position_of(10)), Due(never=TIMERS)),
    "read ahead": (lambda s: s.set_check("last_read_timestamp", START_TIME + 61_000), Due(never=6)),
    "no check": (lambda s: (s.store / "config" / "timercheck").unlink(), Due(again=TIMERS)),
    "no log": (lambda s: shutil.rmtree(s.store / "timerlog"), Due(never=TIMERS)),
    "the queue is read again": (lambda s: s.set_check("master_timer_queue_offset", 5), Due(again=TIMERS - 5)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, tmp_path: Path) -> None:
    """Each damage costs what a real broker does not deliver as before."""
    damage, expected = LOSSES[name]
    chains = store_with_chains(tmp_path / "store")
    damage(chains)
    assert timers_after_start(chains.store, "5.3.3") == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.1.4-shop", "5.3.3-shop", "5.5.0-shop", "more/5.3.3-rocksdb"])
def test_nothing_is_lost_of_what_is_whole(name: str, golden_store: GoldenStore) -> None:
    """Real stores lose nothing."""
    assert not timers_after_start(golden_store(name), name.removeprefix("more/")[:5])
