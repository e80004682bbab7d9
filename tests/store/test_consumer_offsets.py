"""Committed offsets of consumer groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.store.config_tables import CommittedOffset, CommittedOffsets, load_offsets, offsets_of_start
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unchanged import unchanged

PLAIN = "consumerOffset.json"
LMQ = "lmqConsumerOffset.json"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "config").mkdir()
    return tmp_path


def write(store: Path, name: str, content: object) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (store / "config" / name).write_bytes(data)


def load(store: Path) -> CommittedOffsets:
    with unchanged(store):
        return load_offsets(open_store(store))


def table(**places: Any) -> dict[str, Any]:
    return {"offsetTable": places}


def found(store: Path) -> list[tuple[str, str, int, int]]:
    return [(item.group, item.topic, item.queue_id, item.offset) for item in load(store).offsets]


def test_as_brokers_write_it(store: Path) -> None:
    """Each queue's offset is listed by group, topic and queue."""
    text = (
        b'{\n\t"dataVersion":{"counter":3},\n\t"offsetTable":{\n\t\t"t@h":{0:1},\n\t\t"t@g":{10:4,9:250,1:251\n\t\t}\n'
    )
    text += b"\t}\n}"
    write(store, PLAIN, text)
    assert load(store).offsets == (
        CommittedOffset("g", "t", 1, 251),
        CommittedOffset("g", "t", 9, 250),
        CommittedOffset("g", "t", 10, 4),
        CommittedOffset("h", "t", 0, 1),
    )
    assert load(store).file.path == store / "config" / PLAIN


def test_no_file(store: Path) -> None:
    """Without a file no group has consumed anything."""
    loaded = load(store)
    assert loaded.offsets == ()
    assert (loaded.file.path, loaded.file.problem) == (None, None)


def test_retry_topics_and_names_with_at(store: Path) -> None:
    """The first @ ends the topic, for a topic's name has none; the group's may."""
    write(store, PLAIN, table(**{"%RETRY%g@g": {"0": 1}, "t@g@h": {"0": 2}, "t@": {"0": 3}, "@g": {"0": 4}}))
    assert found(store) == [("", "t", 0, 3), ("g", "", 0, 4), ("g", "%RETRY%g", 0, 1), ("g@h", "t", 0, 2)]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"offsetTable": None},
        table(t={"0": 1}),
        {"offsetTable": {"t@g": {"0": "1"}}},
        {"offsetTable": {"t@g": {"0": 1.5}}},
        {"lmqOffsetTable": {"%LMQ%t": 1, "%LMQ%t@g": "2", "%LMQ%u@g": {"0": 3}, "%LMQ%v@g": False}},
    ],
)
def test_other_shapes_are_left_out(store: Path, content: object) -> None:
    """What is no offset of a queue is passed over, and what stands beside it is not."""
    write(store, PLAIN, content)
    assert found(store) == []
    beside = json.loads(json.dumps(content))
    if isinstance(beside.get("offsetTable"), dict):
        beside["offsetTable"]["beside@g"] = {"0": 9}
        write(store, PLAIN, beside)
        assert found(store) == [("g", "beside", 0, 9)]


@pytest.mark.parametrize(
    "content",
    [
        {"offsetTable": 7, "lmqOffsetTable": "x"},
        {"offsetTable": [1]},
        {"offsetTable": {"t@g": 5}},
        {"offsetTable": {"t@g": [1, 2]}},
        {"offsetTable": {"t@g": {"0": True}}},
        {"offsetTable": {"t@g": {"0": None}}},
        {"offsetTable": {"t@g": {"0": {"0": 1}}}},
        {"offsetTable": {"t@g": {"0": 1 << 63}}},
        {"offsetTable": {"t@g": {"x": 1, "": 2, "--1": 3, "1-": 4, "٣": 5, "1.0": 6, " 1": 7, "9" * 5000: 8, "+1": 9}}},
    ],
)
def test_what_no_decoder_takes(store: Path, content: dict[str, object]) -> None:
    """One value that fastjson cannot cast, and the broker has none of the file's offsets: it reads the .bak."""
    beside = content["offsetTable"]
    if isinstance(beside, dict):
        beside["beside@g"] = {"0": 9}
    write(store, PLAIN, content)
    assert found(store) == []
    assert str(load(store).file.problem).startswith("offsetTable: ")


