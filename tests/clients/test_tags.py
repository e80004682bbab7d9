"""Messages that consumers of their tag miss, as pulls of brokers with and without a tag show (`make clients`)."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqtool
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.consume_queue import EXT_HEADER, MAX_EXT_ADDRESS, MIN_EXT_UNIT_SIZE, UNIT_SIZE, ext_address
from rmqtool.formats.java import string_hash
from rmqtool.formats.properties import encode_properties
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.verify.outcome import Outcome
from rmqtool.verify.queue_progress import QueueProgress
from tests.building import START_TIME
from tests.commands.running import rmqtool as run
from tests.deriving import derive
from tests.golden import stores
from tests.repair.damaged_fields import keys as keys_of
from tests.repair.damaged_fields import records_of
from tests.verify.small_store import GEOMETRY, QUEUE_FILE_SIZE, TOPICS, StoreBuilder, small_store, write_topics
from tests.verify.verifying import codes_of, verify

QUEUE = "consumequeue/orders/0"
RED = string_hash("red")
TAGGED, PLAIN = 1, 0
"""Queue offsets of a message with a tag, and of one without, in the small store's orders/0."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def set_code(store: Path, code: int, number: int = TAGGED, queue: str = QUEUE) -> None:
    """Give a unit of a queue's first file another tags code."""
    with min((store / queue).iterdir()).open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack(">q", code), number * UNIT_SIZE + 12)


def missed(outcome: Outcome) -> int:
    """What consumers of a tag miss, who lose nothing else."""
    assert outcome.clients is not None
    counts = {kind: count for kind, count in outcome.clients.counts().items() if count}
    assert counts.keys() <= {"missed_by_tag"}
    return counts.get("missed_by_tag", 0)


@pytest.mark.parametrize(
    ("code", "number", "verdict"),
    [
        (RED ^ 1 << 32, TAGGED, "clean"),
        (RED ^ 1 << 47, TAGGED, "clean"),
        (RED ^ 1 << 62, TAGGED, "clean"),
        (1 << 40, PLAIN, "clean"),
        (RED ^ 1 << 31, TAGGED, "corrupt"),
        (RED ^ 1 << 40 ^ 1, TAGGED, "corrupt"),
        (1, PLAIN, "corrupt"),  # it may as well be the record that has lost its tag
    ],
)
def test_bits_of_a_tags_code_that_brokers_do_not_compare(store: Path, code: int, number: int, verdict: str) -> None:
    """They cost nobody anything: a note says so."""
    set_code(store, code, number)
    outcome = verify(store)
    (finding,) = [each for each in outcome.findings if each.code == "consumequeue.tags-code"]
    is_harmless = verdict == "clean"
    assert outcome.verdict == verdict
    assert ("get the message all the same" in finding.effect) == is_harmless
    assert (finding.severity, finding.details["problem"]) == (
        ("info", "high-bits") if is_harmless else ("warning", "other")
    )


@pytest.mark.parametrize(
    ("code", "number", "count"),
    [
        (RED + 1, TAGGED, 1),
        (0, TAGGED, 1),
        (RED ^ 1 << 31, TAGGED, 1),
        (MAX_EXT_ADDRESS, TAGGED, 0),  # no tag is known without the ext unit, and the message is sent
        (-1 << 63, TAGGED, 0),
        (RED, PLAIN, 0),  # clients compare the text, and nobody asks for none
    ],
)
def test_a_wrong_tags_code(store: Path, code: int, number: int, count: int) -> None:
    """A broker compares the hash in the entry, a client the text: both must fit."""
    set_code(store, code, number)
    outcome = verify(store)
    assert missed(outcome) == count
    assert outcome.verdict == "corrupt"
    assert codes_of(outcome) & {"consumequeue.tags-code", "consumequeue.ext-address"}


