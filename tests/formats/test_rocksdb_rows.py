"""Rows of RocksDB databases: examples, what is not of their form, and the fast way held to the declared one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats import rocksdb_rows as rows
from rmqtool.formats.layout import FormatError, build
from rmqtool.formats.rocksdb_rows import (
    config_entry,
    config_json_row,
    config_offset_row,
    config_version_row,
)
from tests.formats.samples import int32s, int64s

UNIT_KEY = bytes.fromhex("00000001 01 54 01 00000001 01 0000000000000005")  # of topic T, queue 1, offset 5
UNIT_VALUE = bytes.fromhex("000000000000807D 000002B1 000000000027A807 000001A205FC3CE3")
NUMBER = (80).to_bytes(8, "big")
HELD = (
    b'{"popTime":1795579949737,"groupId":"workers","topicId":"tasks","queueId":0,"retryFlag":0,"invisibleTime":45000,'
    b'"offset":1,"attemptTimes":0,"suspend":false}'
)
EXAMPLES: dict[str, tuple[rows.Decoder, bytes, bytes, rows.Row]] = {
    "unit": (
        rows.queue_unit, UNIT_KEY, UNIT_VALUE,
        rows.Row("queue-unit", {"topic": "T", "queue_id": 1, "queue_offset": 5}, {
            "physical_offset": 32893, "message_size": 689, "tags_code": 2598919, "store_timestamp": 1795396746467,
        }),
    ),
    "last unit": (
        rows.queue_bound, b"\0\0\0\x01\x01T\x01max\x01\0\0\0\x02", bytes.fromhex("000000000000AECC 0000000000000010"),
        rows.Row("queue-bound", {"topic": "T", "bound": "max", "queue_id": 2},
                 {"physical_offset": 44748, "queue_offset": 16}),
    ),
    "dispatched": (
        rows.queue_bound, b"\0\0\0\x10\x01CHECKPOINT_TOPIC\x01max\x01\0\0\0\0", NUMBER,
        rows.Row("dispatched-end", {"topic": "CHECKPOINT_TOPIC", "bound": "max", "queue_id": 0},
                 {"dispatched_end": 80}),
    ),
    "version 1": (
        rows.json_entry, b"orders@desk", b'{"offsetTable":{"0":15}}',
        rows.Row("config-entry", {"name": "orders@desk"}, json='{"offsetTable":{"0":15}}'),
    ),
    "offset of version 2": (
        config_entry, b"\x01\0\x01\x02\0\x09group-all\x01\0\x0bTopicNormal\x01\0\0\0\0", NUMBER,
        rows.Row("committed-offset", {"table": "consumerOffset", "group": "group-all", "topic": "TopicNormal",
                                      "queue_id": 0}, {"offset": 80}),
    ),
    "topic of version 2": (
        config_entry, b"\x01\0\x03\x02\0\x01T", b'\x01{"perm":6}',
        rows.Row("config-entry", {"table": "topic", "name": "T"}, json='{"perm":6}'),
    ),
    "data version": (
        config_entry, b"\x01\0\x04\x01data_version", b"".join(n.to_bytes(8, "big") for n in (0, 7, 10)),
        rows.Row("config-version", {"table": "subscriptionGroup"}, {"state_version": 0, "timestamp": 7, "counter": 10}),
    ),
    "key": (
        rows.index_entry, bytes(8) + b"@orders@K@ORD@1@UK@" + NUMBER, NUMBER,
        rows.Row("index-entry", {"hour_timestamp": 0, "topic": "orders", "type": "K", "unique_key": "UK",
                                 "key": "ORD@1", "physical_offset": 80}, {"store_timestamp": 80}),
    ),
    "unique key": (
        rows.index_entry, bytes(8) + b"@orders@U@UK@" + NUMBER, NUMBER,
        rows.Row("index-entry", {"hour_timestamp": 0, "topic": "orders", "type": "U", "unique_key": "UK",
                                 "physical_offset": 80}, {"store_timestamp": 80}),
    ),
    "progress": (rows.timer_entry, b"timeline_checkpoint", NUMBER,
                 rows.Row("progress", {"name": "timeline_checkpoint"}, {"number": 80})),
    "timer": (
        rows.timer_entry, NUMBER + b"UK", b"\0\0\x01\x70" + NUMBER,
        rows.Row("timer-entry", {"delivery_timestamp": 80, "unique_key": "UK"},
                 {"message_size": 368, "physical_offset": 80}),
    ),
    "half message": (
        rows.transaction_entry, NUMBER + b"@orders@7F00", bytes.fromhex("00000001 00000170"),
        rows.Row("half-message", {"physical_offset": 80, "topic": "orders", "transaction_id": "7F00"},
                 {"check_times": 1, "message_size": 368}),
    ),
    "held by POP": (
        rows.pop_entry, NUMBER + b"group@orders@\0\0\0\x02@" + NUMBER, b'{"popTime":1}',
        rows.Row("pop-record", {"visible_timestamp": 80, "group": "group", "topic": "orders", "queue_id": 2,
                                "queue_offset": 80}, json='{"popTime":1}'),
    ),
    # 5.5.0 wrote the next three: a shop with `timerRocksDBEnable`, one with `transRocksDBEnable` and
    # `transWriteOriginTransHalfEnable=false`, and a POP consumer with `popConsumerKVServiceEnable`.
    "timer of a broker": (
        rows.timer_entry, bytes.fromhex("000001a2060de680") + b"7F000001512C4E0E2F2A71A5FA02006F",
        bytes.fromhex("0000016e 0000000000007c2f"),
        rows.Row("timer-entry", {"delivery_timestamp": 1795397904000, "unique_key": "7F000001512C4E0E2F2A71A5FA02006F"},
                 {"message_size": 366, "physical_offset": 31791}),
    ),
    "half message of a broker": (
        rows.transaction_entry, bytes.fromhex("00000000000069d8") + b"@vouchers@7F0000014D2E4E0E2F2A7C80A4AC0066",
        bytes.fromhex("00000000 00000193"),
        rows.Row("half-message", {"physical_offset": 27096, "topic": "vouchers",
                                  "transaction_id": "7F0000014D2E4E0E2F2A7C80A4AC0066"},
                 {"check_times": 0, "message_size": 403}),
    ),
    "held by POP of a broker": (
        rows.pop_entry,
        bytes.fromhex("000001a210e86271") + b"workers@tasks@" + bytes.fromhex("00000000 40 0000000000000001"),
        HELD,
        rows.Row("pop-record", {"visible_timestamp": 1795579994737, "group": "workers", "topic": "tasks",
                                "queue_id": 0, "queue_offset": 1}, json=HELD.decode()),
    ),
}  # fmt: skip
OF_ANY_LENGTH = {"version 1"}
"""What may be cut and is still a row."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example(name: str) -> None:
    """Each form of row, as brokers write it."""
    decode, key, value, row = EXAMPLES[name]
    assert decode(key, value) == row


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - OF_ANY_LENGTH))
def test_what_is_cut_or_longer(name: str) -> None:
    """A key or value of any other length is an error of ours or another row, never another error and never the same."""
    decode, key, value, row = EXAMPLES[name]
    for length in range(len(key)):
        assert decoded(decode, key[:length], value) != row
    for length in range(len(value)):
        assert decoded(decode, key, value[:length]) != row
    assert decoded(decode, key, value + b"\0") != row


