"""Keys and values of the rows that brokers keep in RocksDB databases, last of all `config/rdb`; numbers are big-endian.

Consume queues (`RocksDBConsumeQueueTable`, `RocksDBConsumeQueueOffsetTable`), configuration (`broker.config.v2`), and
what 5.3.2 and later may keep beside the log (`MessageRocksDBStorage`, `PopConsumerRecord`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from construct import Bytes, Const, Construct, GreedyBytes, Int8ub, Int16ub, Int32sb, Int32ub, Int64sb, Struct, this

from .java import decode_text
from .layout import FormatError, build, dtype_of, parse, struct_of

CONTROL = Const(1, Int8ub)  # AbstractRocksDBStorage.CTRL_1
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"  # RocksDBConsumeQueueOffsetTable: the end of what was dispatched
LAST_UNIT = b"max"  # RocksDBConsumeQueueOffsetTable.MAX_BYTES

_TOPIC = (
    "topic_length" / Int32ub * "size of the topic, bytes",
    "control_1" / CONTROL * "1",
    "topic" / Bytes(this.topic_length) * "the topic in UTF-8",
    "control_2" / CONTROL * "1",
)
QueueUnitKey = Struct(
    *_TOPIC,
    "queue_id" / Int32sb * "the queue's id",
    "control_3" / CONTROL * "1",
    "queue_offset" / Int64sb * "the unit's offset in the queue",
)
QueueUnitValue = Struct(
    "physical_offset" / Int64sb * "commit log position of the message, bytes",
    "message_size" / Int32sb * "stored size of the whole message, bytes",
    "tags_code" / Int64sb * "hash of the tag; the delivery time, ms, for a delayed message",
    "store_timestamp" / Int64sb * "when the broker stored the message, epoch ms",
)
QueueBoundKey = Struct(
    *_TOPIC,
    "bound" / Bytes(3) * "max or min",
    "control_3" / CONTROL * "1",
    "queue_id" / Int32sb * "the queue's id",
)
QueueBoundValue = Struct(
    "physical_offset" / Int64sb * "commit log position of the unit's message, bytes",
    "queue_offset" / Int64sb * "of the last unit (max), or of the first that can be read (min)",
)
DispatchedValue = Struct("dispatched_end" / Int64sb * "commit log position after the last dispatched record, bytes")

Number = Struct("number" / Int64sb * "a number")
TimerKey = Struct(
    "delivery_timestamp" / Int64sb * "when the message is due, epoch ms",
    "unique_key" / GreedyBytes * "its unique key",
)
TimerValue = Struct(
    "message_size" / Int32sb * "stored size of the whole message, bytes",
    "physical_offset" / Int64sb * "commit log position of the message, bytes",
)
TransactionKey = Struct(
    "physical_offset" / Int64sb * "commit log position of the half message, bytes",
    "names" / GreedyBytes * "@topic@transaction id",
)
TransactionValue = Struct(
    "check_times" / Int32sb * "how often its producer was asked",
    "message_size" / Int32sb * "stored size of the whole message, bytes",
)
IndexKey = Struct(
    "hour_timestamp" / Int64sb * "the hour in which the message was stored, epoch ms",
    "names" / GreedyBytes * "@topic@K@key@unique key@, @topic@T@tags@unique key@ or @topic@U@unique key@, and 8 bytes",
)
PopKey = Struct(
    "visible_timestamp" / Int64sb * "when the message can be seen again, epoch ms",
    "names" / GreedyBytes * "group@topic@, queue id (4 bytes), @, queue offset (8 bytes)",
)

INDEX_HOUR = 3_600_000
"""Index entries are grouped by hours of the store time, ms."""
INDEXED_TO = b"lastOffsetPy"
"""The key with the physical offset of the last message in the index."""
INDEXED_TIME = b"lastStoreTimeStamp"
"""The key with the time at which that one was stored, epoch ms."""

TIMELINE = b"timeline_checkpoint"
"""The key with the time up to which timer messages were delivered, epoch ms."""
TIMERS_INDEXED_TO = b"sys_topic_scan_offset_checkpoint"
"""The key with the offset in the timer's queue up to which its messages are rows."""

