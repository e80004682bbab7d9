"""Timer messages that a start delivers early, late, never or again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.broker.dispatched_units import TIMER_QUEUE
from rmqtool.broker.prediction import QueueChange, StartPrediction
from rmqtool.broker.timer_start import read_timer_queue, timer_state_of
from rmqtool.clients.losses import Due
from rmqtool.clients.timers import made_timer_queue, timers_due, timers_without_files
from rmqtool.formats.rocksdb_rows import TIMELINE, TIMERS_INDEXED_TO
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.changed_rocksdb import changed
from tests.clients.due_times import timers_after_start
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.client_damages import lose_destination
from tests.verify.timer_chains import OLD, TIMERS, TimerChains, due_of, position_of, store_with_chains

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


def test_a_slot_that_was_delivered_in_part(tmp_path: Path) -> None:
    """As a cut leaves it: the others of the slot wait, so that the wheel has to be read from there on."""
    slots = [range(OLD, TIMERS, 2), range(OLD + 1, TIMERS, 2)]
    chains = store_with_chains(tmp_path / "store", delivered=[*slots[0], *slots[1][:2]])
    chains.set_check("last_read_timestamp", due_of(slots[0][0]))
    chains.set_check("version_timestamp", due_of(0) + 10_000)
    assert timers_after_start(chains.store, "5.3.3") == Due(again=len(slots[0]) + 2)
    words = chains.store, "--broker-version", "5.3.3"
    [finding] = [each for each in rmqtool("verify", *words, "--json").document["findings"]
                 if each["code"] == "timer.read-time"]  # fmt: skip
    assert finding["count"] == len(slots[0])
    rmqtool("repair", *words, "--yes")
    assert timers_after_start(chains.store, "5.3.3") == Due(again=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.1.4-shop", "5.3.3-shop", "5.5.0-shop", "more/5.3.3-rocksdb"])
def test_nothing_is_lost_of_what_is_whole(name: str, golden_store: GoldenStore) -> None:
    """Real stores lose nothing."""
    assert not timers_after_start(golden_store(name), name.removeprefix("more/")[:5])


def no_check(store: Path) -> None:
    for path in (store / "config").glob("timercheck*"):
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "lost", "taken_out"),
    [
        (no_check, Due(again=4), Due(again=1)),  # two wait, one was delivered: each comes from the queue, it twice
        (lambda store: shutil.rmtree(store / "commitlog"), Due(never=2), Due(never=3)),  # nothing shows which waited
    ],
)
def test_what_a_broker_with_rows_delivers(
    damage: Callable[[Path], None], lost: Due, taken_out: Due, tmp_path: Path
) -> None:
    """As a 5.5.0 did of its golden store, at once and after a repair that takes the timer's files out."""
    store = stores.unpack("more/5.5.0-rocksdb", tmp_path)
    damage(store)
    assert timers_after_start(store, "5.5.0") == lost
    snapshot = Snapshot(open_store(store))
    start = StartPrediction("normal", "5.5.0")
    assert timers_without_files(snapshot, start, snapshot.log_range.last_store_timestamp or 0) == taken_out


def zeroed(store: Path) -> None:
    (store / "config" / "timercheck").write_bytes(bytes(4096))


def no_check_nor_wheel(store: Path) -> None:
    no_check(store)
    for path in store.glob("timerwheel*"):
        path.unlink()


def no_check_after_kill(store: Path) -> None:
    no_check(store)
    (store / "abort").touch()


def no_check_nor_log(store: Path) -> None:
    """The queue is read from the beginning, as at the first start."""
    no_check(store)
    shutil.rmtree(store / "timerlog")


