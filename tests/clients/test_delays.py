"""Delayed messages that a start delivers early, late, never or again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.clients.losses import Due
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.config_tables import load_delay_offsets
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.clients.due_times import delays_after_start
from tests.commands.running import rmqtool as run
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.pending.waiting_store import WaitingStore
from tests.real_broker.client_damages import lose_destination, records_of
from tests.real_broker.harness import SHOP_SETTINGS
from tests.verify.verifying import codes_of, verify

LEVEL_17 = Path("consumequeue/SCHEDULE_TOPIC_XXXX/16") / ("0" * 20)  # of three messages, not due yet
LEVEL_2 = Path("consumequeue/SCHEDULE_TOPIC_XXXX/1") / ("0" * 20)  # of two messages, both delivered
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


def write(position: int, data: bytes, queue: Path = LEVEL_17) -> Callable[[Path], None]:
    """Write into the queue of a level."""

    def change(store: Path) -> None:
        with (store / queue).open("r+b") as file:
            file.seek(position)
            file.write(data)

    return change


def entry_of_another_record(queue: Path) -> Callable[[Path], None]:
    """The only unit of a queue points to 100 bytes before its message, and the broker was killed."""

    def change(store: Path) -> None:
        offset = int.from_bytes((store / queue).read_bytes()[:8], "big")
        write(0, (offset - 100).to_bytes(8, "big"), queue)(store)
        (store / "abort").touch()

    return change


def moved(store: Path) -> None:
    """The second message of level 17 would come a minute early."""
    data = (store / LEVEL_17).read_bytes()
    due = int.from_bytes(data[UNIT_SIZE + _TAGS_CODE :][:8], "big") - 60_000
    write(UNIT_SIZE + _TAGS_CODE, due.to_bytes(8, "big"))(store)


def offsets_of_the_beginning_alone(store: Path) -> None:
    """Levels begin again, and the queues are gone."""
    set_offsets(l1=0, l2=0, l3=0, l4=0)(store)
    shutil.rmtree(store / "consumequeue")


LOSSES: dict[str, tuple[Callable[[Path], object], Due]] = {
    "no offsets": (without_offsets, Due(again=10)),
    "offsets of the beginning": (set_offsets(l1=0, l2=0, l3=0, l4=0), Due(again=10)),
    "offsets of the beginning, no queues": (
        offsets_of_the_beginning_alone,
        Due(again=10),
    ),
    "an offset ahead": (set_offsets(l17=2), Due(never=2)),
    "an offset past the end": (set_offsets(l17=9), Due(never=3)),
    "a queue is gone": (lambda store: shutil.rmtree((store / LEVEL_17).parent), Due(never=3)),
    "a unit is gone": (write(UNIT_SIZE, bytes(UNIT_SIZE)), Due(never=2)),
    "all units are gone": (write(0, bytes(3 * UNIT_SIZE)), Due(never=3)),
    "a delivered unit is gone": (write(UNIT_SIZE, bytes(UNIT_SIZE), LEVEL_2), Due()),
    "a time is zero": (write(UNIT_SIZE + _TAGS_CODE, bytes(8)), Due(early=1)),
    "a time is another": (moved, Due(early=1)),
}


LEVEL_18 = LEVEL_17.parent.parent / "17" / LEVEL_17.name  # of one message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [("4.4.0-killed", Due()), ("4.7.1-killed", Due()), ("4.9.7-killed", Due(early=1)), ("5.1.4-killed", Due())],
)
def test_a_message_that_a_start_derives_at_another_offset(
    name: str, expected: Due, tmp_path: Path, unpacked: GoldenStore
) -> None:
    """After a wrong unit that is the last one its message gets a second one, and is delivered."""
    store = copied(unpacked(name), tmp_path / "store")
    entry_of_another_record(LEVEL_18)(store)
    (store / "checkpoint").unlink()
    assert delays_after_start(store, name[:5]) == expected


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, tmp_path: Path, unpacked: GoldenStore) -> None:
    """Each damage costs what a real broker does not deliver as before."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    LOSSES[name][0](store)
    assert delays_after_start(store, "4.9.7", checks_times=True) == LOSSES[name][1]