_UNIT_KEY_END = struct.Struct(">bibq")  # after the topic
_BOUND_KEY_END = struct.Struct(">b3sbi")
QUEUE_UNIT_DTYPE = dtype_of(QueueUnitValue)
_UNIT_FIELDS = tuple(field.name for field in QueueUnitValue.subcons)
_UNIT_VALUE = struct_of(QUEUE_UNIT_DTYPE, *_UNIT_FIELDS)
_BOUND_FIELDS = tuple(field.name for field in QueueBoundValue.subcons)
_BOUND_VALUE = struct_of(dtype_of(QueueBoundValue), *_BOUND_FIELDS)
_NUMBER = struct_of(dtype_of(Number), "number")
TIMER_VALUE_DTYPE = dtype_of(TimerValue)
_TIMER_VALUE = struct_of(TIMER_VALUE_DTYPE, "message_size", "physical_offset")
_TRANSACTION_VALUE = struct_of(dtype_of(TransactionValue), "check_times", "message_size")
_OFFSET_SIZE, _QUEUE_ID_SIZE = 8, 4
_SEPARATOR = b"@"
PROGRESS = (INDEXED_TO, INDEXED_TIME, TIMERS_INDEXED_TO, TIMELINE)
"""Keys of rows that are no entries."""


class Row(NamedTuple):
    """A decoded row: what it is, the fields of its key and of its value, or the JSON text that is its value."""

    kind: str
    key: dict[str, Any]
    fields: dict[str, Any] = {}  # noqa: RUF012
    json: str | None = None


Decoder = Callable[[bytes, bytes], Row]


def queue_prefix(topic: bytes, queue_id: int | None = None) -> bytes:
    """What the keys of a topic's units begin with, or those of one of its queues."""
    prefix = len(topic).to_bytes(4, "big") + b"\x01" + topic + b"\x01"
    return prefix if queue_id is None else prefix + queue_id.to_bytes(4, "big", signed=True) + b"\x01"


def bound_key(topic: bytes, queue_id: int, bound: bytes = LAST_UNIT) -> bytes:
    """The key of a queue's last unit (max), or of its first (min)."""
    fields = {"topic_length": len(topic), "topic": topic, "bound": bound, "queue_id": queue_id}
    return build(QueueBoundKey, fields)


def bound_value(physical_offset: int, queue_offset: int) -> bytes:
    """The value of a queue's first or last unit."""
    return build(QueueBoundValue, {"physical_offset": physical_offset, "queue_offset": queue_offset})


def dispatched_row(end: int) -> tuple[bytes, bytes]:
    """The row that says up to which physical offset all records were dispatched."""
    return bound_key(CHECKPOINT_TOPIC, 0), build(DispatchedValue, {"dispatched_end": end})


def queue_unit(key: bytes, value: bytes) -> Row:
    """A unit of a consume queue; without `construct`, for there are millions of them."""
    end = len(key) - _UNIT_KEY_END.size  # of the topic
    try:
        mark_2, queue_id, mark_3, queue_offset = _UNIT_KEY_END.unpack_from(key, end)
        if key[:5] == (end - 5).to_bytes(4, "big") + b"\x01" and mark_2 == mark_3 == 1:
            names = {"topic": decode_text(key[5:end]), "queue_id": queue_id, "queue_offset": queue_offset}
            return Row("queue-unit", names, dict(zip(_UNIT_FIELDS, _UNIT_VALUE.unpack(value), strict=True)))
    except (struct.error, OverflowError) as error:
        raise FormatError(f"a unit has a key of 19 bytes and the topic, and a value of 28: {error}") from error
    raise FormatError(f"{key.hex()} is not a topic, queue and offset")


def queue_bound(key: bytes, value: bytes) -> Row:
    """The first or last unit of a queue, or the end of what was dispatched."""
    end = len(key) - _BOUND_KEY_END.size  # of the topic
    try:
        mark_2, bound, mark_3, queue_id = _BOUND_KEY_END.unpack_from(key, end)
        if key[:5] != (end - 5).to_bytes(4, "big") + b"\x01" or not mark_2 == mark_3 == 1:
            raise FormatError(f"{key.hex()} is not a topic, bound and queue")
        names = {"topic": decode_text(key[5:end]), "bound": decode_text(bound), "queue_id": queue_id}
        if key[5:end] == CHECKPOINT_TOPIC:
            return Row("dispatched-end", names, fields_of(DispatchedValue, value))
        fields = dict(zip(_BOUND_FIELDS, _BOUND_VALUE.unpack(value), strict=True))
    except (struct.error, OverflowError) as error:
        raise FormatError(f"the end of a queue has a key of 14 bytes and the topic, a value of 16: {error}") from error
    return Row("queue-bound", names, fields)


def json_entry(key: bytes, value: bytes) -> Row:
    """An entry of a table of version 1: a topic, a group, the offsets of ``topic@group``."""
    return Row("config-entry", {"name": decode_text(key)}, json=decode_text(value))


def index_prefix(hour: int, topic: str | None = None, key_type: str = "", key: str = "") -> bytes:
    """What the index keys of an hour, epoch ms, begin with, or those of one key of a topic in it."""
    names = "" if topic is None else f"@{topic}@{key_type}@{key}@"
    return hour.to_bytes(_OFFSET_SIZE, "big") + names.encode()


