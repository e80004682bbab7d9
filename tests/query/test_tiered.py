"""Messages that only the tier has, joined with those of the local store: each once, and as a broker serves them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.formats.tiered import segment_name
from rmqtool.store.config_json import load_config
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.tier_building import ROOM, SLOTS, take_back_index
from tests.verify.tiered_damages import METADATA, UNITS, conf_of, expire

QUEUE = ("--topic", "history", "--queue", "0")


@pytest.fixture(params=["5.1.4", "5.3.3", "5.5.1"])
def store(request: pytest.FixtureRequest, golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A store whose first messages are in the tier alone."""
    store = copied(golden_store(f"more/{request.param}-tiered"), tmp_path / "store")
    expire(store)
    return store


def asked(store: Path, *question: str) -> list[dict[str, object]]:
    """The answers, as JSON."""
    return rmqtool("query", store, "--tiered-path", store / "tiered", *question, "--json").lines


def test_each_message_once(store: Path) -> None:
    """A scan, and a moment: all 240 messages with the number that they were sent with."""
    for question in (("--scan",), ("--time", "2020-01-01", "--limit", "1000")):
        messages = asked(store, *question)
        assert sorted(str(message["keys"][0]) for message in messages) == sorted(f"k{n}" for n in range(240))  # type: ignore[index]
        assert len({(message["queue_id"], message["queue_offset"]) for message in messages}) == 240
        tiered = [message for message in messages if message.get("place") == "tiered"]
        assert len(tiered) > 120
        assert {message["message_id"] for message in tiered} == {None}
    assert [message["queue_offset"] for message in asked(store, "--scan", *QUEUE, "--limit", "3")] == [0, 1, 2]
    assert len(rmqtool("query", store, "--scan", "--json").lines) < 120


def pulled(store: Path, tmp_path: Path, version: str, *question: str, **settings: str) -> tuple[object, ...]:
    """Status, next offset, range, and the queue offsets that a pull returns with other settings."""
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in {**conf_of(store).settings, **settings}.items()))
    asked_by = ("--broker-conf", conf, "--broker-version", version)
    [answer] = rmqtool("query", store, *asked_by, "--pull", *QUEUE, "--queue-offset", *question, "--json").lines
    names = ("status", "next_begin_offset", "min_offset", "max_offset")
    return (*(answer[name] for name in names), [each["queue_offset"] for each in answer["messages"]])


@pytest.mark.parametrize(("version", "settings", "question", "expected"), [
    ("5.3.3", {}, ("0", "--max", "3", "--tag", "Tag1"), ("FOUND", 9, 0, 120, [2, 5, 8])),
    ("5.3.3", {"readAheadCacheEnable": "false"}, ("0", "--max", "6", "--tag", "Tag1"), ("FOUND", 6, 0, 120, [2, 5])),
    ("5.1.4", {"readAheadCacheEnable": "false"}, ("0", "--max", "3", "--tag", "Tag1"), ("FOUND", 3, 0, 120, [0, 1, 2])),
    ("5.3.3", {"readAheadMessageCountThreshold": "4"}, ("0", "--max", "9"), ("FOUND", 4, 0, 120, [0, 1, 2, 3])),
    ("5.3.3", {"tieredStorageLevel": "FORCE"}, ("120", "--max", "3"), ("OFFSET_OVERFLOW_ONE", 120, 0, 120, [])),
    ("5.3.3", {"tieredStorageLevel": "0"}, ("3", "--max", "3"), ("OFFSET_TOO_SMALL", 78, 78, 120, [])),
    ("5.3.3", {"tieredStorageLevel": "disable"}, ("3", "--max", "3"), ("FOUND", 6, 0, 120, [3, 4, 5])),
], ids=["cached", "not cached", "older", "few", "forced", "off", "misspelt"])  # fmt: skip
def test_pulls_by_settings(
    golden_store: GoldenStore, tmp_path: Path, version: str, settings: dict[str, str], question: tuple[str, ...],
    expected: tuple[object, ...],
) -> None:  # fmt: skip
    """What is read ahead decides how far a pull looks for a tag; up to 5.2 no tag is looked at."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    expire(store)
    assert pulled(store, tmp_path, version, *question, **settings) == expected


def test_pulls_between_tier_and_local_store(golden_store: GoldenStore, tmp_path: Path) -> None:
    """What neither has is passed over; with FORCE a local message before the tier, and one after it, is not read."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    rows = load_config(store / METADATA).content
    units = rows["consumeQueueFileSegmentTable"]["broker-a/history/0"]
    for base in sorted(units, key=int)[1:]:
        del units[base]
        (store / UNITS / segment_name(int(base))).unlink()
    (store / METADATA).write_text(json.dumps(rows))
    at = ("60", "--max", "1")
    assert pulled(store, tmp_path, "5.3.3", *at)[0] == "FOUND"
    assert pulled(store, tmp_path, "5.3.3", *at, tieredStorageLevel="FORCE") == ("OFFSET_OVERFLOW_BADLY", 50, 0, 50, [])
    expire(store)
    assert pulled(store, tmp_path, "5.3.3", *at)[:2] == ("OFFSET_TOO_SMALL", 78)