@pytest.mark.parametrize("name", [b"REAL_TOPIC", b"REAL_QID"])
@pytest.mark.parametrize(
    ("version", "number", "never"),
    [("4.9.2", 1, 1), ("4.9.3", 1, 2), ("4.9.7", 0, 3), ("5.0.0", 0, 1), ("5.3.3", 2, 1)],
)
def test_a_message_without_a_destination(version: str, number: int, never: int, name: bytes, tmp_path: Path) -> None:
    """It is dropped; from 4.9.3 on, until 5.0.0, its level stays there."""
    store = stores.unpack("4.9.7-shop" if version < "5" else "5.3.3-shop", tmp_path)
    lose_destination(store, 16, number, name)
    document = run("verify", store, "--json", "--broker-version", version).document
    assert document["result"]["start"]["clients"]["delayed"] == {"early": 0, "late": 0, "never": never, "again": 0}
    [found] = [each for each in document["findings"] if each["code"] == "commitlog.destination"]
    assert (found["details"]["queue_id"], found["details"]["queue_offset"]) == (16, number)
    waits = run("pending", store, "--json", "--broker-version", version).document["result"]["waiting"]
    counts = {each["kind"]: each["messages"] for each in waits if each["level"] == 17}
    assert counts == {kind: count for kind, count in (("delay", 3 - never), ("lost-delay", never)) if count}


@pytest.mark.slow
def test_a_repair_counts_a_message_without_a_destination(tmp_path: Path) -> None:
    """Its unit is derived without the time that it had: what nobody delivers does not come early."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    lose_destination(store, 16, 0, b"DELAY")
    lose_destination(store, 16, 0)
    shutil.rmtree(store / "consumequeue")
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SHOP_SETTINGS.items()))
    options = ("--broker-conf", conf, "--broker-version", "5.3.3")
    done = run("repair", store, "--yes", "--json", *options).document["result"]
    assert done["proof"]["more_lost"] == []
    assert done["proof"]["clients"]["delayed"] == {"early": 0, "late": 0, "never": 1, "again": 0}


def test_a_delivered_unit_that_is_gone_leaves_the_offset_right(tmp_path: Path, unpacked: GoldenStore) -> None:
    """The log has the message: the offset of its level is not past its queue's end."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    LOSSES["a delivered unit is gone"][0](store)
    assert "config.delay-offset" not in codes_of(verify(store))


@pytest.mark.slow
@pytest.mark.parametrize(("version", "expected"), [("4.9.1", Due()), ("4.9.2", Due(early=5)), ("4.9.7", Due(early=5))])
def test_a_recovery_without_delays(version: str, expected: Due, tmp_path: Path, unpacked: GoldenStore) -> None:
    """From 4.9.2 on, until 5.0.0, a recovery after a crash derives delayed messages with the hash of their tag.

    A clean start derives them once it has moved the offsets of levels to the ends of queues that are not there yet.
    """
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    shutil.rmtree(store / "consumequeue")
    assert delays_after_start(store, version) == (Due(again=10) if expected else Due())
    assert ("start.delay-times" in codes_of(verify(store, version=version))) == bool(expected)
    (store / "abort").touch()
    assert delays_after_start(store, version) == expected
    found = [each.details for each in verify(store, version=version).findings if each.code == "start.delay-times"]
    told = {"problem": "derived", "cause": "derived", "version": version, "early": 5, "late": 0, "again": 0}
    assert found == ([told] if expected else [])