def indexed_hour(key: bytes) -> int | None:
    """The hour of an index key, epoch ms; None for what is no index key."""
    return None if not key or key in PROGRESS else int.from_bytes(key[:_OFFSET_SIZE], "big")


def indexed_message(key: bytes, value: bytes) -> tuple[int, int]:
    """Physical offset and store timestamp, epoch ms, of an index entry."""
    return int.from_bytes(key[-_OFFSET_SIZE:], "big", signed=True), int.from_bytes(value, "big", signed=True)


def index_entry(key: bytes, value: bytes) -> Row:
    """A key of a message in `rocksdbstore`, or how far the index has come."""
    if key in PROGRESS:
        return _progress(key, value)
    fields = fields_of(IndexKey, key, keep=("names",))
    names, offset = fields.pop("names")[:-_OFFSET_SIZE], key[-_OFFSET_SIZE:]
    topic, kind, *words = _words(names, ends=True)
    if kind not in ("K", "T", "U") or not words:
        raise FormatError(f"{decode_text(names)!r} is not a key, tag or unique key of a topic")
    fields |= {"topic": topic, "type": kind, "unique_key": words[-1]}
    if len(words) > 1:
        fields["key"] = "@".join(words[:-1])
    fields["physical_offset"] = int.from_bytes(offset, "big", signed=True)
    return Row("index-entry", fields, {"store_timestamp": fields_of(Number, value)["number"]})


def timer_entry(key: bytes, value: bytes) -> Row:
    """A timer message in `rocksdbstore`, or how far the time line has come."""
    if key in PROGRESS:
        return _progress(key, value)
    return Row("timer-entry", fields_of(TimerKey, key), fields_of(TimerValue, value))


def timer_row(key: bytes, value: bytes) -> tuple[int, int]:
    """When a timer message is due, epoch ms, and its physical offset; without `construct`, raises struct.error."""
    return _NUMBER.unpack_from(key)[0], _TIMER_VALUE.unpack(value)[1]


def transaction_row(key: bytes, value: bytes) -> tuple[int, int]:
    """The physical offset of a half message, and how often its producer was asked; raises struct.error."""
    return _NUMBER.unpack_from(key)[0], _TRANSACTION_VALUE.unpack(value)[0]


def new_transaction_row(physical_offset: int, topic: str, transaction_id: str, size: int) -> tuple[bytes, bytes]:
    """Key and value of a half message whose producer was not asked yet."""
    names = f"@{topic}@{transaction_id}".encode("utf-8", "surrogateescape")
    return _NUMBER.pack(physical_offset) + names, _TRANSACTION_VALUE.pack(0, size)


def is_progress(key: bytes) -> bool:
    """Whether a row says how far something has come."""
    return key in PROGRESS


def progress_number(value: bytes) -> int:
    """How far something has come; raises struct.error."""
    return int(_NUMBER.unpack(value)[0])


def progress_value(number: int) -> bytes:
    """The value of a row that says how far something has come."""
    return _NUMBER.pack(number)


def transaction_entry(key: bytes, value: bytes) -> Row:
    """A half message in `rocksdbstore` that has no answer yet, or how far the scan of them has come."""
    if key in PROGRESS:
        return _progress(key, value)
    fields = fields_of(TransactionKey, key, keep=("names",))
    topic, *transaction = _words(fields.pop("names"), ends=False)
    fields |= {"topic": topic, "transaction_id": "@".join(transaction)}
    return Row("half-message", fields, fields_of(TransactionValue, value))


def pop_entry(key: bytes, value: bytes) -> Row:
    """A message in `kvStore` that a POP consumer holds."""
    fields = fields_of(PopKey, key, keep=("names",))
    names = fields.pop("names")
    numbers = names[-(_QUEUE_ID_SIZE + 1 + _OFFSET_SIZE) :]
    group, _, topic = names[: -len(numbers)].rpartition(_SEPARATOR)[0].partition(_SEPARATOR)
    is_ended = names[: -len(numbers)].endswith(_SEPARATOR)
    if not (is_ended and group and topic) or numbers[_QUEUE_ID_SIZE : _QUEUE_ID_SIZE + 1] != _SEPARATOR:
        raise FormatError(f"{decode_text(names)!r} is not a group, topic, queue and offset")
    fields |= {"group": decode_text(group), "topic": decode_text(topic)}
    fields["queue_id"] = int.from_bytes(numbers[:_QUEUE_ID_SIZE], "big", signed=True)
    fields["queue_offset"] = int.from_bytes(numbers[-_OFFSET_SIZE:], "big", signed=True)
    return Row("pop-record", fields, json=decode_text(value))


def _progress(key: bytes, value: bytes) -> Row:
    return Row("progress", {"name": decode_text(key)}, fields_of(Number, value))


