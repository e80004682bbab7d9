"""Chains of the timer wheel and the time up to which it was read: what they leave out is found, and repaired."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.layout import decode_units
from rmqtool.formats.timer_wheel import UNIT_DTYPE, dues, is_written
from rmqtool.rules.broker_conf import BrokerConf
from tests.building import START_TIME
from tests.clients.due_times import timers_after_start
from tests.commands.running import rmqtool
from tests.verify.timer_chains import OLD, TIMERS, TimerChains, due_of, position_of, store_with_chains
from tests.verify.verifying import verify

CHAIN, READ_TIME, LOST = "timer.chain", "timer.read-time", "timer.lost"
Damage = Callable[[TimerChains], None]

DAMAGES: dict[str, tuple[Damage, dict[str, int]]] = {
    "a unit leads nowhere": (lambda s: s.set_unit(4, "previous_position", -1), {CHAIN: 4}),
    "a unit of the newest files leads nowhere": (lambda s: s.set_unit(18, "previous_position", -1), {CHAIN: 5}),
    "a chain leads into another slot": (lambda s: s.set_unit(4, "previous_position", position_of(19)), {CHAIN: 4}),
    "a chain comes back": (lambda s: s.set_unit(8, "previous_position", position_of(10)), {CHAIN: TIMERS}),
    "a slot is zeroed": (lambda s: s.set_slot(0, "time", 0), {CHAIN: OLD}),
    "a slot points to an older unit": (lambda s: s.set_slot(0, "last_position", position_of(4)), {CHAIN: 3}),
    "an old unit is of another slot": (lambda s: s.set_unit(9, "delay", 200_000), {CHAIN: 1}),
    "a unit is of another slot": (lambda s: s.set_unit(19, "delay", 200_000), {CHAIN: 1}),
    "read ahead": (lambda s: s.set_check("last_read_timestamp", START_TIME + 200_000), {READ_TIME: TIMERS}),
    "read a little ahead": (lambda s: s.set_check("last_read_timestamp", START_TIME + 61_000), {READ_TIME: 6}),
}
AGAIN: dict[str, tuple[Damage, dict[str, int]]] = {
    "the master's offset is older": (lambda s: s.set_check("master_timer_queue_offset", 5), {"timer.again": 15}),
}
HARMLESS: dict[str, Damage] = {
    "nothing": lambda _: None,
    "a slot of the newest files is zeroed": lambda s: s.set_slot(19, "time", 0),
    "a slot has another first unit": lambda s: s.set_slot(0, "first_position", position_of(4)),
    "a slot has another count": lambda s: s.set_slot(0, "count", 77),
    "read less than it was": lambda s: s.set_check("last_read_timestamp", START_TIME - 200_000),
}


def counts(store: Path, conf: BrokerConf | None = None) -> dict[str, int]:
    """How many messages each finding about the timer is about; that a start today leaves all out is known."""
    found = verify(store, version="5.3.3", conf=conf).findings
    return {each.code: each.count for each in found if each.code.startswith("timer.") and each.code != "timer.aged"}


def dues_in(store: Path) -> list[int]:
    """When the units of the timer log are due, epoch ms."""
    logs = [decode_units(UNIT_DTYPE, path.read_bytes()) for path in (store / "timerlog").iterdir()]
    return sorted(due for units in logs for due in dues(units[is_written(units)]).tolist())


@pytest.mark.parametrize("name", [*DAMAGES, *AGAIN])
def test_what_is_left_out(name: str, tmp_path: Path) -> None:
    """Those that no start delivers, or that it delivers twice, are counted."""
    damage, expected = {**DAMAGES, **AGAIN}[name]
    chains = store_with_chains(tmp_path / "store")
    damage(chains)
    assert counts(chains.store) == expected


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm(name: str, tmp_path: Path) -> None:
    """A start sets heads of chains again, and reads no first unit and no count."""
    chains = store_with_chains(tmp_path / "store")
    HARMLESS[name](chains)
    assert counts(chains.store) == {}


def test_a_slave_that_has_its_masters_time(tmp_path: Path) -> None:
    """Nothing tells until when it has run: up to 5.1 it never changes the version, and it may have been a master."""
    chains = store_with_chains(tmp_path / "store")
    chains.set_check("last_read_timestamp", START_TIME + 61_000)
    assert counts(chains.store) == {READ_TIME: 6}
    assert counts(chains.store, BrokerConf({"brokerRole": "SLAVE"})) == {}
    chains.set_check("version_counter", 0)
    assert counts(chains.store) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DAMAGES, *AGAIN])
def test_it_is_repaired_in_place(name: str, tmp_path: Path) -> None:
    """Afterwards all come once, and there is nothing left to do."""
    chains = store_with_chains(tmp_path / "store")
    {**DAMAGES, **AGAIN}[name][0](chains)
    rmqtool("repair", chains.store, "--yes", "--broker-version", "5.3.3")
    assert (chains.store / "timerlog").exists()
    assert verify(chains.store, version="5.3.3").verdict == "clean"
    assert not timers_after_start(chains.store, "5.3.3")
    assert dues_in(chains.store) == sorted(map(due_of, range(TIMERS)))
    assert "nothing to repair" in rmqtool("repair", chains.store, "--yes", "--broker-version", "5.3.3").err


@pytest.mark.parametrize(("days", "messages"), [(6, None), (8, TIMERS)])
def test_a_store_that_was_stopped_for_long(
    days: int, messages: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start leaves out what was due a week before; what is lost is counted as of the newest message."""
    monkeypatch.setattr("rmqtool.verify.timer_checks.time.time", lambda: START_TIME / 1000 + days * 86_400)
    outcome = verify(store_with_chains(tmp_path / "store").store, version="5.3.3")
    aged = [each.count for each in outcome.findings if each.code == "timer.aged"]
    assert aged == ([messages] if messages else [])
    assert outcome.verdict == "clean"


def test_without_a_wheel_they_are_lost_with_it(tmp_path: Path) -> None:
    """There is no chain to compare."""
    chains = store_with_chains(tmp_path / "store")
    (chains.store / "timerwheel").unlink()
    assert counts(chains.store) == {LOST: OLD}
