"""What clients lose by a damage and the next start: numbers that brokers of these releases confirm (`make clients`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqtool
from rmqtool.clients.losses import ClientLosses, MovedGroup
from rmqtool.clients.queue_view import QueueViews
from rmqtool.formats.index_file import slot_position, unit_position
from rmqtool.formats.message import MAGIC_CODE_V1
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import Outcome
from tests.commands.running import rmqtool as run
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.client_damages import records_of
from tests.real_broker.client_stores import LEVELS
from tests.real_broker.harness import SETTINGS, SHOP_SETTINGS
from tests.verify.verifying import codes_of, verify

QUEUE = "consumequeue/orders/0"
UNIT = 20


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def lost(outcome: Outcome) -> dict[str, int]:
    """The kinds of losses that are not zero."""
    assert outcome.clients is not None
    return {kind: count for kind, count in outcome.clients.counts().items() if count}


def killed(store: Path) -> None:
    """`abort`, and a checkpoint whose index time is that of no full index file."""
    (store / "abort").touch()
    path = store / "checkpoint"
    times = list(struct.unpack(">3q", path.read_bytes()[:24]))
    write(path, 0, struct.pack(">3q", max(times), max(times), 0))


def hole(store: Path) -> dict[str, int]:
    """Two units are zeros: the start ends the queue there."""
    file = max((store / QUEUE).iterdir())
    units = (verify(store).total.queue_ends[("orders", 0)]) - int(file.name) // UNIT  # type: ignore[index]
    write(file, 3 * UNIT, bytes(2 * UNIT))
    return {"unreachable": units - 3}


def garbage_target(store: Path) -> dict[str, int]:
    """A unit leads into the middle of a record: only its message is out of reach."""
    file = min((store / QUEUE).iterdir())
    offset = struct.unpack(">q", file.read_bytes()[40:48])[0]
    write(file, 40, struct.pack(">q", offset + 3))
    return {"unreachable": 1}


def queue_gone(store: Path) -> dict[str, int]:
    """All files of a queue: a start after a clean stop makes none again."""
    count = verify(store).total.states[("orders", 0)].had  # type: ignore[index]
    shutil.rmtree(store / QUEUE)
    return {"unreachable": count}


def body_flipped(store: Path) -> dict[str, int]:
    """The first record of the log: its entry and its keys lead to a message that is not whole."""
    file = min((store / "commitlog").iterdir())
    message = next(iter(rmqtool.open(store).messages()))
    body = message.body or b""
    write(file, file.read_bytes().index(body), bytes([body[0] ^ 1]))
    return {"unreachable": 1, "keys_not_found": len(message.keys) + (message.unique_key is not None)}


def slot_zeroed(store: Path) -> dict[str, int]:
    """A hash slot leads nowhere: the keys of its chain are not found."""
    file = min((store / "index").iterdir())
    data = file.read_bytes()
    slots = next(slots for slots in (50, 500) if len(data) in (40 + 4 * slots + 20 * units for units in (1000, 2000)))
    heads = struct.unpack(f">{slots}i", data[40 : 40 + 4 * slots])
    slot = max(range(slots), key=lambda each: heads[each])
    chain, unit = 0, heads[slot]
    while unit > 0:
        chain += 1
        unit = struct.unpack_from(">i", data, 40 + 4 * slots + 20 * unit + 16)[0]
    write(file, slot_position(slot), bytes(4))
    return {"keys_not_found": chain}


INDEX_CONF = BrokerConf({"maxHashSlotNum": "50", "maxIndexNum": "1000"})
"""The geometry of the index files, which a wrong slot does not let them prove."""

DAMAGES = [hole, garbage_target, queue_gone, body_flipped, slot_zeroed]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_damage_costs(name: str, damage: Callable[[Path], dict[str, int]], tmp_path: Path) -> None:
    """The counts are those of the damage, the verdict follows them, and the sentence has them."""
    store = stores.unpack(name, tmp_path)
    expected = damage(store)
    outcome = verify(store, version=name.partition("-")[0], conf=INDEX_CONF)
    assert expected.items() <= lost(outcome).items()
    assert outcome.verdict == "corrupt"
    assert outcome.clients is not None
    assert all(str(count) in outcome.clients.in_words for count in expected.values())


def index_cut(store: Path) -> None:
    """The last index file that the start keeps is half as long: its header says where it ended."""
    file = sorted((store / "index").iterdir())[-2]
    os.truncate(file, file.stat().st_size // 2)


def index_page_zeroed(store: Path) -> None:
    """Of two keys of one message with the same hash one unit is left, to which no chain leads."""
    write(min((store / "index").iterdir()), 8192, bytes(4096))


def index_swapped(store: Path) -> None:
    """Two index files have each other's names; queries look into all files."""
    first, second, *_ = sorted((store / "index").iterdir())
    first.rename(store / "index" / "other")
    second.rename(first)
    (store / "index" / "other").rename(second)