@pytest.mark.parametrize(
    ("levels", "expected"),
    [("30m 2h", Due()), ("3h 6h", Due()), ("1m 2m", Due(early=5)), ("30m", Due(never=2)), ("", Due(never=5))],
)
@pytest.mark.parametrize("name", ["5.3.3-shop", pytest.param("more/5.3.3-rocksdb", marks=pytest.mark.slow)])
def test_other_levels(levels: str, expected: Due, name: str, golden_store: GoldenStore) -> None:
    """A broker keeps to the times in the queue, at most the level's delay from now; levels that are gone never come."""
    assert delays_after_start(golden_store(name), "5.3.3", delays(levels)) == expected


@pytest.mark.slow
def test_the_log_is_gone(tmp_path: Path, unpacked: GoldenStore) -> None:
    """Units show what waited, and offsets what was delivered."""
    store = copied(unpacked("5.1.4-shop"), tmp_path / "store")
    shutil.rmtree(store / "commitlog")
    outcome = verify(store, version="5.1.4")
    assert outcome.clients is not None
    assert outcome.clients.delayed == Due(never=5)


def test_what_is_overdue_is_not_early(golden_store: GoldenStore) -> None:
    """It comes at once in any case."""
    conf = delays("1m 2m")
    assert not delays_after_start(golden_store("5.3.3-shop"), "5.3.3", conf, later=3 * 3_600_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-shop", "4.7.1-shop", "5.1.4-shop", "5.5.0-shop", "more/5.5.0-rocksdb-twice"])
def test_nothing_is_lost_of_what_is_whole(name: str, golden_store: GoldenStore) -> None:
    """Real stores lose nothing."""
    assert not delays_after_start(golden_store(name), name.removeprefix("more/")[:5])


@pytest.mark.parametrize(
    ("name", "offsets", "changed", "again"),
    [
        ("5.5.0-shop", -10, 0, 10),
        ("5.5.0-shop", 0, 0, 10),
        ("5.5.0-shop", 1, 0, 6),
        ("5.5.0-shop", 0, -600_000, 0),
        ("5.5.0-shop", 0, 1 << 40, 0),  # no file is written before its content
        ("4.9.7-shop", 0, 0, 0),  # which does not say it
    ],
)
def test_what_a_killed_broker_had_noted(
    name: str, offsets: int, changed: int, again: int, tmp_path: Path, unpacked: GoldenStore
) -> None:
    """A file that is younger than the log, as a copy is, knows of deliveries before the last change that it names."""
    store = copied(unpacked(name), tmp_path / "store")
    set_offsets(**{f"l{level}": offsets for level in range(1, 5)})(store)
    for path in (store / "config").glob("delayOffset.json*"):
        content = json.loads(path.read_text())
        if "dataVersion" in content:
            content["dataVersion"]["timestamp"] += changed
        path.write_text(json.dumps(content))
    (store / "abort").touch()
    outcome = verify(store, version=name[:5])
    assert outcome.clients is not None
    assert outcome.clients.delayed == Due(again=again)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["magic code", "properties"])
@pytest.mark.parametrize("number", [2, -1])
@pytest.mark.parametrize("version", ["4.7.1", "5.5.0"])
def test_a_repair_keeps_levels_whose_delivered_copy_is_damaged(
    version: str, number: int, damage: str, tmp_path: Path, unpacked: GoldenStore
) -> None:
    """That the log has the copy no more, or that it has lost all properties, does not show that it never came."""
    store = copied(unpacked(f"{version}-shop"), tmp_path / "store")
    copy = [each for each in records_of(store) if each.topic == "%RETRY%billing"][number]
    size = copy.size - copy.fields["properties"] if damage == "properties" else 1
    with copy.file.open("r+b") as log:
        log.seek(copy.at + copy.fields[damage])
        log.write(bytes(size))
    clients = run("--json", "verify", store, "--broker-version", version).document["result"]["start"]["clients"]
    assert clients["delayed"]["never"] == 0
    offsets = (store / "config/delayOffset.json").read_bytes()
    run("repair", store, "--yes", "--broker-version", version)
    assert (store / "config/delayOffset.json").read_bytes() == offsets


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"), [("5.5.0-shop", 4), ("5.5.0-shop", 6), ("5.5.0-shop", 8), ("4.7.1-trimmed", 8)]
)
def test_a_record_that_is_put_right_waits_as_before(
    name: str, number: int, tmp_path: Path, unpacked: GoldenStore
) -> None:
    """The first, the second and the last message of its level, and the only one: the log has only damage before."""
    store = copied(unpacked(name), tmp_path / "store")
    delayed = [each for each in records_of(store) if each.topic == "SCHEDULE_TOPIC_XXXX"][number]
    with delayed.file.open("r+b") as log:
        log.seek(delayed.at + delayed.fields["magic code"] + 3)
        log.write(b"\xa6")
    plan = run("--json", "verify", store, "--broker-version", name[:5]).document["result"]["plan"]
    assert plan["clients"]["delayed"] == {"early": 0, "late": 0, "never": 0, "again": 0}