@pytest.mark.parametrize("topic", ["%RETRY%billing", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "some_REPLY_TOPIC"])
def test_topics_that_are_read_whole(topic: str, tmp_path: Path) -> None:
    """Nobody asks for a tag in topics of brokers, and of retries."""
    builder = StoreBuilder()
    for _ in range(4):
        builder.put(topic, properties={"TAGS": "red"})
    store = small_store(tmp_path / "store", builder)
    set_code(store, 7, queue=f"consumequeue/{topic}/0")
    assert missed(verify(store)) == 0


def test_units_that_are_not_served(store: Path) -> None:
    """A message that nobody gets is not missed by its tag, too."""
    set_code(store, 7, 2)
    file = min((store / QUEUE).iterdir())
    with file.open("r+b") as opened:
        os.pwrite(opened.fileno(), bytes(2 * UNIT_SIZE), 0)
    outcome = verify(store)
    assert outcome.clients is not None
    assert outcome.clients.unreachable.messages >= 3
    assert outcome.clients.missed_by_tag == 0


def test_parts_of_a_log() -> None:
    """What later parts of the log show is added; a queue that begins again has lost what was before."""
    whole, later, again = (QueueProgress(QueueName("orders", 0), records=1) for _ in range(3))
    for place, part in enumerate((whole, later, again)):
        part.miss_by_tag(place, place + 1)
    whole.extend(later)
    assert whole.missed_by_tag == {0: 1, 1: 2}
    again.restarts = 1
    whole.extend(again)
    assert whole.missed_by_tag == {2: 3}
    whole.restart()
    assert not whole.missed_by_tag


def record_flipped(store: Path) -> None:
    """The tag of the record itself is another."""
    file = min((store / "commitlog").iterdir())
    with file.open("r+b") as opened:
        at = file.read_bytes().index(b"TAGS\1red") + 5
        os.pwrite(opened.fileno(), b"r\x1ad", at)


def unit_changed(store: Path) -> None:
    set_code(store, 7)


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "after"), [(unit_changed, 0), (record_flipped, 1)])
def test_what_a_plan_gives_back(store: Path, damage: Callable[[Path], None], after: int) -> None:
    """A queue that is derived again has the right codes; a tag that the record has lost comes back by nothing."""
    damage(store)
    result = run("verify", store, "--json").document["result"]
    assert result["start"]["clients"]["missed_by_tag"] == 1
    assert result["plan"]["clients"]["missed_by_tag"] == after
    assert "1 message missed by consumers of its tag" in run("verify", store).out
    run("repair", store, "--yes")
    again = run("verify", store, "--json").document["result"]
    assert again["start"]["clients"]["missed_by_tag"] == after


KEYS = {"KEYS": "key all", "UNIQ_KEY": "7F000001000018B4AAC2000000000004"}
ZEROS = {
    "with a tag": ({**KEYS, "TAGS": "red"}, None, (1, 3)),
    "without a tag": (KEYS, None, (0, 3)),
    "without a key": ({"TAGS": "red"}, None, (1, 0)),
    "no index": ({**KEYS, "TAGS": "red"}, "index", (1, 0)),
    "no queues": ({**KEYS, "TAGS": "red"}, "consumequeue", (0, 3)),
    "nothing to lose": ({"WAIT": "true"}, None, (0, 0)),
}
"""Properties of the message, what else is gone, and what clients miss: messages of their tag, and keys."""


WITH_TAGS = {
    "tagged": ({**KEYS, "TAGS": "red"}, None, 3),
    "plain": (KEYS, None, 3),
    "without queues": ({**KEYS, "TAGS": "red"}, "consumequeue", 3),
}
"""Properties of the message, what else is gone, and how many keys queries do not find."""


def zero_properties(store: Path, number: int, size: int) -> None:
    """Overwrite all properties of a record."""
    record = records_of(store)[number]
    with (store / record.path).open("r+b") as opened:
        os.pwrite(opened.fileno(), bytes(size), sum(record.fields["topic"]) + 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZEROS)
