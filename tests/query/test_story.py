"""The story of a message: what real brokers did with it, in order, and no more than the store proves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqtool.query.by_place import message_at
from rmqtool.query.story import Event, story_of
from rmqtool.query.trace import trace_of
from rmqtool.query.transactions import Relative
from rmqtool.show.query import PARTIAL, story_lines
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.query.making import StoreMaker

KEY = "C0000211109218B4AAC205265C000001"
SHOP = "5.1.4-shop"


def story(snapshot: Snapshot, offset: int) -> list[Event]:
    message = message_at(snapshot, offset)
    assert message is not None
    return trace_of(snapshot, message).story


def names(events: list[Event]) -> list[str]:
    return [event.event for event in events]


def of_shop(golden_store: GoldenStore, topic: str, queue_offset: int = 0) -> list[Event]:
    """The story of a message in the first queue of a topic, which a real broker served."""
    snapshot = Snapshot(open_store(golden_store(SHOP)))
    queue = snapshot.queue(topic, 0)
    assert queue is not None
    unit = queue.unit_at(queue_offset)
    assert unit is not None
    return story(snapshot, unit.physical_offset)


@pytest.mark.slow
def test_a_message_that_a_group_gave_up(golden_store: GoldenStore) -> None:
    """Failed on twice, each time sent back and got again; each reading ends before the failure that proves it."""
    events = of_shop(golden_store, "%DLQ%billing")
    assert names(events) == [
        *("sent", "stored", "read", "sent-back", "retry", "read", "sent-back", "retry", "read", "dead-letter"),
    ]
    assert [event.times for event in events if event.event == "sent-back"] == [1, 2]
    assert {event.group for event in events[2:]} == {"billing"}
    for read, failed in zip(events[2::3], events[3::3], strict=True):
        assert (read.until_timestamp, read.proof) == (failed.timestamp, "it failed on it")
        assert failed.due_timestamp is None or failed.due_timestamp >= (failed.timestamp or 0)
    assert [event.timestamp for event in events] == sorted(event.timestamp or 0 for event in events)


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "vouchers"])
def test_a_transaction_is_one_story_from_either_side(golden_store: GoldenStore, topic: str) -> None:
    events = of_shop(golden_store, topic)
    assert names(events) == ["sent", "half", "committed", "passed"]
    assert events[-1].group == "gifts"


def test_a_delayed_message(golden_store: GoldenStore) -> None:
    """It waited until it was due, and was stored for its topic then."""
    events = of_shop(golden_store, "reminders")
    assert names(events) == ["sent", "delayed", "stored", "passed"]
    waits, delivered = events[1:3]
    assert (waits.timestamp or 0) < (waits.due_timestamp or 0) <= (delivered.timestamp or 0)
    assert waits.group is None


@pytest.mark.slow
def test_every_message_has_a_story(golden_store: GoldenStore) -> None:
    """It begins with the sending, tells of each record once, and never of a reading before the record was there."""
    snapshot = Snapshot(open_store(golden_store(SHOP)))
    for record in stores.oracle(SHOP)["records"][::7]:
        events = story(snapshot, record["physical_offset"])
        stored = {event.record["physical_offset"]: event for event in events
                  if event.event not in ("sent", "read", "passed", "not-passed")}  # fmt: skip
        assert record["physical_offset"] in stored
        assert names(events).count("sent") == 1
        for event in events:
            if event.event in ("read", "passed"):
                assert (event.timestamp or 0) >= (stored[event.record["physical_offset"]].timestamp or 0)


def test_who_has_not_read_it_is_last(tmp_path: Path) -> None:
    """One group has passed it between two writings of the offsets, the other has not; the .bak proves from when."""
    made = StoreMaker()
    for number in range(4):
        made.add(properties={"UNIQ_KEY": KEY[:-1] + str(number)})
    offsets = made.offsets
    made.config["consumerOffset.json"] = {"offsetTable": {"orders@quick": {"0": 3}, "orders@slow": {"0": 1}}}
    snapshot = made.snapshot(tmp_path)
    path = tmp_path / "config" / "consumerOffset.json"
    backup = path.with_name("consumerOffset.json.bak")
    backup.write_text('{"offsetTable":{"orders@quick":{0:1},"orders@slow":{0:1}}}')
    for file, seconds in ((backup, 100), (path, 200)):
        os.utime(file, ns=(0, (START_TIME + 1000 * seconds) * 1_000_000))
    events = story(snapshot, offsets[1])
    assert [(event.event, event.group) for event in events] == [
        *(("sent", None), ("stored", None), ("passed", "quick"), ("not-passed", "slow")),
    ]
    assert (events[2].timestamp, events[2].until_timestamp) == (START_TIME + 100_000, START_TIME + 200_000)
    assert "lower in the .bak" in events[2].proof
    lines = [*story_lines([event.as_json() for event in events], str)]
    assert lines[2:] == [
        (f"{START_TIME + 100_000} to {START_TIME + 200_000}",
         "quick has passed orders queue 0 offset 1 (committed 3, lower in the .bak)"),
        ("not yet", "slow has not read orders queue 0 offset 1 yet (committed 1)"),
    ]  # fmt: skip


def test_the_page_of_a_trace_begins_with_it(golden_store: GoldenStore) -> None:
    store = golden_store(SHOP)
    page = rmqtool("query", store, "--topic", "%DLQ%billing", "--queue", "0", "--queue-offset", "0", "--trace").out
    told = [line.strip() for line in page[page.index("story") : page.index("commit log")].splitlines()]
    text = " ".join(told)
    assert "stored in payments queue 0 offset 0 (record at 15501)" in text
    assert "billing failed on it (failure 2), and gets it again at 2026-11-21T14:34:23.080Z" in text
    assert "given up by billing" in text


def test_a_story_needs_no_unique_key(tmp_path: Path) -> None:
    """Then it is that of one record."""
    made = StoreMaker()
    made.add()
    snapshot = made.snapshot(tmp_path)
    message = message_at(snapshot, 0)
    assert message is not None
    assert names(story_of(snapshot, message, [])) == ["sent", "stored"]


@pytest.mark.slow
def test_a_rollback_is_told(golden_store: GoldenStore) -> None:
    """It leaves an op message and no copy."""
    store = golden_store(SHOP)
    halves = rmqtool("inspect", store / "commitlog", "--topic", "RMQ_SYS_TRANS_HALF_TOPIC", "--json").out.splitlines()
    offsets = [json.loads(line)["physical_offset"] for line in halves if '"kind":"message"' in line]
    snapshot = Snapshot(open_store(store))
    ends = {names(story(snapshot, offset))[-1] for offset in offsets}
    assert "rolled-back" in ends
    (event,) = (event for offset in offsets[:1] for event in story(snapshot, offset) if event.event == "half")
    assert event.group is None


def test_an_offset_behind_the_end_tells_nothing(tmp_path: Path) -> None:
    """Nor does one copy of a message that was sent twice tell of the failure on the other."""
    made = StoreMaker()
    for _ in range(2):
        made.add(properties={"UNIQ_KEY": KEY})
    retry = {"UNIQ_KEY": KEY, "ORIGIN_MESSAGE_ID": made.message_id(0), "RETRY_TOPIC": "orders"}
    made.add("%RETRY%billing", properties=retry, reconsume_times=1)
    table = {"orders@billing": {"0": 1}, "orders@huge": {"0": 2**62}}
    made.config["consumerOffset.json"] = {"offsetTable": table}
    events = story(made.snapshot(tmp_path), made.offsets[1])
    told = [(event.event, event.record["physical_offset"]) for event in events if event.group == "billing"]
    first, second, again = made.offsets
    assert told == [("read", first), ("retry", again), ("not-passed", second)]
    assert "huge" not in {event.group for event in events}


def test_the_order_is_that_of_the_log(tmp_path: Path) -> None:
    """Whatever the clocks say."""
    made = StoreMaker()
    made.add(properties={"UNIQ_KEY": KEY}, born_timestamp=START_TIME + 10**6)
    made.add("%RETRY%billing", properties={"UNIQ_KEY": KEY}, store_timestamp=START_TIME - 10**6)
    made.config["consumerOffset.json"] = {"offsetTable": {"orders@billing": {"0": 1}}}
    snapshot = made.snapshot(tmp_path)
    first, again = (message_at(snapshot, offset) for offset in made.offsets)
    assert first is not None
    assert again is not None
    events = story_of(snapshot, first, [Relative("retry", again)])
    assert names(events) == ["sent", "stored", "read", "retry"]
    assert events[2].until_timestamp is None


def test_without_an_index_more_may_be_there(tmp_path: Path) -> None:
    """And that is said."""
    made = StoreMaker()
    offset = made.add(properties={"UNIQ_KEY": KEY})
    made.snapshot(tmp_path)
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    assert PARTIAL in rmqtool("query", tmp_path, "--offset", str(offset), "--trace").out