def slots_zeroed(store: Path) -> None:
    """No slot points to a unit any more."""
    write(min((store / "index").iterdir()), slot_position(0), bytes(200))


def magic_flipped(store: Path) -> None:
    """A record where the start ends the log: units of later ones are lost with them, and counted once."""
    write(min((store / "commitlog").iterdir()), 39894 + 4, b"\0")


def untagged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """A record of the trimmed store whose message has two keys and no tags, before what a start scans."""

    def apply(store: Path) -> None:
        record = next(each for each in records_of(store) if each.physical_offset == 403075)
        write(record.file, record.at, change(record.file.read_bytes()[record.at : record.at + record.size]))

    return apply


def colliding_key_flipped(store: Path) -> None:
    """Of keys with the same hash: its unit still stands, and no other key misses one."""
    file = min((store / "commitlog").iterdir())
    write(file, file.read_bytes().index(b"Aa BB pay-25"), b"a")


def key_twice(store: Path) -> None:
    """Messages with the keys Aa BB, of one hash, have the key Aa twice: the index is as a broker makes it of both."""
    for file in (store / "commitlog").iterdir():
        file.write_bytes(file.read_bytes().replace(b"Aa BB", b"Aa Aa"))


def magic_of_key_twice(store: Path) -> None:
    """One of these messages has a wrong magic code, where the start ends the log."""
    record = next(each for each in records_of(store) if each.physical_offset == 484630)
    write(record.file, record.at + record.fields["magic code"], b"\0")


def index_gone(store: Path) -> None:
    """All index files are gone."""
    shutil.rmtree(store / "index")


def key_flipped(store: Path) -> None:
    """A key of one record; its index unit still has the right hash."""
    file = min((store / "commitlog").iterdir())
    write(file, file.read_bytes().index(b"KEYS\x01LATE-0") + 5, b"M")


def size_flipped(bit: int) -> Callable[[Path], None]:
    """The size of a record of 292 bytes with 13 keys, in a log file that no start looks at: one bit."""

    def apply(store: Path) -> None:
        write(min((store / "commitlog").iterdir()), 4350, struct.pack(">I", 292 ^ 1 << bit))

    return apply


def other_key_flipped(store: Path) -> None:
    """A key of another record, which the index still leads to."""
    file = min((store / "commitlog").iterdir())
    write(file, file.read_bytes().index(b"KEYS\x01remind-0") + 5, b"R")


def topic_flipped(physical_offset: int) -> Callable[[Path], None]:
    """The topic of a record whose keys are in an index file that the start deletes, and puts again."""

    def apply(store: Path) -> None:
        record = next(each for each in records_of(store) if each.physical_offset == physical_offset)
        write(record.file, record.at + record.fields["topic"], b"p")

    return apply


def index_entries_flipped(store: Path) -> None:
    """The hash of one unit, which is that of another key of its message then, and the offset of one."""
    first, second, *_ = sorted((store / "index").iterdir())
    write(first, 963, b"\x92")
    write(second, 3546, b"\x80")


def index_begins_later(store: Path) -> None:
    """The time at which a file begins: queries until now get nothing of it but what the start puts again."""
    write(min((store / "index").iterdir()), 2, b"\x81")


def index_count_flipped(store: Path) -> None:
    """The last file that the start keeps counts too few units; the start puts the last of those again."""
    write(sorted((store / "index").iterdir())[-2], 39, b"\xa8")


def newer_than_checkpoint(files: int) -> Callable[[Path], None]:
    """A kill after which only the first index files are not newer than the checkpoint, and no log file is scanned."""

    def apply(store: Path) -> None:
        killed(store)
        ends = [0, *(struct.unpack(">q", file.read_bytes()[8:16])[0] for file in sorted((store / "index").iterdir()))]
        latest = max(struct.unpack(">3q", (store / "checkpoint").read_bytes()[:24]))
        write(store / "checkpoint", 0, struct.pack(">3q", latest + 3_600_000, latest + 3_600_000, ends[files]))

    return apply