@pytest.mark.parametrize("name", EXAMPLES)
def test_flipped_bytes(name: str) -> None:
    """Every byte of a key, and of a value, as any other: decoded to something else, or an error of ours."""
    decode, key, value, row = EXAMPLES[name]
    for position in range(len(key)):
        assert decoded(decode, flipped(key, position), value) != row
    for position in range(len(value)):
        assert decoded(decode, key, flipped(value, position)) != row


@given(st.text(max_size=9), int32s, int64s, st.tuples(int64s, int32s, int64s, int64s))
def test_units_are_as_declared(topic: str, queue_id: int, queue_offset: int, stored: tuple[int, int, int, int]) -> None:
    """The fast way gives what the declared layout says."""
    fields = [field.name for field in rows.QueueUnitValue.subcons]
    name = topic.encode()
    key = {"topic_length": len(name), "topic": name, "queue_id": queue_id, "queue_offset": queue_offset}
    encoded = build(rows.QueueUnitKey, dict.fromkeys(("control_1", "control_2", "control_3"), 1) | key)
    value = dict(zip(fields, stored, strict=True))
    row = rows.queue_unit(encoded, build(rows.QueueUnitValue, value))
    assert row == rows.Row("queue-unit", {"topic": topic, "queue_id": queue_id, "queue_offset": queue_offset}, value)
    assert encoded.startswith(rows.queue_prefix(name))
    assert encoded.startswith(rows.queue_prefix(name, queue_id))


def decoded(decode: Callable[[bytes, bytes], rows.Row], key: bytes, value: bytes) -> rows.Row | None:
    """The row, None where it cannot be decoded."""
    try:
        return decode(key, value)
    except FormatError:
        return None


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :]


def test_rows_of_version_2_are_written_as_they_are_read() -> None:
    """The examples of a broker, built from what they mean."""
    built = {
        "offset of version 2": config_offset_row("group-all", "TopicNormal", 0, 80),
        "topic of version 2": config_json_row("topic", "T", '{"perm":6}'),
        "data version": config_version_row("subscriptionGroup", 0, 7, 10),
    }
    assert built == {name: EXAMPLES[name][1:3] for name in built}
