"""What is sent of each kind of stored message, and what is never sent."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from rmqtool.formats.message import BORN_HOST_V6, COMPRESSED, INNER_BATCH, MULTI_TAGS, NEED_UNWRAP, STORE_HOST_V6
from rmqtool.replay.journal import Identity, LeftOut, Outgoing
from rmqtool.replay.requests import Part, Rewriting, pack
from rmqtool.scan.filters import TopicChoice
from tests.replay.rows import KEY, TIME, row

REPLAY_OF = {"REPLAY_OF": f"10.0.0.1:10911 1000 {TIME + 1}"}


def sent(row: dict[str, Any], **settings: Any) -> Outgoing:
    """The one message that is sent of a row."""
    (message,) = Rewriting(**settings).messages(row)
    assert isinstance(message, Outgoing), message
    return message


def reason(row: dict[str, Any], **settings: Any) -> str:
    """Why a row is not sent."""
    (left_out,) = Rewriting(**settings).messages(row)
    assert isinstance(left_out, LeftOut), left_out
    return left_out.reason


def named(*topics: str) -> dict[str, TopicChoice]:
    """That the user has named topics."""
    return {"named": TopicChoice(topics)}


def test_a_plain_message() -> None:
    message = sent(row({"KEYS": "a b", "TAGS": "web", "own": "value", "__SHARDINGKEY": "s"}, reconsume_times=3))
    assert (message.topic, message.queue_id, message.flag, message.sys_flag) == ("orders", 1, 7, 0)
    assert (message.body, message.born_timestamp, message.reconsume_times) == (b"body", TIME, 3)
    assert message.properties == {
        "UNIQ_KEY": KEY, "KEYS": "a b", "TAGS": "web", "own": "value", "__SHARDINGKEY": "s", **REPLAY_OF,
    }  # fmt: skip
    assert message.origin.identity == Identity(1000)


@pytest.mark.parametrize(
    "name",
    [
        *("DELAY", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRAN_MSG", "PGROUP", "REAL_TOPIC"),
        *("REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "MIN_OFFSET"),
        *("MAX_OFFSET", "RECONSUME_TIME", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "TRANS_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__", "INNER_NUM"),
        *("INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "CLUSTER", "MSG_REGION", "TRACE_ON", "__CRC32#"),
        *("EXTEND_UNIQ_INFO", "INNER_MULTI_DISPATCH", "__LITE_TOPIC"),
    ],
)
def test_properties_of_the_old_broker_are_dropped(name: str) -> None:
    assert name not in sent(row({name: "1"})).properties
    kept = name in ("INNER_MULTI_DISPATCH", "__LITE_TOPIC")
    assert (name in sent(row({name: "1"}), keep_dispatch=True).properties) is kept


def test_flags_of_hosts_and_transactions_are_cleared() -> None:
    """The new broker writes the host of rmqtool: a flag for IPv6 would make it write a damaged record."""
    message = sent(row(sys_flag=BORN_HOST_V6 | STORE_HOST_V6 | MULTI_TAGS | 8))
    assert message.sys_flag == MULTI_TAGS


def test_a_compressed_body_stays_as_it_is() -> None:
    body = zlib.compress(b"text" * 100)
    message = sent(row(body=body, sys_flag=COMPRESSED | 0x300))
    assert (message.body, message.sys_flag) == (body, COMPRESSED | 0x300)


def test_a_body_of_an_export_is_compressed_again() -> None:
    """A decompressed or edited body does not have the CRC of the record."""
    message = sent(row(body=b"text" * 100, body_crc=7, sys_flag=COMPRESSED | 0x300, is_stored=False))
    assert zlib.decompress(message.body) == b"text" * 100
    assert message.sys_flag == COMPRESSED
    stored = zlib.compress(b"text")
    assert sent(row(body=stored, sys_flag=COMPRESSED, is_stored=False)).body == stored
    assert sent(row(body=b"edited", body_crc=7, is_stored=False)).body == b"edited"


def test_a_damaged_body() -> None:
    assert reason(row(body_crc=7)) == "damaged-body"


def test_a_message_without_a_unique_key_keeps_the_id_that_consumers_saw() -> None:
    plain = row()
    plain["properties"] = []
    assert sent(plain).properties == {"UNIQ_KEY": "ID-1000", **REPLAY_OF}


def test_an_empty_body() -> None:
    assert reason(row(body=b"")) == "empty-body"
    assert sent(row(body=b""), blank_for_empty=True).body == b" "


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"])
def test_half_messages_are_never_sent(topic: str) -> None:
    assert reason(row({"REAL_TOPIC": "orders"}, topic=topic), **named(topic)) == "half"


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_what_is_not_committed_is_never_sent(sys_flag: int) -> None:
    assert reason(row(sys_flag=sys_flag), **named("orders")) == "rolled-back"


@pytest.mark.parametrize(
    "topic", ["RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn", "OFFSET_MOVED_EVENT", "a_REPLY_TOPIC"]
)
def test_system_topics_only_by_name(topic: str) -> None:
    assert reason(row(topic=topic)) == "system-topic"
    assert reason(row(topic=topic), **named("*")) == "system-topic"
    assert sent(row(topic=topic), **named(topic)).topic == topic


def test_a_retry() -> None:
    retry = row(
        {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "X"}, topic="%RETRY%billing", reconsume_times=3, queue_id=0
    )
    assert reason(retry) == "retry-topic"
    message = sent(retry, **named("%RETRY%*"))
    assert (message.topic, message.reconsume_times, message.is_copy) == ("orders", 0, True)
    assert message.properties == {"UNIQ_KEY": KEY, **REPLAY_OF}
    assert reason(row(topic="%RETRY%billing"), **named("%RETRY%*")) == "no-origin"


def test_a_dead_letter() -> None:
    letter = row(
        {"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "%RETRY%billing"}, topic="%DLQ%billing", reconsume_times=16
    )
    assert reason(letter) == "dead-letter"
    assert sent(letter, **named("%DLQ%billing")).topic == "orders"
    assert sent(row({"RETRY_TOPIC": "orders"}, topic="%DLQ%billing"), **named("%DLQ%*")).topic == "orders"
    again = sent(letter, **named("%DLQ%billing"), to_group=True)
    # With times at the maximum the broker would put it among the dead letters again.
    assert (again.topic, again.queue_id, again.reconsume_times) == ("%RETRY%billing", 0, 0)
    assert again.properties["RETRY_TOPIC"] == "orders"
    looping = row({"RETRY_TOPIC": "%RETRY%billing"}, topic="%DLQ%billing")
    assert reason(looping, **named("%DLQ%billing")) == "no-origin"


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_a_message_that_waits(topic: str) -> None:
    waits = row({"REAL_TOPIC": "reminders", "REAL_QID": "3", "DELAY": "5", "TIMER_OUT_MS": "9"}, topic=topic)
    assert reason(waits) == "delayed"
    due: dict[str, Any] = {"due": {1000: TIME + 60_000}}
    message = sent(waits, **due)
    assert (message.topic, message.queue_id, message.due_timestamp) == ("reminders", 3, TIME + 60_000)
    assert message.properties == {"UNIQ_KEY": KEY, **REPLAY_OF}
    assert sent(waits, **due, keeps_due=False).due_timestamp is None
    assert [*Rewriting(**due, choice=TopicChoice(("orders",))).messages(waits)] == []
    assert [*Rewriting(**due, queue_ids=frozenset([1])).messages(waits)] == []
    retry = row({"REAL_TOPIC": "%RETRY%billing", "RETRY_TOPIC": "orders", "REAL_QID": "x"}, topic=topic)
    assert (sent(retry, **due).topic, sent(retry, **due).queue_id) == ("orders", 0)
    assert reason(row(topic=topic), **due) == "no-origin"


def test_replays_are_not_replayed() -> None:
    """Else a replay to its own cluster would never end."""
    replayed = row({"REPLAY_OF": "10.0.0.9:10911 7 1"})
    assert reason(replayed) == "replay"
    assert sent(replayed, include_replays=True).properties["REPLAY_OF"] == REPLAY_OF["REPLAY_OF"]


def test_other_topics() -> None:
    assert sent(row(), topics={"orders": "orders-new", "payments": "p"}).topic == "orders-new"
    assert sent(row(topic="other"), topics={"orders": "orders-new"}).topic == "other"
    assert sent(row(), only_topic="all").topic == "all"


def test_an_inner_batch() -> None:
    parts = [Part(1, b"one", {"UNIQ_KEY": "A", "KEYS": "k", "INNER_NUM": "2"}), Part(2, b"two", {})]
    stored = row({"INNER_NUM": "2", "INNER_BASE": "5"}, body=pack(parts), sys_flag=INNER_BATCH | NEED_UNWRAP)
    first, second = Rewriting().messages(stored)
    assert isinstance(first, Outgoing)
    assert isinstance(second, Outgoing)
    assert (first.body, first.flag, first.sys_flag) == (b"one", 1, 0)
    place = REPLAY_OF["REPLAY_OF"]
    assert first.properties == {"UNIQ_KEY": "A", "KEYS": "k", "REPLAY_OF": f"{place} 0"}
    assert second.properties == {"UNIQ_KEY": "ID-1000-1", "REPLAY_OF": f"{place} 1"}
    assert [message.origin.identity for message in (first, second)] == [Identity(1000, 0), Identity(1000, 1)]
    assert [message.origin.queue_offset for message in (first, second)] == [5, 6]
    packed = zlib.compress(pack(parts))
    compressed = row(body=packed, sys_flag=INNER_BATCH | NEED_UNWRAP | COMPRESSED)
    assert [each.body for each in Rewriting().messages(compressed) if isinstance(each, Outgoing)] == [b"one", b"two"]
    assert reason(row(body=b"no batch", sys_flag=INNER_BATCH | NEED_UNWRAP)) == "damaged-batch"