def test_numbers_at_the_limits(store: Path) -> None:
    """Any offset that Java can hold is shown, negative ones too."""
    last = (1 << 63) - 1
    write(store, PLAIN, table(**{"t@g": {"0": last, "-1": -last, "2147483647": -1}}))
    assert found(store) == [("g", "t", -1, -last), ("g", "t", 0, last), ("g", "t", 2147483647, -1)]


def test_a_number_without_end(store: Path) -> None:
    """Whether Python converts that many digits or not, they are no offset."""
    write(store, PLAIN, b'{"offsetTable":{"t@g":{0:' + b"9" * 5000 + b"}}}")
    assert found(store) == []


def test_light_queues(store: Path) -> None:
    """An offset of a light queue has no number, for its queue is always 0."""
    write(store, LMQ, {"offsetTable": {"t@g": {"3": 1}}, "lmqOffsetTable": {"%LMQ%t@g": 7, "%LMQ%a@%LMQ%a": 8}})
    assert found(store) == [("%LMQ%a", "%LMQ%a", 0, 8), ("g", "%LMQ%t", 0, 7), ("g", "t", 3, 1)]


def test_the_file_of_light_queues_wins(store: Path) -> None:
    """A broker with light queues keeps all offsets in its own file, and the other one is old."""
    write(store, PLAIN, table(**{"t@g": {"0": 1}}))
    write(store, LMQ, table(**{"t@g": {"0": 2}}))
    assert found(store) == [("g", "t", 0, 2)]
    assert load(store).file.path == store / "config" / LMQ


def test_the_backup_of_light_queues_wins(store: Path) -> None:
    """It wins through its .bak too."""
    write(store, PLAIN, table(**{"t@g": {"0": 1}}))
    write(store, LMQ, b"{")
    write(store, f"{LMQ}.bak", table(**{"t@g": {"0": 2}}))
    loaded = load(store)
    assert loaded.file.path == store / "config" / f"{LMQ}.bak"
    assert loaded.file.problem
    assert [item.offset for item in loaded.offsets] == [2]


def test_a_broken_file_of_light_queues_is_told(store: Path) -> None:
    """When it cannot be read, the other file is shown, and the problem is not forgotten."""
    write(store, PLAIN, table(**{"t@g": {"0": 1}}))
    write(store, LMQ, b"{")
    loaded = load(store)
    assert [item.offset for item in loaded.offsets] == [1]
    assert loaded.file.path == store / "config" / PLAIN
    assert loaded.file.problem
    assert loaded.file.problem.startswith("not JSON")


@pytest.mark.parametrize("name", stores.driven_names())
def test_golden_offsets(name: str, golden_store: GoldenStore) -> None:
    """Three groups on two topics: in the middle, at the beginning, and ten after the maximum."""
    offsets = load_offsets(open_store(golden_store(name))).offsets
    maxima = {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in stores.oracle(name)["queues"]}
    assert {item.group for item in offsets} == ({"middle", "behind", "beyond"} if offsets else set())
    assert {item.topic for item in offsets} <= {"orders", "early"}
    assert bool(offsets) == (name not in {"5.3.3-empty", "5.3.3-single"})
    for item in offsets:
        if item.group == "behind":
            assert item.offset == 0
        elif not name.endswith("-killed"):
            max_offset = maxima[item.topic, item.queue_id]
            assert item.offset == max_offset + 10 if item.group == "beyond" else 0 < item.offset <= max_offset


@pytest.mark.parametrize(
    ("version", "setting", "offsets"),
    [
        ((4, 9, 2), "true", [1]),
        ((4, 9, 3), "false", [1]),
        ((4, 9, 3), "true", []),
        ((4, 9, 4), "true", [2, 3]),
        ((5, 0, 0), "true", [2, 3]),
        ((5, 5, 1), "false", [1]),
    ],
)
def test_what_a_start_reads(store: Path, version: tuple[int, int, int], setting: str, offsets: list[int]) -> None:
    """4.9.3 has the file of light queues, and its `LmqConsumerOffsetManager` no constructor that fastjson could use."""
    write(store, PLAIN, table(**{"t@g": {"0": 1}}))
    write(store, LMQ, {**table(**{"t@g": {"0": 2}}), "lmqOffsetTable": {"%LMQ%t@%LMQ%t": 3}})
    opened = open_store(store, BrokerConf({"enableLmq": setting}))
    assert sorted(each.offset for each in offsets_of_start(opened, Version(*version))) == offsets
