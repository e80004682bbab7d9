"""Delivery times of delayed messages where messageDelayLevel was changed, and levels that are not configured."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.repair.damaged_fields import records_of, served
from tests.verify.verifying import codes_of, verify

QUEUES = Path("consumequeue/SCHEDULE_TOPIC_XXXX")
FILE = "0" * 20
LEVEL_17 = QUEUES / "16" / FILE  # of three messages, each 30 minutes later than it was stored
WRONG, UNSET = "consumequeue.tags-code", "config.delay-level"
ROCKSDB = [pytest.param(f"more/{name}", marks=pytest.mark.slow) for name in ("5.3.3-rocksdb", "5.5.0-rocksdb-twice")]
MINUTE = 60_000
_TAGS_CODE = 12  # where it stands in a unit


def levels(text: str) -> BrokerConf:
    """A broker.conf with these delay levels."""
    return BrokerConf({"messageDelayLevel": text})


LONGER = levels(f"1s 1s 1s 1s {'9m ' * 12}3h 6h")


def add_to_times(store: Path, *minutes: int) -> bytes:
    """Move the delivery times of level 17 by so many minutes each; the queue file."""
    path = store / LEVEL_17
    data = bytearray(path.read_bytes())
    for number, minute in enumerate(minutes):
        place = slice(number * UNIT_SIZE + _TAGS_CODE, (number + 1) * UNIT_SIZE)
        data[place] = (int.from_bytes(data[place], "big") + minute * MINUTE).to_bytes(8, "big")
    path.write_bytes(data)
    return bytes(data)


@pytest.fixture
def shop(tmp_path: Path, unpacked: GoldenStore) -> Path:
    """A store to change."""
    return copied(unpacked("5.3.3-shop"), tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.7.1-shop", "5.3.3-shop", *ROCKSDB])
def test_times_of_an_earlier_setting(name: str, golden_store: GoldenStore) -> None:
    """A level has other delays now: what waits keeps its time."""
    store = golden_store(name)
    assert verify(store, conf=LONGER).verdict == "clean"
    assert verify(store, version=name.removeprefix("more/")[:5], conf=LONGER).verdict == "clean"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.7.1-shop", "5.3.3-shop", *ROCKSDB])
def test_a_rebuild_keeps_them(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"messageDelayLevel={LONGER.settings['messageDelayLevel']}\n")
    for more in ((), ("--jobs", "2")):
        assert "match the log already" in rmqtool(
            "rebuild-cq", golden_store(name), "--dry-run", "--broker-conf", conf, *more
        ).out  # fmt: skip


@pytest.mark.slow
def test_a_salvage_of_chosen_messages_keeps_them(shop: Path, tmp_path: Path) -> None:
    """They stand elsewhere in the new log, and are due when they were."""
    add_to_times(shop, 15, 15, 0)
    conf, new = tmp_path / "broker.conf", tmp_path / "new"
    conf.write_text(f"messageDelayLevel={LONGER.settings['messageDelayLevel']}\n")
    assert rmqtool("salvage", shop, "--topic", SCHEDULE_TOPIC, "--broker-conf", conf, "--output", new).status == 0
    before, after = ({place: code for place, (_, code) in served(store, records_of(store)).items()
                      if place[0] == SCHEDULE_TOPIC} for store in (shop, new))  # fmt: skip
    assert after == before


SOUND = {"older": (15, 15, 0), "newer": (0, 15, 15), "first": (15, 0, 0), "last": (0, 0, 15), "all": (15, 20, 25)}


@pytest.mark.parametrize("minutes", SOUND.values(), ids=SOUND)
def test_several_delays_in_one_queue(shop: Path, minutes: tuple[int, ...]) -> None:
    """The setting was changed while messages waited."""
    add_to_times(shop, *minutes)
    conf = levels(f"1s 1s 1s 1s {'9m ' * 12}30m 2h")
    wrong = {WRONG} if minutes == SOUND["all"] else set()
    assert codes_of(verify(shop, conf=conf)) - {"start.delay-times"} == wrong


def test_shorter_levels(golden_store: GoldenStore) -> None:
    """What is due later than the new delay from now on comes at once, and that is a finding."""
    conf = levels(f"1s 1s 1s 1s {'9m ' * 12}1m 2m")
    findings = verify(golden_store("5.3.3-shop"), version="5.3.3", conf=conf).findings
    [found] = [each for each in findings if each.severity != "info"]
    assert (found.code, found.severity, found.count) == ("start.delay-times", "error", 5)
    assert found.details == {
        "problem": "levels",
        "cause": "levels",
        "version": "5.3.3",
        "early": 5,
        "late": 0,
        "again": 0,
    }


@pytest.mark.parametrize("conf", [None, LONGER, levels(f"1s 1s 1s 1s {'9m ' * 12}30m 2h")], ids=["none", "3h", "30m"])
def test_a_time_of_no_setting(shop: Path, conf: BrokerConf | None) -> None:
    """One in the middle that is neither that of its neighbours nor the configured one is damaged."""
    add_to_times(shop, 0, 1, 0)
    [found] = [each for each in verify(shop, conf=conf).findings if each.code == WRONG]
    assert (found.queue_id, found.queue_offset, found.count) == (16, 1, 1)


@pytest.mark.slow
def test_a_repair_rewrites_only_what_is_damaged(shop: Path, tmp_path: Path) -> None:
    """A hole has the queue rebuilt: the other units keep the times of the earlier setting."""
    conf = tmp_path / "broker.conf"
    conf.write_text(f"messageDelayLevel={LONGER.settings['messageDelayLevel']}\n")
    before = (shop / LEVEL_17).read_bytes()
    (shop / LEVEL_17).write_bytes(before[: 2 * UNIT_SIZE] + bytes(UNIT_SIZE) + before[3 * UNIT_SIZE :])
    rmqtool("repair", shop, "--yes", "--broker-conf", conf, "--broker-version", "5.3.3")
    after = (shop / LEVEL_17).read_bytes()
    assert after[: 2 * UNIT_SIZE] == before[: 2 * UNIT_SIZE]
    moved = int.from_bytes(after[2 * UNIT_SIZE + _TAGS_CODE :][:8], "big") - int.from_bytes(
        before[2 * UNIT_SIZE + _TAGS_CODE :][:8], "big"
    )
    assert moved == 150 * MINUTE  # no unit shows what it was


@pytest.mark.parametrize("name", ["4.7.1-shop", "5.3.3-shop", *ROCKSDB])
def test_levels_that_are_gone(name: str, golden_store: GoldenStore) -> None:
    """Their messages are named, for no broker delivers them."""
    store = golden_store(name)
    [found] = [each for each in verify(store, conf=levels("1s 1s 1s 1s")).findings if each.severity != "info"]
    assert (found.code, found.severity, found.count) == (UNSET, "error", 5)
    assert found.details == {
        "configured_levels": 4,
        "messages": 5,
        "waiting": [
            {"level": 17, "first_queue_offset": 0, "messages": 3},
            {"level": 18, "first_queue_offset": 0, "messages": 2},
        ],
    }


@pytest.mark.slow
def test_levels_that_nobody_configures(golden_store: GoldenStore) -> None:
    """Without a broker.conf the queues show the levels; one without the setting has those by default."""
    store = golden_store("5.3.3-shop")
    assert UNSET not in codes_of(verify(store))
    assert UNSET not in codes_of(verify(store, conf=BrokerConf(path="broker.conf")))


def test_delivered_messages_do_not_wait(golden_store: GoldenStore) -> None:
    """Levels 3 and 4 have delivered all they had."""
    found = verify(golden_store("5.3.3-shop"), conf=levels("1s 1s")).findings
    [unset] = [each for each in found if each.code == UNSET]
    assert [each["level"] for each in unset.details["waiting"]] == [17, 18]


@pytest.mark.slow
def test_pending_says_never(golden_store: GoldenStore, tmp_path: Path) -> None:
    """They are not owed, and no start brings them."""
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=1s 1s 1s 1s\n")
    result = rmqtool("pending", golden_store("5.3.3-shop"), "--broker-conf", conf, "--json").document["result"]
    assert sum(each["messages"] for each in result["waiting"] if each["kind"] == "lost-delay") == 5
    text = rmqtool("pending", golden_store("5.3.3-shop"), "--broker-conf", conf).out
    assert "lost, delay level 17" in text
    assert "5 delayed messages would never be delivered" in text