def _words(names: bytes, *, ends: bool) -> list[str]:
    """What stands between the separators, of which one is in front, and one at the end with `ends`."""
    words = names.split(_SEPARATOR)
    inner = words[1:-1] if ends else words[1:]
    if words[0] or (ends and words[-1]) or len(inner) < 2:
        raise FormatError(f"{decode_text(names)!r} is not divided by @")
    return [decode_text(word) for word in inner]


def fields_of(layout: Construct, data: bytes, keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields without lengths and marks, names as text but for those to `keep`; raise FormatError for bytes left."""
    parsed = parse(layout, data)
    if build(layout, parsed) != data:
        raise FormatError(f"{len(data)} bytes, which is more than the fields have")
    return {
        name: decode_text(value) if isinstance(value, bytes) and name not in keep else value
        for name, value in parsed.items()
        if not (name.startswith(("_", "control")) or name.endswith("length") or name == "mark")
    }


ConfigKey = Struct(
    "mark" / Const(1, Int8ub) * "1",
    "table" / Int16ub * "TableId: 1 offsets, 2 pull offsets, 3 topics, 4 groups",
    "record" / Int8ub * "RecordType: 1 data version, 2 data",
    "rest" / GreedyBytes * "what is named, by table",
)
NameRest = Struct("length" / Int16ub * "size of the name, bytes", "name" / Bytes(this.length) * "topic or group")
OffsetRest = Struct(
    "group_length" / Int16ub * "size of the group, bytes",
    "group" / Bytes(this.group_length) * "the consumer group",
    "control_1" / CONTROL * "1",
    "topic_length" / Int16ub * "size of the topic, bytes",
    "topic" / Bytes(this.topic_length) * "the topic",
    "control_2" / CONTROL * "1",
    "queue_id" / Int32sb * "the queue's id",
)
DataVersionValue = Struct(
    "state_version" / Int64sb * "of the controller",
    "timestamp" / Int64sb * "last change, epoch ms",
    "counter" / Int64sb * "number of changes",
)

_TABLES = {1: "consumerOffset", 2: "pullOffset", 3: "topic", 4: "subscriptionGroup"}
_TABLE_NUMBERS = {name: number for number, name in _TABLES.items()}
_DATA_VERSION, _DATA = 1, 2
_VERSION_NAME = b"data_version"
_JSON_MARK = b"\x01"  # SerializationType.JSON


def config_entry(key: bytes, value: bytes) -> Row:
    """A row of `config/rdb`, version 2."""
    fields = fields_of(ConfigKey, key, keep=("rest",))
    table = _TABLES.get(fields["table"])
    is_version = fields["record"] == _DATA_VERSION and fields["rest"] == _VERSION_NAME
    if table is None or not (is_version or fields["record"] == _DATA):
        raise FormatError(f"table {fields['table']} with record {fields['record']} is not known")
    named = {"table": table}
    if is_version:
        return Row("config-version", named, fields_of(DataVersionValue, value))
    if table in ("consumerOffset", "pullOffset"):
        rest = fields_of(OffsetRest, fields["rest"])
        return Row("committed-offset", named | rest, {"offset": fields_of(Number, value)["number"]})
    if not value.startswith(_JSON_MARK):
        raise FormatError(f"a value that begins with {value[:1].hex() or 'nothing'} instead of 01 for JSON")
    return Row("config-entry", named | fields_of(NameRest, fields["rest"]), json=decode_text(value[1:]))


def config_version_row(table: str, state_version: int, timestamp: int, counter: int) -> tuple[bytes, bytes]:
    """The row of `config/rdb` that says how often a table was changed, and when, epoch ms."""
    fields = {"state_version": state_version, "timestamp": timestamp, "counter": counter}
    return _config_key(table, _DATA_VERSION, _VERSION_NAME), build(DataVersionValue, fields)


def config_json_row(table: str, name: str, text: str) -> tuple[bytes, bytes]:
    """The row of `config/rdb` of a topic or a group; `text` is its JSON."""
    data = name.encode()
    return _config_key(table, _DATA, build(NameRest, {"length": len(data), "name": data})), _JSON_MARK + text.encode()


def config_offset_row(group: str, topic: str, queue_id: int, offset: int) -> tuple[bytes, bytes]:
    """The row of `config/rdb` of a committed offset."""
    names = {"group": group.encode(), "topic": topic.encode()}
    lengths = {f"{name}_length": len(data) for name, data in names.items()}
    rest = build(OffsetRest, {**names, **lengths, "queue_id": queue_id})
    return _config_key("consumerOffset", _DATA, rest), build(Number, {"number": offset})


def _config_key(table: str, record: int, rest: bytes) -> bytes:
    return build(ConfigKey, {"table": _TABLE_NUMBERS[table], "record": record, "rest": rest})