def last_file_twice(store: Path) -> None:
    """The start after a kill reads the copy, whose records give the places of the first one."""
    (store / "abort").touch()
    write(store / "checkpoint", 16, bytes(8))  # so that the index file is deleted
    file = max((store / "commitlog").iterdir())
    shutil.copyfile(file, file.with_name(f"{int(file.name) + file.stat().st_size:020}"))


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "damages", "keys", "keys_after_plan"),
    [
        ("4.9.7-killed", [index_cut], 997, 0),
        ("4.7.1-killed", [index_cut], 998, 0),
        ("4.4.0-clean", [index_swapped], 0, 0),
        ("5.5.0-shop", [slots_zeroed, magic_flipped], 305, 2),
        ("4.9.7-shop", [slots_zeroed, key_flipped], 284, 1),
        ("5.5.0-killed", [index_entries_flipped], 2, 0),
        ("5.5.0-killed", [index_begins_later], 823, 0),
        ("5.3.3-killed", [index_count_flipped], 728, 0),
        ("5.5.0-clean", [colliding_key_flipped], 1, 1),
        ("4.9.7-trimmed", [key_twice], 0, 0),
        ("4.9.7-trimmed", [key_twice, index_gone], 531, 0),
        ("4.9.7-trimmed", [key_twice, slots_zeroed], 531, 0),
        ("4.9.7-trimmed", [key_twice, magic_of_key_twice], 192, 3),
        ("5.3.3-shop", [last_file_twice], 0, 0),
        ("5.3.3-clean", [newer_than_checkpoint(0)], 2036, 0),
        ("5.3.3-clean", [newer_than_checkpoint(1)], 1037, 0),  # a message has its last key in the second file
        ("5.3.3-clean", [newer_than_checkpoint(2)], 38, 0),
        ("4.9.7-clean", [size_flipped(3)], 0, 0),  # a query reads more than the message, which a client decodes
        ("4.9.7-clean", [size_flipped(14)], 0, 0),
        ("4.9.7-clean", [size_flipped(5)], 13, 13),  # less than the message
        ("4.9.7-clean", [size_flipped(17)], 13, 13),  # more than the file has
        ("4.9.7-clean", [size_flipped(31)], 13, 13),
        ("5.5.0-trimmed", [untagged(lambda record: record[:4] + b"\0" + record[5:])], 2, 2),  # the index has tags
        ("5.5.0-trimmed", [untagged(lambda record: bytes(len(record)))], 2, 2),
        ("5.1.4-trimmed", [index_page_zeroed], 259, 0),
        ("5.1.4-killed", [topic_flipped(425318)], 3, 0),
        ("4.9.7-killed", [topic_flipped(313207)], 4, 0),
    ],
)
def test_keys_that_a_broker_does_not_find(
    name: str, damages: list[Callable[[Path], None]], keys: int, keys_after_plan: int, tmp_path: Path
) -> None:
    """As many as the broker of the release did not, which was asked for each of them."""
    store = stores.unpack(name, tmp_path)
    for damage in damages:
        damage(store)
    outcome = verify(store, version=name.partition("-")[0], conf=INDEX_CONF)
    assert lost(outcome).get("keys_not_found", 0) == keys
    assert outcome.clients is not None
    assert outcome.clients.keys_in_damage == keys_after_plan


@pytest.mark.slow
def test_an_index_that_a_start_would_make_under_a_damaged_topic(tmp_path: Path) -> None:
    """It is made before the start, with the topic that the queue entry shows, and the start keeps it."""
    store = stores.unpack("5.1.4-killed", tmp_path)
    topic_flipped(425318)(store)
    index_gone(store)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in (SETTINGS | LEVELS).items()))
    broker = ("--broker-version", "5.1.4", "--broker-conf", conf)
    result = run("verify", store, *broker, "--json").document["result"]
    assert [result[part]["clients"]["keys_not_found"] for part in ("start", "plan")] == [3, 0]
    assert run("repair", store, "--yes", *broker).status == 1  # the topic stays as it is
    result = run("verify", store, *broker, "--json").document["result"]
    assert result["start"]["clients"]["keys_not_found"] == 0


