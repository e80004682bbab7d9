"""The page on one message: what is found of it, and what is said not to fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.query.by_place import message_at
from rmqtool.query.trace import MessageTrace, trace_of
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from tests.building import START_TIME
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.query.making import INDEX, StoreMaker, write_queue
from tests.unchanged import unchanged

KEY = "C0000211109218B4AAC205265C000001"
COMMIT, ROLLBACK, PREPARED = 0x8, 0xC, 0x4
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def places(snapshot: Snapshot, offset: int) -> MessageTrace:
    """The page on the message at `offset`; looking it up changes nothing."""
    with unchanged(snapshot.store.root):
        found = message_at(snapshot, offset)
        assert found is not None
        page = trace_of(snapshot, found)
        page.as_json(snapshot)
        return page


@pytest.mark.parametrize("name", ["4.4.0-clean", "4.9.7-clean", "5.3.3-crc32-property", "5.5.0-trimmed"])
def test_every_message_of_a_sound_store_stands_where_it_should(golden_store: GoldenStore, name: str) -> None:
    """In stores of real brokers each message has its entries and its index units, and nothing contradicts."""
    from rmqtool.store.store import open_store

    says = stores.oracle(name)
    snapshot = Snapshot(open_store(golden_store(name)), parse_version(says["version"]))
    for record in says["records"][::23]:
        message = message_at(snapshot, record["physical_offset"])
        assert message is not None
        page = trace_of(snapshot, message)
        assert {place.state for place in page.queues} <= {"ok"}
        assert {place.state for place in page.index} <= {"ok"}
        assert page.contradictions == []
        assert page.log["record_crc_ok"] is (True if "crc32" in name else None)


def test_a_plain_message(tmp_path: Path) -> None:
    made = StoreMaker()
    for number in range(3):
        made.add(properties={"UNIQ_KEY": KEY[:-1] + str(number), "KEYS": f"k{number} same", "TAGS": "paid"})
    page = places(made.snapshot(tmp_path), made.offsets[1])
    (queue,) = page.queues
    assert (queue.state, queue.queue_offset, queue.unit and queue.unit.position) == ("ok", 1, 20)
    assert [(place.key, place.kind, place.state) for place in page.index] == [
        (KEY[:-1] + "1", "unique-key", "ok"),
        ("k1", "key", "ok"),
        ("same", "key", "ok"),
    ]
    assert page.contradictions == []
    assert (page.transaction, page.delay, page.retry, page.relatives) == (None, None, None, [])
    assert page.retention.is_last_file


def test_the_same_key_twice_has_two_units(tmp_path: Path) -> None:
    made = StoreMaker()
    made.add(properties={"KEYS": "a a"})
    page = places(made.snapshot(tmp_path), 0)
    assert [(trace.unit and trace.unit.unit_index, trace.position_in_chain) for trace in page.index] == [(2, 1), (1, 2)]


def half(made: StoreMaker, key: str = KEY) -> int:
    return made.add(HALF, properties={"UNIQ_KEY": key, "REAL_TOPIC": "pay", "REAL_QID": "1"})


def commit(made: StoreMaker, prepared: int, key: str = KEY) -> int:
    return made.add("pay", 1, sys_flag=COMMIT, prepared_transaction_offset=prepared, properties={"UNIQ_KEY": key})


def test_a_pending_transaction(tmp_path: Path) -> None:
    made = StoreMaker()
    offset = half(made)
    made.add(OP, body=b"7", properties={"TAGS": "d"})
    found = places(made.snapshot(tmp_path), offset).transaction
    assert found is not None
    assert (found.part, found.state, found.op, found.commit) == ("half", "pending", None, None)
    assert (found.real_topic, found.real_queue_id) == ("pay", "1")


def test_a_committed_transaction_from_both_sides(tmp_path: Path) -> None:
    made = StoreMaker()
    first = half(made)
    second = commit(made, first)
    op = made.add(OP, body=b"0", properties={"TAGS": "d"})
    snapshot = made.snapshot(tmp_path)
    page = places(snapshot, first)
    assert page.transaction is not None
    assert (page.transaction.state, page.transaction.op, page.transaction.commit) == ("committed", op, second)
    assert [(other.relation, other.record["physical_offset"]) for other in page.relatives] == [("commit", second)]
    other = places(snapshot, second)
    assert other.transaction is not None
    assert (other.transaction.part, other.transaction.half) == ("commit", first)
    assert [relative.relation for relative in other.relatives] == ["half"]
    assert other.contradictions == []


@pytest.mark.parametrize("body", [b"1", b"0,1,2,", b"1,"])
def test_a_rolled_back_transaction(tmp_path: Path, body: bytes) -> None:
    """An op message names one half message, or several as 5.x has it; without a copy it was a roll back."""
    made = StoreMaker()
    half(made, KEY[:-1] + "2")
    offset = half(made)
    op = made.add(OP, body=body, properties={"TAGS": "d"})
    found = places(made.snapshot(tmp_path), offset).transaction
    assert found is not None
    assert (found.state, found.op) == ("rolled-back", op)


def test_an_ended_transaction_without_index(tmp_path: Path) -> None:
    """Without an index nobody knows whether there is a copy."""
    made = StoreMaker()
    offset = half(made)
    made.add(OP, body=b"0", properties={"TAGS": "d"})
    snapshot = made.snapshot(tmp_path)
    (tmp_path / "index" / INDEX).unlink()
    found = places(snapshot, offset).transaction
    assert found is not None
    assert found.state == "ended"


def test_a_commit_whose_half_is_another_message(tmp_path: Path) -> None:
    made = StoreMaker()
    wrong = made.add(properties={"UNIQ_KEY": "other"})
    page = places_after(made, tmp_path, commit(made, wrong))
    assert any("its half is at 0, but no such record is there" in line for line in page.contradictions)


def places_after(made: StoreMaker, root: Path, offset: int) -> MessageTrace:
    return places(made.snapshot(root), offset)


def test_a_commit_whose_half_was_deleted(tmp_path: Path) -> None:
    made = StoreMaker(log_file=4096)
    first = half(made)
    for _ in range(40):
        made.add()
    second = commit(made, first)
    snapshot = made.snapshot(tmp_path)
    min((tmp_path / "commitlog").iterdir()).unlink()
    page = places(snapshot, second)
    assert page.transaction is not None
    assert page.transaction.half is None
    assert page.contradictions == []


@pytest.mark.parametrize(("committed", "delivered"), [(None, None), (0, False), (1, True)])
def test_a_delayed_message(tmp_path: Path, committed: int | None, delivered: bool | None) -> None:
    """Level 3 waits ten seconds; whether it has gone is told by the broker's own offsets, where there are any."""
    made = StoreMaker()
    due = START_TIME + 10_000
    properties = {"UNIQ_KEY": KEY, "DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "1", "TAGS": "x"}
    offset = made.add(SCHEDULE, 2, code=due, properties=properties)
    if committed is not None:
        made.config["delayOffset.json"] = {"offsetTable": {"3": committed}}
    page = places(made.snapshot(tmp_path), offset)
    assert page.delay is not None
    assert (page.delay.level, page.delay.due_timestamp, page.delay.delivered) == (3, due, delivered)
    assert (page.delay.real_topic, page.delay.real_queue_id) == ("orders", "1")
    assert page.contradictions == []


def test_a_delivered_message(tmp_path: Path) -> None:
    made = StoreMaker()
    properties = {"UNIQ_KEY": KEY, "DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    waiting = made.add(SCHEDULE, 0, code=START_TIME + 1000, properties=properties)
    copy = made.add(properties={"UNIQ_KEY": KEY})
    snapshot = made.snapshot(tmp_path)
    page = places(snapshot, waiting)
    assert page.delay is not None
    assert (page.delay.delivered, page.delay.delivered_physical_offset) == (True, copy)
    assert [relative.relation for relative in places(snapshot, copy).relatives] == ["delayed"]


def test_a_timer_message(tmp_path: Path) -> None:
    made = StoreMaker()
    properties = {"TIMER_OUT_MS": str(START_TIME + 5000), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    page = places_after(made, tmp_path, made.add("rmq_sys_wheel_timer", properties=properties))
    assert page.delay is not None
    assert (page.delay.by, page.delay.level, page.delay.due_timestamp) == ("timer", None, START_TIME + 5000)


@pytest.mark.parametrize("topic", ["%RETRY%billing", "%DLQ%billing", SCHEDULE])
def test_the_way_back_of_a_retry(tmp_path: Path, topic: str) -> None:
    """From a retry, a dead letter, or a retry that waits for its delay, back to the original."""
    made = StoreMaker()
    origin = made.add(properties={"UNIQ_KEY": KEY})
    properties = {"UNIQ_KEY": KEY, "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": made.message_id(origin)}
    if topic == SCHEDULE:
        properties |= {"REAL_TOPIC": "%RETRY%billing", "REAL_QID": "0", "DELAY": "3"}
    code = START_TIME + 11_000 if topic == SCHEDULE else None
    again = made.add(topic, 2, code=code, reconsume_times=3, properties=properties)
    snapshot = made.snapshot(tmp_path)
    found = places(snapshot, again).retry
    assert found is not None
    assert (found.group, found.reconsume_times, found.origin_topic) == ("billing", 3, "orders")
    assert (found.origin_state, found.origin_physical_offset) == ("found", origin)
    expected = {"%RETRY%billing": "retry", "%DLQ%billing": "dead-letter", SCHEDULE: "delayed"}[topic]
    assert [relative.relation for relative in places(snapshot, origin).relatives] == [expected]


@pytest.mark.parametrize(
    ("message_id", "state"),
    [
        ("C0A8010100002A9F0000000000000000", "other-store"),
        ("not an id", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_retry_without_a_way_back(tmp_path: Path, message_id: str | None, state: str) -> None:
    made = StoreMaker()
    made.add()
    properties = {"RETRY_TOPIC": "orders"} | ({"ORIGIN_MESSAGE_ID": message_id} if message_id else {})
    page = places_after(made, tmp_path, made.add("%RETRY%g", properties=properties))
    assert page.retry is not None
    assert page.retry.origin_state == state


def test_groups_and_when_they_passed(tmp_path: Path) -> None:
    """A group that the .bak file, which is older, shows before the message passed between the two."""
    made = StoreMaker()
    for _ in range(10):
        made.add()
    made.config["consumerOffset.json"] = {"offsetTable": {"orders@a": {"0": 6}, "orders@b": {"0": 5}, "x@c": {"0": 1}}}
    made.config["consumerOffset.json.bak"] = {"offsetTable": {"orders@a": {"0": 2}, "orders@b": {"0": 2}}}
    snapshot = made.snapshot(tmp_path)
    config = tmp_path / "config"
    os.utime(config / "consumerOffset.json", ns=(2_000_000_000_000, 2_000_000_000_000))
    os.utime(config / "consumerOffset.json.bak", ns=(1_000_000_000_000, 1_000_000_000_000))
    found = {item["group"]: item for item in places(snapshot, made.offsets[5]).consumers}
    assert found.keys() == {"a", "b"}
    assert (found["a"]["consumed"], found["a"]["passed_after_timestamp"]) == (True, 1_000_000)
    assert found["a"]["as_of_timestamp"] == 2_000_000
    assert (found["b"]["consumed"], found["b"]["passed_after_timestamp"]) == (False, None)


def test_retention(tmp_path: Path) -> None:
    made = StoreMaker(log_file=4096)
    for _ in range(60):
        made.add()
    snapshot = made.snapshot(tmp_path)
    first = min((tmp_path / "commitlog").iterdir())
    os.utime(first, ns=(0, START_TIME * 1_000_000))
    page = places(snapshot, 0)
    assert page.retention.expires_timestamp == START_TIME + 72 * 3_600_000
    assert places(snapshot, made.offsets[-1]).retention.expires_timestamp is None


def changed(made: StoreMaker, root: Path, units: list[bytes]) -> MessageTrace:
    snapshot = made.snapshot(root)
    write_queue(root, "orders", 0, units)
    return places(snapshot, made.offsets[1])


@pytest.mark.parametrize(
    ("change", "state", "sentence"),
    [
        (lambda units: units[:1], "behind", "queue entries 1 to 2 are missing: 2 messages of the log are out of"),
        (lambda units: [units[1], units[0], units[2]], "differs", "has the entry of another message at offset 1"),
        (lambda units: [units[0], units[0], units[1]], "differs", "queue offset 2 points to it instead"),
    ],
)
def test_a_queue_that_contradicts(tmp_path: Path, change: Any, state: str, sentence: str) -> None:
    made = StoreMaker()
    for _ in range(3):
        made.add()
    made.add(queue_id=1)  # a queue that reaches farther: no start derives the missing units
    page = changed(made, tmp_path, change(made.units["orders", 0]))
    assert [place.state for place in page.queues] == [state]
    assert any(sentence in line for line in page.contradictions)


@pytest.mark.parametrize(
    ("delay", "ok"), [(3_000, True), (10_000, True), (86_400_000, True), (3_500, False), (-1_000, False)]
)
def test_delays_of_another_configuration(tmp_path: Path, delay: int, ok: bool) -> None:
    """A unit may tell another delay than its level has now, but only one that a level can have."""
    made = StoreMaker()
    offset = made.add(SCHEDULE, 2, code=START_TIME + delay, properties={"DELAY": "3"})
    page = places(made.snapshot(tmp_path), offset)
    assert [place.state for place in page.queues] == ["ok" if ok else "differs"]
    assert any("its entry has" in line for line in page.contradictions) is not ok


def test_a_unit_of_another_tag(tmp_path: Path) -> None:
    made = StoreMaker()
    offset = made.add(code=7, properties={"TAGS": "Aa"})
    (line,) = places(made.snapshot(tmp_path), offset).contradictions
    assert "its entry has" in line
    assert "tags code 7 instead of" in line


def test_a_log_without_queues_and_index(tmp_path: Path) -> None:
    made = StoreMaker()
    offset = made.add(properties={"KEYS": "a"})
    snapshot = Snapshot(open_log_only(made, tmp_path))
    page = places(snapshot, offset)
    assert [place.state for place in page.queues] == ["no-queue"]
    assert [place.state for place in page.index] == ["no-index"]
    assert page.queues[0].is_derived  # for no queue reaches farther
    assert page.contradictions == []


def open_log_only(made: StoreMaker, root: Path) -> Any:
    from rmqtool.store.store import open_store

    made.log.write(root)
    return open_store(root)


def test_a_record_of_which_a_byte_was_changed(tmp_path: Path) -> None:
    made = StoreMaker()
    made.add(body=b"hello body", properties={"KEYS": "a"})
    snapshot = made.snapshot(tmp_path)
    path = next((tmp_path / "commitlog").iterdir())
    path.write_bytes(path.read_bytes().replace(b"hello", b"jello"))
    assert places(snapshot, 0).contradictions == ["body CRC mismatch"]


def test_a_key_that_the_index_lost(tmp_path: Path) -> None:
    made = StoreMaker()
    made.add(properties={"KEYS": "a"})
    made.add(properties={"KEYS": "b"})
    made.add(properties={"KEYS": "c"})
    made.keys[1] = (made.keys[1][0], made.offsets[0], made.keys[1][2])
    page = places_after(made, tmp_path, made.offsets[1])
    assert [place.state for place in page.index] == ["missing"]
    assert "the index has no entry for b" in page.contradictions[0]


def test_prepared_and_rolled_back_have_no_unit(tmp_path: Path) -> None:
    made = StoreMaker()
    prepared = made.add(sys_flag=PREPARED, queue_offset=0, properties={"UNIQ_KEY": KEY})
    rolled_back = made.add(sys_flag=ROLLBACK, prepared_transaction_offset=prepared, properties={"UNIQ_KEY": KEY})
    snapshot = made.snapshot(tmp_path)
    first, second = places(snapshot, prepared), places(snapshot, rolled_back)
    assert first.queues == second.queues == []
    assert [place.state for place in first.index] == ["ok"]
    assert second.index == []
    assert first.transaction is not None
    assert second.transaction is not None
    assert (first.transaction.state, second.transaction.state) == ("unknown", "rolled-back")
    assert second.transaction.half == prepared