CHECKS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "gone": (no_check, True),
    "short": (lambda store: os.truncate(store / "config" / "timercheck", 8), True),
    "zeros": (zeroed, True),
    "gone after a kill": (no_check_after_kill, True),
    "gone with the wheel": (no_check_nor_wheel, True),
    "gone with the timer log": (no_check_nor_log, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_a_lost_timercheck_is_written_again(name: str, tmp_path: Path) -> None:
    """As a 5.3.3 delivers after it: two that wait, each once, and the one that was delivered not again."""
    store = stores.unpack("more/5.3.3-rocksdb", tmp_path)
    damage, is_written = CHECKS[name]
    damage(store)
    rmqtool("repair", store, "--yes", "--broker-version", "5.3.3")
    assert (store / "config" / "timercheck").exists() == is_written
    if is_written:
        assert timers_after_start(store, "5.3.3") == Due()


@pytest.mark.parametrize(
    ("version", "number", "skips", "never"),
    [
        ("5.3.3", 0, False, 0),  # was delivered
        ("5.3.3", 1, False, 2),
        ("5.3.3", 1, True, 1),
        ("5.1.4", 1, True, 2),  # which does not know the setting
        ("5.3.3", 2, False, 1),
    ],
)
def test_a_message_without_a_destination(version: str, number: int, skips: bool, never: int, tmp_path: Path) -> None:
    """The timer stands still at it, and delivers none that is due later."""
    store, conf = stores.unpack(f"{version}-shop", tmp_path), BrokerConf({"timerSkipUnknownError": str(skips).lower()})
    lose_destination(store, 0, number, topic=TIMER_TOPIC)
    assert timers_after_start(store, version, conf, undeliverable=[number]) == Due(never=never)
    found = rmqtool("verify", store, "--json", "--broker-version", version).document
    assert found["result"]["start"]["clients"]["timers"]["never"] == never + (skips and version != "5.1.4")
    [damaged] = [each for each in found["findings"] if each["code"] == "commitlog.destination"]
    assert damaged["details"]["queue_offset"] == number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "skips", "never"), [(0, False, 3), (1, False, 2), (2, False, 1), (0, True, 1), (1, True, 1)]
)
def test_the_plan_counts_what_the_timer_does_not_reach(number: int, skips: bool, never: int, tmp_path: Path) -> None:
    """Its files are taken out: it reads the queue again, and stops at a message without a destination."""
    store, conf = stores.unpack("5.3.3-shop", tmp_path), tmp_path / "broker.conf"
    conf.write_text(f"timerSkipUnknownError={str(skips).lower()}\n")
    lose_destination(store, 0, number, topic=TIMER_TOPIC)
    (store / "config" / "timercheck").write_bytes((store / "config" / "subscriptionGroup.json").read_bytes())
    words = (store, "--json", "--broker-version", "5.3.3", "--broker-conf", conf)
    [step, _] = rmqtool("verify", *words).document["result"]["plan"]["steps"]
    assert step["clients"]["takes"] == {"timers_again": 1, "timers_never": never}
    proof = rmqtool("repair", *words, "--yes").document["result"]["proof"]
    assert (proof["clients"]["timers"]["never"], proof["more_lost"]) == (never, [])


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_the_plan_counts_what_comes_again(version: str, tmp_path: Path) -> None:
    """The timer's files are taken out, since `timercheck` has the bytes of another file."""
    store = stores.unpack(f"{version}-shop", tmp_path)
    config = store / "config"
    (config / "timercheck").write_bytes((config / "subscriptionGroup.json").read_bytes())
    [step, _] = rmqtool("verify", store, "--json", "--broker-version", version).document["result"]["plan"]["steps"]
    assert step["clients"]["takes"] == {"timers_again": 1}
    done = rmqtool("repair", store, "--yes", "--json", "--broker-version", version).document["result"]
    assert done["proof"]["clients"]["timers"]["again"] == 1
    assert done["proof"]["more_lost"] == []


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_the_plan_counts_what_comes_again_from_a_queue_that_is_made_again(version: str, tmp_path: Path) -> None:
    """All of the timer is gone: what was delivered comes from the queue, once that is there."""
    store = stores.unpack(f"{version}-shop", tmp_path)
    no_check_nor_wheel(store)
    shutil.rmtree(store / "timerlog")
    shutil.rmtree(store / "consumequeue" / TIMER_TOPIC)
    words = (store, "--json", "--broker-version", version)
    [step, _] = rmqtool("verify", *words).document["result"]["plan"]["steps"]
    assert step["clients"]["takes"] == {"timers_again": 1}
    proof = rmqtool("repair", *words, "--yes").document["result"]["proof"]
    assert (proof["clients"]["timers"]["again"], proof["more_lost"]) == (1, [])


