"""Messages that only the tier has, joined with those of the local store: each once, and as a broker serves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.tier_building import ROOM, SLOTS, take_back_index
from tests.verify.tiered_damages import expire

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


def test_places_and_pulls(store: Path) -> None:
    """By queue offset and by pulls from 0 on, as consumers get them: over the border between tier and local store."""
    [message] = asked(store, *QUEUE, "--queue-offset", "5")
    assert (message["place"], message["queue_offset"], message["keys"]) == ("tiered", 5, ["k10", "all"])
    [local] = asked(store, *QUEUE, "--queue-offset", "119")
    assert "place" not in local
    offset, offsets = 0, list[object]()
    while offset < 120:
        [answer] = asked(store, "--pull", *QUEUE, "--queue-offset", str(offset), "--max", "16")
        assert (answer["status"], answer["min_offset"], answer["max_offset"]) == ("FOUND", 0, 120)
        offsets += [each["queue_offset"] for each in answer["messages"]]  # type: ignore[attr-defined]
        offset = int(str(answer["next_begin_offset"]))
    assert offsets == list(range(120))
    [answer] = asked(store, "--pull", *QUEUE, "--queue-offset", "0", "--max", "6", "--tag", "Tag1")
    assert [each["queue_offset"] for each in answer["messages"]] == [2, 5]  # type: ignore[attr-defined]


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