def test_places_and_pulls(store: Path, request: pytest.FixtureRequest) -> None:
    """By queue offset and by pulls from 0 on, as consumers get them: over the border between tier and local store."""
    [message] = asked(store, *QUEUE, "--queue-offset", "5")
    assert (message["place"], message["queue_offset"], message["keys"]) == ("tiered", 5, ["k10", "all"])
    [local] = asked(store, *QUEUE, "--queue-offset", "119")
    assert "place" not in local
    offset, offsets = 0, list[object]()
    while offset < 120:
        [answer] = asked(store, "--pull", *QUEUE, "--queue-offset", str(offset), "--max", "16")
        expected = ("FOUND", 0 if offset < 78 else 78, 120)  # the local store gives its own
        assert (answer["status"], answer["min_offset"], answer["max_offset"]) == expected
        offsets += [each["queue_offset"] for each in answer["messages"]]  # type: ignore[attr-defined]
        offset = int(str(answer["next_begin_offset"]))
    assert offsets == list(range(120))
    version = str(request.node.callspec.params["store"])
    tagged = ("--max", "6", "--tag", "Tag1", "--broker-version", version)
    [answer] = asked(store, "--pull", *QUEUE, "--queue-offset", "0", *tagged)
    number, first, step = (6, 0, 1) if version == "5.1.4" else (6, 2, 3)
    wanted = list(range(first, first + number * step, step))
    assert [each["queue_offset"] for each in answer["messages"]] == wanted  # type: ignore[attr-defined]


def test_keys(store: Path, request: pytest.FixtureRequest) -> None:
    """The index of the tier points to them, by the hash of any release; without the path a note says what lacks."""
    if "5.3.3" not in request.node.name:
        pytest.skip("5.1.4 had not uploaded its index, and 5.5.1 not all of it")
    [message] = asked(store, "--key", "k3")
    assert (message["place"], message["queue_id"], message["queue_offset"]) == ("tiered", 1, 1)
    [message] = asked(store, "--unique-key", str(message["unique_key"]))
    assert message["keys"] == ["k3", "all"]
    found = rmqtool("query", store, "--key", "k3")
    assert (found.status, "give --tiered-path" in found.err) == (1, True)


def test_an_index_that_is_written(golden_store: GoldenStore, tmp_path: Path) -> None:
    """After a kill the keys are in a file of the store, whose size broker.conf gives; local messages come first."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    take_back_index(store)
    expire(store)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"tieredStoreIndexFileMaxHashSlotNum={SLOTS}\ntieredStoreIndexFileMaxIndexNum={ROOM}\n")
    [message] = asked(store, "--key", "k3", "--broker-conf", str(conf))
    assert (message["place"], message["queue_id"], message["queue_offset"]) == ("tiered", 1, 1)
    found = asked(store, "--key", "all", "--limit", "100", "--broker-conf", str(conf))
    places = [message.get("place") for message in found]
    assert len(places) == 100
    assert places == [None] * places.count(None) + ["tiered"] * places.count("tiered")
    unread = rmqtool("query", store, "--tiered-path", store / "tiered", "--key", "k3")
    assert (unread.status, "is not read: it has another size" in unread.err) == (1, True)