@pytest.mark.slow
def test_a_timer_whose_files_are_held_against_a_queue_that_is_made_again(tmp_path: Path) -> None:
    """A start makes the queue and delivers nothing that waits: counted. How it is repaired shows with the queue."""
    store = stores.unpack("more/5.5.0-rocksdb", tmp_path)
    for name in ("consumequeue", "index", "timerlog"):
        shutil.rmtree(store / name)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in ROCKSDB["more/5.5.0-rocksdb"].items()))
    words = (store, "--json", "--broker-version", "5.5.0", "--broker-conf", conf)
    result = rmqtool("verify", *words).document["result"]
    assert result["start"]["clients"]["timers"]["never"] == 2
    assert result["plan"]["clients"] is None
    proof = rmqtool("repair", *words, "--yes").document["result"]["proof"]
    assert (proof["clients"]["timers"]["again"], proof["more_lost"]) == (1, [])


def test_a_queue_that_is_made_of_the_log_is_the_one_that_was_there(tmp_path: Path) -> None:
    """Whatever a start would cut of the one that is there now."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    snapshot = Snapshot(open_store(store))
    newest, end = snapshot.log_range.last_store_timestamp or 0, snapshot.log_range.max_offset
    there = read_timer_queue(timer_state_of(snapshot), snapshot.log.files)
    sound = StartPrediction("normal", "5.3.3")
    assert made_timer_queue(snapshot, sound, end, lacks=False) is None
    made = made_timer_queue(snapshot, sound, end, lacks=True)
    assert made is not None
    assert there is not None
    assert [column.tolist() for column in vars(made).values()] == [column.tolist() for column in vars(there).values()]
    cut = QueueChange("simple", *TIMER_QUEUE, 0, len(made.queue_offsets), 0, 0, len(made.queue_offsets), 0)
    start = replace(sound, queues=[cut])
    no_check_nor_wheel(store)
    shutil.rmtree(store / "timerlog")
    assert timers_due(snapshot, start, newest, newest, made=made) == Due(again=1)


def test_it_is_not_written_where_more_is_wrong(tmp_path: Path) -> None:
    """A chain is broken, too: what it leaves out would never be delivered, so that all is read again."""
    chains = store_with_chains(tmp_path / "store")
    chains.set_unit(4, "previous_position", -1)
    no_check(chains.store)
    rmqtool("repair", chains.store, "--yes", "--broker-version", "5.3.3")
    assert not (chains.store / "config" / "timercheck").exists()
    assert not (chains.store / "timerlog").exists()


SIDE = "more/5.5.0-rocksdb-side"
Rows = dict[bytes, bytes]


def row_less(rows: Rows) -> None:
    """The row of the last message."""
    keys = {*rows.keys()}
    del rows[max(keys - {TIMELINE, TIMERS_INDEXED_TO})]


def without_timeline(rows: Rows) -> None:
    del rows[TIMELINE]


def set_to(key: bytes, number: int) -> Callable[[Rows], None]:
    return lambda rows: rows.__setitem__(key, number.to_bytes(8, "big"))


IN_ROWS: dict[str, tuple[Callable[[Rows], None] | None, int, Due]] = {
    "whole": (lambda _: None, 0, Due()),
    "gone": (None, 0, Due(again=1)),
    "gone, and the wheel has read the queue": (None, 3, Due(never=2)),
    "a row less": (row_less, 0, Due(never=1)),
    "no timeline": (without_timeline, 0, Due()),  # it begins 10 s before the start
    "an older timeline": (set_to(TIMELINE, 1795397900000), 0, Due(again=1)),
    "an older progress": (set_to(TIMERS_INDEXED_TO, 0), 0, Due(again=1)),
    "a later progress": (set_to(TIMERS_INDEXED_TO, 9), 0, Due()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_ROWS)
def test_timers_in_rocksdb(name: str, tmp_path: Path) -> None:
    """Of three messages, one of them delivered, as a 5.5.0 delivers them: those that wait, and that one again."""
    change, read_to, expected = IN_ROWS[name]
    store = stores.unpack(SIDE, tmp_path)
    if change is None:
        shutil.rmtree(store / "rocksdbstore")
    else:
        with changed(store / "rocksdbstore") as families:
            change(families["timer"])
    path = store / "config" / "timercheck"
    data = path.read_bytes()
    path.write_bytes(data[:16] + 2 * read_to.to_bytes(8, "big") + data[32:])
    assert timers_after_start(store, "5.5.0", BrokerConf(ROCKSDB[SIDE])) == expected