WRONG_MAGIC = [
    ("4.4.0-clean", "orders", 100, 1, 0x01, {}, {}),
    ("4.4.0-clean", "orders", 100, 1, 0x0C, {}, {}),  # that of the second format, whose topics have longer lengths
    ("4.7.1-clean", "orders", 100, 1, 0xFF, {}, {}),
    ("4.9.7-clean", "sensors", 10, 1, 0x01, {}, {}),  # which light queues have, too
    ("4.9.7-clean", "SCHEDULE_TOPIC_XXXX", 0, 1, 0x01, {}, {}),
    ("4.9.7-clean", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 1, 0x01, {}, {}),
    ("4.4.0-clean", "orders", 100, 2, 0x01, {}, {"unreachable": 2, "keys_not_found": 7}),  # which no repair parts
    ("5.1.4-clean", "orders", 100, 1, 0x01, {"unreachable": 1, "keys_not_found": 4}, {}),
    (
        "5.5.0-clean",
        "SCHEDULE_TOPIC_XXXX",
        -9,
        1,
        0x01,
        {"unreachable": 1, "keys_not_found": 2, "delayed_never": 1},
        {},
    ),
    ("5.5.0-clean", "SCHEDULE_TOPIC_XXXX", 0, 1, 0x01, {"unreachable": 1, "keys_not_found": 2, "delayed_never": 1}, {}),
]
"""The store, the topic of a message and which of it, how many records from there on, the bits that change in their
magic codes, and what a start and the plan lose."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (0, 8380, "commitlog.lengths"),
        (0, 40, "commitlog.lengths"),
        (0, 1 << 20, "commitlog.huge-size"),
        (0, -1, "commitlog.lengths"),
        (4, MAGIC_CODE_V1 ^ 4, "commitlog.magic-code"),
        (4, MAGIC_CODE_V1 ^ 0x40000000, "commitlog.magic-code"),
    ],
)
def test_a_last_record_that_is_whole_but_for_its_head(place: int, value: int, code: str, tmp_path: Path) -> None:
    """No write that ended early leaves it: consumers had it, a start cuts it, and a repair puts it right."""
    store = stores.unpack("4.4.0-shop", tmp_path)
    last = records_of(store)[-1]
    write(last.file, last.at + place, struct.pack(">i", value))
    outcome = verify(store, version="4.4.0", conf=INDEX_CONF)
    assert {code} == {each for each in codes_of(outcome) if each in ("commitlog.torn", "commitlog.stale-bytes", code)}
    assert lost(outcome) == {"unreachable": 1, "keys_not_found": 2}
    run("repair", store, "--yes", "--broker-version", "4.4.0", "--allow-older-release")
    assert records_of(store)[-1].size == last.size


@pytest.mark.slow
@pytest.mark.parametrize(("name", "topic", "number", "records", "bits", "expected", "after_plan"), WRONG_MAGIC)
def test_a_wrong_magic_code_that_no_start_scans(
    name: str,
    topic: str,
    number: int,
    records: int,
    bits: int,
    expected: dict[str, int],
    after_plan: dict[str, int],
    tmp_path: Path,
) -> None:
    """Before 5.1 pulls and queries give the message: `MessageDecoder` passes over the field. What they get stays."""
    store, version = stores.unpack(name, tmp_path), name.partition("-")[0]
    messages = [*rmqtool.open(store).messages()]
    first = [place for place, each in enumerate(messages) if each.topic == topic][number]
    for each in messages[first : first + records]:
        file = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= each.physical_offset)
        at = each.physical_offset - int(file.name) + 7
        write(file, at, bytes([file.read_bytes()[at] ^ bits]))
    assert lost(verify(store, version=version, conf=INDEX_CONF)) == expected
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in INDEX_CONF.settings.items()))
    plan = run("--json", "verify", store, "--broker-version", version, "--broker-conf", conf).document["result"]["plan"]
    found = {"unreachable": plan["clients"]["unreachable"]["messages"],
             "keys_not_found": plan["clients"]["keys_not_found"],
             "delayed_never": plan["clients"]["delayed"]["never"]}  # fmt: skip
    assert {kind: count for kind, count in found.items() if count} == after_plan
    assert bool([each for step in plan["steps"] for each in step["lost"]]) == bool(after_plan)


@pytest.mark.slow
def test_an_entry_that_a_start_derives_and_cuts_again(tmp_path: Path) -> None:
    """The first record of a queue tells a position past the log: its entry comes after the others, and goes again."""
    store = stores.unpack("5.5.0-shop", tmp_path)
    first = next(each for each in records_of(store) if (each.topic, each.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2))
    write(first.file, first.at + 29, b"\x20")
    outcome = verify(store, version="5.5.0", conf=BrokerConf({**SETTINGS, **SHOP_SETTINGS}))
    assert lost(outcome) == {"unreachable": 1, "keys_not_found": 2}
    assert outcome.start is not None
    assert not outcome.start.queues


WRONG_PROPERTIES_SIZES = [
    ("5.1.4-clean", 169329, 0x80, 0, {"missed_by_tag": 1, "keys_not_found": 2}),  # below zero: there are none
    ("5.5.0-clean", 289047, 0, 0x40, {"missed_by_tag": 1, "keys_not_found": 1}),  # the end of its last key is cut off
    ("5.5.0-clean", 289047, 0x40, 0, {"unreachable": 1, "keys_not_found": 4}),  # longer than the record
    ("4.9.7-shop", 34160, 0x40, 0, {"unreachable": 1, "keys_not_found": 2}),  # the last record, where a start cuts it
    ("4.9.7-shop", 24655, 0, 0x80, {"unreachable": 36, "keys_not_found": 64, "groups": 3}),  # a start ends the log here
    ("5.3.3-shop", 35123, 0, 0x40, {"unreachable": 37, "keys_not_found": 58, "groups": 2}),  # the same, of a batch
]
"""The store, the physical offset of a record, bits that change in the two bytes of the length of its properties, and
what the start costs."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "physical_offset", "high", "low", "expected"), WRONG_PROPERTIES_SIZES)
def test_a_wrong_length_of_properties(
    name: str, physical_offset: int, high: int, low: int, expected: dict[str, int], tmp_path: Path
) -> None:
    """Pulls give as many bytes as the queue entry says, and clients take the properties that the length covers.

    One bit is proven and put right, with all that a start would cost.
    """
    store, version = stores.unpack(name, tmp_path), name.partition("-")[0]
    record = next(each for each in records_of(store) if each.physical_offset == physical_offset)
    at = record.at + record.fields["properties"] - 2
    found = record.file.read_bytes()[at : at + 2]
    write(record.file, at, bytes([found[0] ^ high, found[1] ^ low]))
    conf, settings = tmp_path / "broker.conf", {**SETTINGS, **SHOP_SETTINGS, **({} if "shop" in name else LEVELS)}
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    assert lost(verify(store, version=version, conf=BrokerConf(settings))) == expected
    plan = run("--json", "verify", store, "--broker-version", version, "--broker-conf", conf).document["result"]["plan"]
    kinds = plan["clients"]["unreachable"]["messages"], plan["clients"]["missed_by_tag"], plan["clients"]["groups"]
    assert (*kinds, plan["clients"]["keys_not_found"]) == (0, 0, [], 0)
    lines = [each for step in plan["steps"] for each in step["lost"]]
    assert not [each for each in lines if "newest message" not in each]  # that of a backup of the log's end


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damages", "after_start", "after_plan"),
    [
        ([size_flipped(3)], 0, 0),
        ([size_flipped(3), other_key_flipped], 1, 1),
        ([size_flipped(5), other_key_flipped], 14, 1),
        ([size_flipped(3), slots_zeroed], 999, 0),
    ],
)
def test_a_size_put_right_brings_no_key_back_that_queries_find(
    damages: list[Callable[[Path], None]], after_start: int, after_plan: int, tmp_path: Path
) -> None:
    """Only where the index is made again, which has keys of whole messages only, would it lack them."""
    store, conf = stores.unpack("4.9.7-clean", tmp_path), tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=1000\n")
    for damage in damages:
        damage(store)
    result = run("--json", "verify", store, "--broker-version", "4.9.7", "--broker-conf", conf).document["result"]
    assert result["start"]["clients"]["keys_not_found"] == after_start
    assert result["plan"]["clients"]["keys_not_found"] == after_plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queue", "unit", "width", "more", "expected"),
    [
        ("consumequeue/reminders/0", 2, UNIT, 512, {"unreachable": 1}),
        ("consumequeue/reminders/0", 2, UNIT, -20, {"unreachable": 1}),
        ("consumequeue/reminders/0", 2, UNIT, -400, {"unreachable": 3, "groups": 1}),  # no unit at all: the queue ends
        ("consumequeue/SCHEDULE_TOPIC_XXXX/16", 0, UNIT, 64, {"unreachable": 1, "delayed_never": 1}),
        ("batchconsumequeue/bulk/0", 1, 46, 64, {"unreachable": 4}),
        ("batchconsumequeue/bulk/0", 1, 46, -64, {"unreachable": 4}),
    ],
)
def test_entries_of_another_size(
    queue: str, unit: int, width: int, more: int, expected: dict[str, int], tmp_path: Path
) -> None:
    """A pull returns as many bytes as the entry says: they are no message, or more than one."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    file = min((store / queue).iterdir())
    size = struct.unpack_from(">i", file.read_bytes(), unit * width + 8)[0]
    write(file, unit * width + 8, struct.pack(">i", size + more))
    assert lost(verify(store, version="5.3.3")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-killed", "4.9.7-shop", "5.3.3-killed", "5.5.0-shop"])
def test_a_healthy_store_loses_nothing(name: str, tmp_path: Path) -> None:
    """All zero, and neither is the verdict corrupt."""
    outcome = verify(stores.unpack(name, tmp_path), version=name.partition("-")[0])
    assert lost(outcome) == {}
    assert outcome.verdict in ("clean", "dirty")


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean"])
def test_keys_that_a_start_after_a_kill_takes_away(name: str, tmp_path: Path) -> None:
    """The index file is newer than the checkpoint's index time: all keys before the place of the scan are lost."""
    store = stores.unpack(name, tmp_path)
    killed(store)
    outcome = verify(store, version=name.partition("-")[0])
    assert outcome.start is not None
    put_from = outcome.start.dispatched_from or 0
    before = sum(count for start, count in zip(outcome.total.keys.starts, outcome.total.keys.counts, strict=True)
                 if start < put_from)  # fmt: skip
    assert lost(outcome) == ({"keys_not_found": before} if before else {})
    assert ("start.keys-lost" in codes_of(outcome)) == bool(before)