def without_level(number: int) -> Callable[[Path], None]:
    """Take a level out of delayOffset.json and its .bak."""

    def change(store: Path) -> None:
        for path in (store / "config").glob("delayOffset.json*"):
            path.write_text(re.sub(rf"(?<=[{{,\s]){number}:\d+,?", "", path.read_text()))

    return change


def with_garbage(store: Path) -> None:
    for path in (store / "config").glob("delayOffset.json*"):
        path.write_text("garbage")


def without_queues(*numbers: int) -> Callable[[Path], None]:
    """Delete queues of levels, or all of them."""

    def change(store: Path) -> None:
        for path in (store / "consumequeue/SCHEDULE_TOPIC_XXXX").iterdir():
            if not numbers or int(path.name) in numbers:
                shutil.rmtree(path)

    return change


def with_zeros_for_level_18(store: Path) -> None:
    """The only message of a level is gone; its unit still stands."""
    delayed = next(each for each in records_of(store) if each.topic == "SCHEDULE_TOPIC_XXXX" and each.queue_id == 17)
    with delayed.file.open("r+b") as log:
        log.seek(delayed.at)
        log.write(bytes(delayed.size))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damages", "expected"),
    [
        pytest.param([without_queues(), without_offsets], Due(), id="all queues, no offsets"),
        pytest.param([without_queues(2), without_offsets], Due(), id="a queue, no offsets"),
        pytest.param([without_queues(2), with_garbage], Due(), id="a queue, offsets of garbage"),
        pytest.param([write(0, bytes(UNIT_SIZE), LEVEL_2), without_offsets], Due(), id="a unit, no offsets"),
        pytest.param([without_level(3)], Due(), id="a level without an offset"),
        pytest.param([with_zeros_for_level_18, without_offsets], Due(never=1), id="a message, no offsets"),
    ],
)
def test_a_repair_waits_for_the_queues_with_the_offsets_of_levels(
    damages: list[Callable[[Path], None]], expected: Due, tmp_path: Path, unpacked: GoldenStore
) -> None:
    """Once they are whole, they show all that was delivered; the plan says what is left then."""
    store = copied(unpacked("4.7.1-shop"), tmp_path / "store")
    for damage in damages:
        damage(store)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"messageDelayLevel={delays('30m 2h').text('messageDelayLevel')}\n")
    broker = ("--broker-version", "4.7.1", "--broker-conf", conf)
    plan = run("--json", "verify", store, *broker).document["result"]["plan"]
    assert Due(**plan["clients"]["delayed"]) == expected
    assert not plan["remaining"]
    run("repair", store, "--yes", *broker)
    repaired = load_delay_offsets(open_store(store)).by_level
    assert {level: offset for level, offset in repaired.items() if offset} == {1: 2, 2: 2, 3: 3, 4: 6}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.1.4-shop", "5.5.0-shop", "more/5.3.3-rocksdb"])
