"""Topics, filters and committed offsets that keep messages from consumers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import NEWEST
from rmqtool.show.verify_reports import outcome_json
from rmqtool.store.consumer_filters import load_filters
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.golden import stores
from tests.verify.small_store import small_store
from tests.verify.verifying import codes_of, only, verify

FULL = {"bitNum": 112, "bitPos": [1, 2, 3]}  # as by default: 20 percent, 32 groups


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def write(store: Path, name: str, content: object) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (store / "config" / name).write_text(text, encoding="utf-8")


def edit_topic(store: Path, **fields: object) -> None:
    table = json.loads((store / "config" / "topics.json").read_text())
    table["topicConfigTable"]["orders"].update(fields)
    write(store, "topics.json", table)


def offsets(store: Path, **of_group: dict[str, int]) -> None:
    write(store, "consumerOffset.json", {"offsetTable": {f"orders@{group}": each for group, each in of_group.items()}})


def unread(store: Path) -> dict[int, tuple[str, int]]:
    """Severity and number of messages of each queue that its topic keeps from consumers."""
    found = verify(store, selection=only("config.topic-queues")).findings
    return {int(each.queue_id or 0): (each.severity, each.details["messages"]) for each in found}


@pytest.mark.slow
def test_queues_that_nobody_may_read(store: Path) -> None:
    """The broker serves queues below readQueueNums, whatever writeQueueNums is, of topics that may be read."""
    edit_topic(store, readQueueNums=1, writeQueueNums=4, perm=6)
    ((queue_id, (severity, messages)),) = unread(store).items()
    assert (queue_id, severity) == (1, "warning")
    offsets(store, slow={"0": 0, "1": 3}, fast={"1": messages})
    assert unread(store) == {1: ("warning", messages - 3)}
    offsets(store, slow={"0": 0, "1": messages})
    assert unread(store) == {1: ("info", 0)}
    edit_topic(store, readQueueNums=4)
    assert unread(store) == {}
    edit_topic(store, perm=2)
    assert unread(store)[1] == ("info", 0)
    assert unread(store)[0][0] == "warning"
    assert "config.topic-queues" in codes_of(verify(store))
    assert verify(store).verdict != "corrupt"


def test_one_line_names_warnings(store: Path) -> None:
    """A verdict that is clean does not hide them."""
    edit_topic(store, perm=2)
    quiet = rmqtool("verify", store, "-q")
    assert quiet.out == f"clean: clients lose nothing; see config.topic-queues; next: rmqtool verify {store}\n"


@pytest.mark.parametrize(
    ("blooms", "settings", "lost"),
    [
        ([FULL], {}, 0),
        ([FULL, None], {}, 2),
        ([None], {}, 1),
        ([{"bitNum": 224, "bitPos": [1, 2, 3]}, FULL], {}, 2),
        ([{"bitNum": 112, "bitPos": [1, 2]}, FULL], {}, 2),
        ([{"bitNum": 112}, FULL], {}, 2),
        ([FULL], {"expectConsumerNumUseFilter": "64"}, 1),
        ([{"bitNum": 216, "bitPos": [1, 2, 3]}], {"expectConsumerNumUseFilter": "64"}, 0),
        ([FULL], {"expectConsumerNumUseFilter": "64 "}, 0),
        ([{"bitNum": 160, "bitPos": [1, 2, 3, 4]}], {"maxErrorRateOfBloomFilter": "10"}, 0),
        ([], {}, 0),
    ],
)
def test_filters_that_a_start_ignores(store: Path, blooms: list[Any], settings: dict[str, str], lost: int) -> None:
    """One filter of another Bloom filter, and the broker forgets all (`BloomFilter#isValid`)."""
    groups = {f"g{n}": {"expression": "a > 1"} | ({"bloomFilterData": bloom} if bloom else {})
              for n, bloom in enumerate(blooms)}  # fmt: skip
    write(store, "consumerFilter.json", {"filterDataByTopic": {"orders": {"groupFilterData": groups, "topic": "x"}}})
    conf = BrokerConf(settings)
    assert load_filters(open_store(store, conf), NEWEST).lost == lost
    outcome = verify(store, conf=conf, selection=only("config."))
    assert ("config.filters-ignored" in codes_of(outcome)) == (lost > 0)


def test_filters_of_an_unknown_size(store: Path) -> None:
    """Where all agree, and no broker.conf says otherwise, the broker may have another size: that is not proven."""
    groups = {"g": {"bloomFilterData": {"bitNum": 224, "bitPos": [1, 2, 3]}}}
    write(store, "consumerFilter.json", {"filterDataByTopic": {"orders": {"groupFilterData": groups}}})
    outcome = verify(store)
    assert outcome.verdict == "unproven"
    assert "filters of groups" in [gap.what for gap in outcome.gaps]


@pytest.mark.parametrize(
    "content", ["", "null", "{}", '{"filterDataByTopic":null}', '{"filterDataByTopic":{"t":null}}']
)
def test_no_filters(store: Path, content: str) -> None:
    """What holds none loses none."""
    write(store, "consumerFilter.json", content)
    assert load_filters(open_store(store), NEWEST).lost == 0


@pytest.mark.parametrize("key", ["filterDataByTopic", "groupFilterData"])
def test_filters_below_a_damaged_key(store: Path, key: str) -> None:
    """A broker does not find them there."""
    groups = {"g": {"bloomFilterData": FULL}, "h": {"bloomFilterData": FULL}}
    text = json.dumps({"filterDataByTopic": {"orders": {"groupFilterData": groups}}, "dataVersion": {"counter": 1}})
    write(store, "consumerFilter.json", text.replace(key, f"x{key[1:]}"))
    assert load_filters(open_store(store), NEWEST).lost == 2
    [found] = [each for each in verify(store).findings if each.code == "config.filters-ignored"]
    assert (found.details["problem"], found.details["contradicting"]) == ("key", 2)


@pytest.mark.parametrize(
    ("damaged", "backup", "groups"),
    [
        (b"orders@fi\0\0t", b"orders@first", ["first"]),
        (b"orders\0first", b"orders@first", ["first"]),
        (b"ord\xffrs@first", b"orders@first", ["first"]),
        (b"orders@fi\0\0t", None, ["fi\0\0t"]),
        (b"orders\0first", None, [""]),
        (b"orders@fi\\u0000t", b"orders@fi\\u0000t", ["fi\0t"]),
    ],
)
def test_groups_whose_names_are_damaged(store: Path, damaged: bytes, backup: bytes | None, groups: list[str]) -> None:
    """A broker decodes what no broker wrote, and has the offset for nobody; a repair puts the name back."""
    text = b'{"offsetTable":{"%b":{"0":2},"orders@other":{"0":2}}}'
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(text % damaged)
    if backup:
        path.with_name(f"{path.name}.bak").write_bytes(text % backup)
    outcome = verify(store)
    assert [(each.code, each.severity) for each in outcome.findings] == [("config.unreadable", "error")]
    lost = outcome_json(outcome)["start"]["clients"]["groups"]
    assert [(each["group"], each["next_after"]) for each in lost] == [(groups[0], None)]
    begins = "begin where their consumeFromWhere says" in rmqtool("repair", store, "--dry-run").out
    assert begins == (backup != b"orders@first")
    assert rmqtool("repair", store, "--yes").status == 0
    assert (b"orders@first" in path.read_bytes()) == (backup == b"orders@first")
    assert verify(store).verdict == "clean"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("topics.json", b'{"topicConfigTable":{"orders":{"read\0ueueNums":4,"topicName":"orders"}}}'),
        ("topics.json", b'{"topicConfigTable":{"orders":{"topicName":"ordfrs"}}}'),
        ("topics.json", b'{"topicConfigTable":{"orders":{"topicName":"orders"}},"data\x01ersion":{}}'),
        ("subscriptionGroup.json", b'{"subscriptionGroupTable":{"g":{"groupName":"f"}}}'),
        ("delayOffset.json", b'{"off\0\0tTable":{}}'),
        ("consumerFilter.json", b'{"filterDataByTopic":{"ord\0rs":{"groupFilterData":{}}}}'),
    ],
)
def test_damaged_names_in_other_files(store: Path, name: str, content: bytes) -> None:
    """What they named the broker takes for something else, or leaves at its default."""
    (store / "config" / name).write_bytes(content)
    (found,) = verify(store, selection=only("config.unreadable")).findings
    assert (found.severity, found.details["names"]) == ("warning", 1)
    assert verify(store).verdict == "corrupt"


def test_names_that_are_not_damaged(store: Path) -> None:
    """Other alphabets, and control characters in values."""
    text = '{"filterDataByTopic":{"größe":{"groupFilterData":{"g":{"expression":"a\\u0000\t = \'ü\'"}}}}}'
    write(store, "consumerFilter.json", text)
    assert not verify(store, selection=only("config.unreadable")).findings


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["consumerOffset.json", "lmqConsumerOffset.json"])
@pytest.mark.parametrize("content", ['{"x', "\0\0", '{"offsetTable":5}'])
def test_two_files_of_offsets(store: Path, broken: str, content: str) -> None:
    """Which of them counts is a setting: one that cannot be read is a finding of a broker that reads it, or a doubt."""
    for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
        write(store, name, content if name == broken else {"offsetTable": {"orders@g": {"0": 1}}})
    write(store, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": {"groupName": "g"}}})
    unknown = verify(store)
    assert unknown.verdict == "unproven"
    assert any(gap.what == "committed offsets" and broken in gap.text for gap in unknown.gaps)
    for is_light in (True, False):
        known = verify(store, conf=BrokerConf({"enableLmq": str(is_light).lower()}))
        is_read = (broken == "lmqConsumerOffset.json") == is_light
        assert ("config.consumer-offset" in codes_of(known)) == is_read
    assert ("config.consumer-offset" in codes_of(verify(store, version="4.7.1"))) == (broken == "consumerOffset.json")


def test_an_empty_store(tmp_path: Path) -> None:
    """A broker that was started on an unmounted disk: true, and what to think of first."""
    outcome = verify(stores.unpack("5.3.3-empty", tmp_path))
    assert (outcome.verdict, outcome.note) == ("clean", "empty: is this the right directory?")
    assert outcome_json(outcome)["note"] == outcome.note


def test_groups_of_a_damaged_file(store: Path) -> None:
    """A start reads none of them: its intact entries, and the others of its .bak, say where they were."""
    files = {"consumerOffset.json": {"orders@first": {"0": 2}, "orders@second": {"0": 2}},
             "consumerOffset.json.bak": {"orders@first": {"0": 1}, "orders@third": {"0": 1}}}  # fmt: skip
    for name, table in files.items():
        write(store, name, json.dumps({"offsetTable": table})[: -len('": {"0": 1}}}')])
    start = outcome_json(verify(store, version="4.9.7"))["start"]
    had = {each["group"]: each["next_had"] for each in start["clients"]["groups"]}
    assert had == {"first": 2}