def test_properties_of_zeros(name: str, tmp_path: Path) -> None:
    """Entry and index unit show what a message had of which no property is left, and a repair keeps them."""
    properties, gone, lost = ZEROS[name]
    builder = StoreBuilder()
    for number in range(5):
        builder.put(properties=properties if number == 2 else {"KEYS": f"other-{number}", "TAGS": "blue"})
    store = small_store(tmp_path / "store", builder)
    zero_properties(store, 2, len(encode_properties(properties)))
    if gone:
        shutil.rmtree(store / gone)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeConsumeQueue={QUEUE_FILE_SIZE}\nmaxHashSlotNum=40\nmaxIndexNum=400\n")
    units = keys_of(store)
    result = run("verify", store, "--json", "--broker-conf", conf).document["result"]
    for step, others in (("start", 4 if gone == "index" else 0), ("plan", 0)):
        clients = result[step]["clients"]
        assert (clients["missed_by_tag"], clients["keys_not_found"] - others) == lost
    run("repair", store, "--yes", "--broker-conf", conf)
    assert units <= keys_of(store)
    clients = run("verify", store, "--json", "--broker-conf", conf).document["result"]["start"]["clients"]
    assert (clients["missed_by_tag"], clients["keys_not_found"]) == lost


@pytest.mark.slow
def test_the_unit_of_tags_is_no_key(tmp_path: Path) -> None:
    """Since 5.4 the index has the tags, too: the queue entry shows which unit is theirs, or that there is none."""
    for name, (properties, gone, keys) in WITH_TAGS.items():
        builder = StoreBuilder()
        for number in range(5):
            builder.put(properties=properties if number == 2 else {"KEYS": f"other-{number}", "TAGS": "blue"})
        store = builder.write(tmp_path / name)
        derive(store, QUEUE_FILE_SIZE, GEOMETRY, index_tags=True)
        write_topics(store, TOPICS)
        zero_properties(store, 2, len(encode_properties(properties)))
        if gone:
            shutil.rmtree(store / gone)
        outcome = verify(store)
        assert outcome.clients is not None
        assert outcome.clients.keys_in_damage == keys, name


EXT = "consumequeue_ext/orders/0"


def with_ext_units(store: Path) -> Path:
    """Put the tags codes of a queue into ext units, as with enableConsumeQueueExt=true, in files of five."""
    units, files = b"", list[bytes]()
    for file in sorted((store / QUEUE).iterdir()):
        data = bytearray(file.read_bytes())
        for at in range(0, len(data), UNIT_SIZE):
            if any(data[at : at + 12]):
                if len(units) == 5 * MIN_EXT_UNIT_SIZE:
                    files.append(units + b"\xff\xff\0\0")
                    units = b""
                code = struct.pack(">q", ext_address(len(files) * (5 * MIN_EXT_UNIT_SIZE + 4) + len(units)))
                units += EXT_HEADER.pack(
                    MIN_EXT_UNIT_SIZE, int.from_bytes(data[at + 12 : at + 20], "big", signed=True), START_TIME, 0
                )
                data[at + 12 : at + 20] = code
        file.write_bytes(data)
    (store / EXT).mkdir(parents=True)
    for number, data_of_file in enumerate([*files, units.ljust(5 * MIN_EXT_UNIT_SIZE + 4, b"\0")]):
        (store / EXT / f"{number * (5 * MIN_EXT_UNIT_SIZE + 4):020d}").write_bytes(data_of_file)
    return store


def ext_changed(store: Path, at: int, data: bytes) -> None:
    with min((store / EXT).iterdir()).open("r+b") as file:
        os.pwrite(file.fileno(), data, TAGGED * MIN_EXT_UNIT_SIZE + at)