def test_what_was_delivered_before_a_kill_that_lost_the_end_of_the_log(name: str, tmp_path: Path) -> None:
    """delayOffset.json was changed after the messages of the log's new end were due: they had been delivered."""
    store = stores.unpack(name, tmp_path)
    (store / "abort").touch()
    waiting = [each for each in records_of(store) if (each.topic, each.queue_id) == ("SCHEDULE_TOPIC_XXXX", 3)]
    last = waiting[-1]
    for path in (store / "commitlog").iterdir():
        begin = max(0, last.physical_offset + last.size - int(path.name))
        if begin < path.stat().st_size:
            with path.open("r+b") as file:
                file.seek(begin)
                file.write(bytes(path.stat().st_size - begin))
    outcome = verify(store, version=name.partition("/")[2][:5] or name[:5], conf=BrokerConf({}))
    assert outcome.clients is not None
    assert outcome.clients.delayed == Due()


_KEY = "7F000001000018B4AAC2{:012X}"
_OF_LEVEL_1 = (0, 300, 3000)  # ms after the start: when the messages are stored; they are due a second later


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "offsets", "severity", "again"),
    [
        ("4.9.3", {"l1": 1, "l2": 1, "l3": 1, "l4": 1}, "info", 6),
        ("4.9.3", {"l3": 2}, "info", 1),
        ("4.9.3", {"l3": 0}, "warning", 3),
        ("4.9.2", {"l3": 1}, "warning", 2),
        ("4.9.4", {"l3": 1}, "warning", 2),
    ],
)
def test_what_a_release_delivers_again_after_each_start(
    version: str, offsets: dict[str, int], severity: str, again: int, tmp_path: Path, unpacked: GoldenStore
) -> None:
    """4.9.3 notes the first message of those that it delivers in one run: a store that it stopped is sound."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    set_offsets(**offsets)(store)
    outcome = verify(store, version=version, conf=delays("30m 2h"))
    assert {each.severity for each in outcome.findings if each.code == "config.delay-offset"} == {severity}
    assert outcome.clients is not None
    assert outcome.clients.delayed == Due(again=again)
    assert outcome.verdict == ("clean" if severity == "info" else "corrupt")


@pytest.mark.parametrize(
    ("offset", "copies", "severity"),
    [
        pytest.param(1, [(0, 1010), (1, 1310)], "warning", id="two runs"),
        pytest.param(1, [(0, 1310), (1, 1311)], "info", id="one run"),
        pytest.param(1, [(0, 1310), (1, 1311), (2, 4010)], "warning", id="the third in another one"),
        pytest.param(2, [(0, 1310), (1, 1311), (1, 5000), (2, 5001)], "info", id="one run, after a start"),
        pytest.param(1, [(0, 1310), (1, 1311), (1, 5000), (2, 5001)], "info", id="killed before it was written"),
        pytest.param(2, [(0, 1310), (1, 1311), (2, 5001)], "warning", id="another run, after a start"),
        pytest.param(0, [(0, 1310), (1, 1311)], "warning", id="nothing is noted"),
    ],
)
def test_deliveries_of_one_run(offset: int, copies: list[tuple[int, int]], severity: str, tmp_path: Path) -> None:
    """A run ends before a message that is not due: the next one notes its first message."""
    made = WaitingStore()
    steps = [(at, number, False) for number, at in enumerate(_OF_LEVEL_1)] + [
        (at, number, True) for number, at in copies
    ]
    for at, number, is_copy in sorted(steps):
        named = {"UNIQ_KEY": _KEY.format(number), "REAL_TOPIC": "orders", "REAL_QID": "0"}
        topic, properties = ("orders", named) if is_copy else ("SCHEDULE_TOPIC_XXXX", {**named, "DELAY": "1"})
        times: dict[str, Any] = {"store_timestamp": START_TIME + at, "born_timestamp": START_TIME}
        made.put(topic, 0, body=b"body", properties=properties, **times)
    made.delivered[1] = offset
    outcome = verify(made.build(tmp_path / "store"), version="4.9.3")
    assert [each.severity for each in outcome.findings if each.code == "config.delay-offset"] == [severity]