@pytest.mark.parametrize("count", [0, 1, 10, 16])
def test_keys_that_were_not_put_before_a_kill(count: int, tmp_path: Path) -> None:
    """The start puts them, and takes as many others away as if they had been there."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    newer_than_checkpoint(2)(store)
    without_last_keys(max((store / "index").iterdir()), count)
    outcome = verify(store, version="5.3.3", conf=INDEX_CONF)
    assert lost(outcome) == {"keys_not_found": 38}
    assert [each.count for each in outcome.findings if each.code == "start.keys-lost"] == [38]


def without_last_keys(file: Path, count: int) -> None:
    """An index file as it was before the last keys were put, but for the times in its header."""
    data, slots = bytearray(file.read_bytes()), int(INDEX_CONF.settings["maxHashSlotNum"])
    last = int.from_bytes(data[36:40], "big") - 1
    for unit in range(last, last - count, -1):
        key_hash, _, _, previous = struct.unpack_from(">iqii", data, unit_position(slots, unit))
        struct.pack_into(">i", data, slot_position(key_hash % slots), previous)
    physical_offset = struct.unpack_from(">q", data, unit_position(slots, last - count) + 4)[0]
    struct.pack_into(">q", data, 24, physical_offset)
    struct.pack_into(">i", data, 36, last - count + 1)
    file.write_bytes(data)


@pytest.mark.slow
def test_light_queues_of_a_broker_that_writes_the_others_twice(tmp_path: Path) -> None:
    """They are in RocksDB only, so that the rows count that the start cuts with the log."""
    store = stores.unpack("more/5.5.0-rocksdb-twice", tmp_path)
    messages = [*rmqtool.open(store).messages()]
    first = [each for each in messages if "INNER_MULTI_DISPATCH" in each.properties][-1]
    cut = max((each for each in messages if each.physical_offset < first.physical_offset),
              key=lambda each: each.physical_offset)  # fmt: skip
    write(store / "commitlog" / ("0" * 20), cut.physical_offset + 4, b"\0")  # its magic code
    outcome = verify(store, version="5.5.0", conf=BrokerConf(ROCKSDB["more/5.5.0-rocksdb-twice"]))
    assert outcome.clients is not None
    light = {each.topic: each.messages for each in outcome.clients.unreachable.queues if each.topic[:5] == "%LMQ%"}
    assert light == {"%LMQ%alice": 1, "%LMQ%bob": 1}


@pytest.mark.slow
def test_delayed_messages_of_a_broker_that_writes_queues_twice(tmp_path: Path) -> None:
    """The start begins the rows where the file ends: what is delivered is what the file leads to."""
    store, name = stores.unpack("more/5.5.0-rocksdb-twice", tmp_path), "more/5.5.0-rocksdb-twice"
    write(store / "consumequeue/SCHEDULE_TOPIC_XXXX/16" / ("0" * 20), UNIT, bytes(2 * UNIT))
    outcome = verify(store, version="5.5.0", conf=BrokerConf(ROCKSDB[name]))
    assert outcome.clients is not None
    assert outcome.clients.delayed.never == outcome.clients.unreachable.messages == 2


def test_a_queue_that_is_derived_at_other_offsets(tmp_path: Path) -> None:
    """A wrong unit ends the queue, and the scan begins at a later message: each message takes the place of another."""
    store = stores.unpack("4.7.1-trimmed", tmp_path)
    write(store / QUEUE / "00000000000000000600", 6 * UNIT, b"\x80")
    (store / "abort").touch()
    outcome = verify(store, version="4.7.1")
    assert lost(outcome).items() >= {"unreachable": 24}.items()
    assert [each.first_queue_offset for each in outcome.clients.unreachable.queues] == [42]  # type: ignore[union-attr]
    found = next(each for each in outcome.findings if each.code == "start.queue-loss")
    assert found.details == {"problem": "shifted", "messages": 24, "first_offset": 36, "shift": 6, "max_offset": 60}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "unit"),
    [
        # Only expired units are left, so that the minimum is 0 before 5.0: clients had another one.
        (f"{QUEUE}/00000000000000000600", 12),
        # Its one message in the log is derived in the place of an expired one, but the start finds the old unit, too.
        ("consumequeue/SCHEDULE_TOPIC_XXXX/9/00000000000000000000", 0),
    ],
)
def test_a_queue_whose_units_in_the_log_are_derived_again(file: str, unit: int, tmp_path: Path) -> None:
    """The group goes on where it was, and the delayed message is delivered."""
    store = stores.unpack("4.7.1-trimmed", tmp_path)
    write(store / file, unit * UNIT, b"\x80")
    (store / "abort").touch()
    outcome = verify(store, version="4.7.1")
    assert lost(outcome) == {}


def log_file_cut(store: Path) -> dict[str, int]:
    """A broker refuses; three levels have units into what is gone only, and no message in the log."""
    os.truncate(min((store / "commitlog").iterdir()), 32768)
    return {"unreachable": 78, "delayed_never": 3}


def log_file_cut_and_filters_gone(store: Path) -> dict[str, int]:
    """Filters of another Bloom filter: what else a start would take."""
    filters = {"g": {"bloomFilterData": {"bitNum": 224, "bitPos": [1]}}}
    table = {"filterDataByTopic": {"orders": {"groupFilterData": filters}}}
    (store / "config/consumerFilter.json").write_text(json.dumps(table))
    return log_file_cut(store) | {"filters_lost": 1}


def delayed_zeroed(store: Path) -> dict[str, int]:
    """The start ends the log there: a level whose one message is damage, and the next one."""
    found = [each for each in rmqtool.open(store).messages() if each.topic == "SCHEDULE_TOPIC_XXXX"][-2]
    file = max(each for each in (store / "commitlog").iterdir() if int(each.name) <= found.physical_offset)
    write(file, found.physical_offset - int(file.name), bytes(245))
    return {"unreachable": 44, "keys_not_found": 69, "delayed_never": 2}


@pytest.mark.slow
@pytest.mark.parametrize("damage", [log_file_cut, log_file_cut_and_filters_gone, delayed_zeroed])
def test_levels_of_which_the_log_has_only_damage(damage: Callable[[Path], dict[str, int]], tmp_path: Path) -> None:
    """Nobody delivers them, and of a start that is refused the numbers are those of the files as they stand."""
    store = stores.unpack("4.9.7-trimmed", tmp_path)
    expected = damage(store)
    conf = BrokerConf({"expectConsumerNumUseFilter": "64"}) if "filters_lost" in expected else None
    assert expected.items() <= lost(verify(store, version="4.9.7", conf=conf)).items()


@pytest.mark.slow
def test_a_group_that_was_in_a_first_file_that_is_gone(tmp_path: Path) -> None:
    """The log still has the messages: clients had them, and the group goes on at the new minimum."""
    store = stores.unpack("4.4.0-killed", tmp_path)
    min((store / "consumequeue/orders/3").iterdir()).unlink()
    outcome = verify(store, version="4.4.0")
    assert outcome.clients is not None
    assert outcome.clients.groups == [MovedGroup("behind", "orders", 3, 0, 30)]
    assert outcome.clients.by_offsets
    assert outcome.clients.by_offsets.groups() == []


@pytest.mark.slow
def test_a_repair_leaves_groups_past_the_end_of_topics_that_lost_nothing(tmp_path: Path) -> None:
    """Group `beyond` was past the end of `early` before a record of `orders` was damaged: the broker sends it to 0."""
    store = stores.unpack("4.4.0-killed", tmp_path)
    offsets = (store / "config/consumerOffset.json").read_bytes()
    first = next(each for each in rmqtool.open(store).messages() if each.topic == "orders")
    write(store / "commitlog" / ("0" * 20), first.physical_offset + 4, b"\0")  # its magic code
    run("repair", store, "--yes", "--broker-version", "4.4.0", "--allow-older-release")
    assert (store / "config/consumerOffset.json").read_bytes() == offsets


def bodies_flipped(topic: str, transaction: int) -> Callable[[Path], None]:
    """A body of the last log file that is not that of its CRC, of a record of a topic and of a transaction type."""

    def apply(store: Path) -> None:
        found = [each for each in records_of(store) if (each.topic, each.sys_flag & 12) == (topic, transaction)]
        where = found[-1].at + found[-1].fields["body"]
        write(found[-1].file, where, bytes([found[-1].file.read_bytes()[where] ^ 1]))

    return apply


def an_hour_later(store: Path) -> None:
    """A checkpoint that knows a message after the end of the log."""
    times = struct.unpack(">2q", (store / "checkpoint").read_bytes()[:16])
    write(store / "checkpoint", 0, struct.pack(">2q", *(time + 3_600_000 for time in times)))


def last_file_gone(store: Path) -> None:
    """The last log file with messages, and what follows it, are not there."""
    held = [file for file in sorted((store / "commitlog").iterdir()) if any(file.read_bytes())]
    for file in (store / "commitlog").iterdir():
        if file >= held[-1]:
            file.unlink()


def first_file_emptied(store: Path) -> None:
    """The first log file has no byte: it is taken out, for a broker refuses to start with it."""
    os.truncate(min((store / "commitlog").iterdir()), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "topics"),
    [
        (bodies_flipped("payments", 12), set()),
        (bodies_flipped("payments", 8), set()),
        (bodies_flipped("orders", 0), {"orders"}),
        (an_hour_later, {"early", "orders"}),
        (last_file_gone, {"early", "orders"}),
        (first_file_emptied, {"early", "orders"}),
    ],
    ids=["rollback", "commit", "orders", "checkpoint", "last-file", "first-file"],
)
def test_a_plan_says_which_groups_the_repair_brings_to_the_end(
    damage: Callable[[Path], None], topics: set[str], tmp_path: Path
) -> None:
    """Group `beyond` was past the ends of `early` and `orders`: only what may have been there is a loss of theirs."""
    store = stores.unpack("4.7.1-clean", tmp_path)
    damage(store)
    options = "--broker-version", "4.7.1", "--allow-older-release", "--json"
    planned = run("verify", store, *options[:2], "--json").document["result"]["plan"]["clients"]["groups"]
    before = (store / "config/consumerOffset.json").read_text()
    run("repair", store, "--yes", *options)
    now = (store / "config/consumerOffset.json").read_text()
    assert {name for name in ("early", "orders") if offsets_of(before, name) != offsets_of(now, name)} == topics
    assert {each["topic"] for each in planned if each["group"] == "beyond"} == topics


def offsets_of(text: str, topic: str) -> str:
    """The offsets of group `beyond` in a topic, as they are written."""
    found = re.search(rf'"{topic}@beyond":\s*\{{[^}}]*\}}', text)
    assert found
    return found[0]


@pytest.mark.slow
def test_groups_of_a_broker_that_reads_no_offsets(tmp_path: Path) -> None:
    """A start of 4.9.3 with light queues finds none, and no repair helps; it checks all half messages."""
    store = stores.unpack("4.9.7-shop", tmp_path)
    assert (store / "config/lmqConsumerOffset.json").exists()
    conf = BrokerConf({"enableLmq": "true", "enableMultiDispatch": "true"})
    outcome = verify(store, version="4.9.3", conf=conf)
    assert outcome.clients is not None
    assert outcome.clients.by_offsets
    assert len(outcome.clients.groups) > 5
    assert {moved.next_after for moved in outcome.clients.groups} == {None}
    assert outcome.clients.by_offsets.groups(outcome.snapshot.committed.offsets) == outcome.clients.groups
    assert lost(outcome).keys() == {"groups"}
    assert codes_of(outcome) == {"upgrade.changed"}
    assert outcome.verdict == "clean"
    shutil.rmtree(store / QUEUE)
    assert verify(store, version="4.9.3", conf=conf).verdict == "corrupt"


def test_what_is_left_after_a_repair() -> None:
    """Queue entries and keys come back where their messages are whole."""
    losses = ClientLosses(keys_not_found=7, keys_in_damage=2)
    assert losses.healed(queues=True, index=True).keys_not_found == 2
    assert losses.healed(queues=True, index=False).keys_not_found == 7
    assert not ClientLosses()


@pytest.mark.parametrize(("bit", "found"), [(3, "a message that claims a larger size"), (5, "where no record begins")])
def test_a_query_says_what_a_broker_would_give(bit: int, found: str, tmp_path: Path) -> None:
    """As verify counts it: a key of a message with a size that is too large is found."""
    store = stores.unpack("4.9.7-clean", tmp_path)
    size_flipped(bit)(store)
    done = run("query", store, "--key", "early-6-0")
    assert f"an index entry points to 4350, {found}" in done.out + done.err


@pytest.mark.slow
def test_a_topic_that_offsets_prove(tmp_path: Path) -> None:
    """Its queues are not deleted ones: their messages are lost, until its line and then its queues are put back."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    shutil.rmtree(store / "consumequeue" / "orders")
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    del table["topicConfigTable"]["orders"]
    path.write_text(json.dumps(table), encoding="utf-8")
    result = run("verify", store, "--broker-version", "5.3.3", "--json").document["result"]
    lost = [result[each]["clients"]["unreachable"]["messages"] for each in ("start", "plan")]
    assert (result["verdict"], lost) == ("corrupt", [61, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changed", "is_proven"),
    [("5.3.3-shop", None, True), ("4.7.1-shop", 0, True), ("4.7.1-shop", None, False), ("4.7.1-shop", 1 << 42, False)],
)
def test_whether_a_topic_was_deleted_is_one_truth(
    name: str, changed: int | None, is_proven: bool, tmp_path: Path
) -> None:
    """Findings, clients' losses and the view of queues agree: by offsets, or by when topics.json was changed last."""
    store = stores.unpack(name, tmp_path)
    shutil.rmtree(store / "consumequeue" / "orders")
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    del table["topicConfigTable"]["orders"]
    if changed is not None:
        table["dataVersion"]["timestamp"] = changed
    path.write_text(json.dumps(table), encoding="utf-8")
    outcome, views = verify(store, version=name[:5]), QueueViews(Snapshot(open_store(store)))
    reported = {each.code for each in outcome.findings if each.topic == "orders"}
    assert ("consumequeue.missing-queue" in reported) is is_proven
    assert ("commitlog.deleted-topic" in reported) is not is_proven
    in_view = sum(views.of("orders", queue_id).unreachable for queue_id in range(4))
    assert outcome.clients is not None
    assert in_view == outcome.clients.unreachable.messages
    assert bool(in_view) is is_proven