CODE, ADDRESS = "consumequeue.tags-code", "consumequeue.ext-address"
EXT_DAMAGES: dict[str, tuple[Callable[[Path], object], int, set[str]]] = {
    "none": (lambda store: None, 0, set()),
    "tags code": (lambda store: ext_changed(store, 2, struct.pack(">q", RED + 1)), 1, {CODE}),
    "high bits": (lambda store: ext_changed(store, 2, b"\x01"), 0, {CODE}),
    "size": (
        lambda store: ext_changed(store, 0, bytes(2)),
        0,
        {ADDRESS},
    ),  # sent for any tag
    "size past the file": (lambda store: ext_changed(store, 0, b"\x7f"), 0, {ADDRESS}),
    "store time": (lambda store: ext_changed(store, 10, b"\x01"), 0, set()),
    "another unit": (lambda store: set_code(store, ext_address(PLAIN)), 1, {CODE}),
    "middle of a unit": (lambda store: set_code(store, ext_address(MIN_EXT_UNIT_SIZE + 6)), 1, {CODE}),
    "past the files": (lambda store: set_code(store, ext_address(1 << 30)), 0, {ADDRESS}),
    "first file gone": (lambda store: min((store / EXT).iterdir()).unlink(), 0, {ADDRESS}),
    "all files gone": (lambda store: shutil.rmtree(store / EXT), 0, {ADDRESS}),
}


@pytest.mark.parametrize("name", EXT_DAMAGES)
def test_ext_units(store: Path, name: str) -> None:
    """A broker compares what it finds at the address, and sends what it finds nothing for (`ConsumeQueue#getExt`)."""
    damage, count, codes = EXT_DAMAGES[name]
    with_ext_units(store)
    damage(store)
    outcome = verify(store)
    assert missed(outcome) == count
    assert outcome.verdict == ("corrupt" if codes_of(outcome) else "unproven")
    assert codes_of(outcome) == codes
    off = verify(store, conf=BrokerConf({"enableConsumeQueueExt": "false"}))
    assert missed(off) == 0
    assert codes_of(off) == codes - {ADDRESS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tags code", "another unit"])
def test_a_plan_gives_back_what_ext_units_hide(store: Path, name: str) -> None:
    """A queue entry of which the ext unit is wrong gets the plain code."""
    with_ext_units(store)
    EXT_DAMAGES[name][0](store)
    result = run("verify", store, "--json").document["result"]
    assert result["start"]["clients"]["missed_by_tag"] == 1
    assert result["plan"]["clients"]["missed_by_tag"] == 0
    run("repair", store, "--yes")
    assert missed(verify(store)) == 0


LIGHT = BrokerConf({"enableLmq": "true", "enableMultiDispatch": "true"})


@pytest.mark.slow
def test_a_light_queue_with_a_wrong_tags_code(tmp_path: Path) -> None:
    """The unit is wrong, and not which queues its record names."""
    store = stores.unpack("4.9.7-shop", tmp_path)
    set_code(store, 7, queue="consumequeue/%LMQ%alice/0")
    outcome = verify(store, version="4.9.7", conf=LIGHT)
    assert missed(outcome) == 1
    assert codes_of(outcome) == {CODE}


@pytest.mark.slow
def test_a_short_tag_that_units_of_several_queues_prove(tmp_path: Path) -> None:
    """Of one unit it would be as likely that it is wrong; consumers of each queue miss the message."""
    store = stores.unpack("4.9.7-killed", tmp_path)
    messages = rmqtool.open(store).messages()
    message = next(each for each in messages if each.tags == "Aa" and "INNER_MULTI_DISPATCH" in each.properties)
    queues, at = message.properties["INNER_MULTI_DISPATCH"].split(","), message.physical_offset
    file = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= at)
    at = file.read_bytes().index(b"TAGS\1Aa", at - int(file.name)) + 5
    with file.open("r+b") as opened:
        os.pwrite(opened.fileno(), b"a", at)
    outcome = verify(store, version="4.9.7", conf=LIGHT)
    assert missed(outcome) == 1 + len(queues)
    assert codes_of(outcome) >= {"commitlog.field"}
    assert CODE not in codes_of(outcome)
