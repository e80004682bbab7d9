"""Rows of `config/rdb`, the configuration of version 2 in RocksDB (`broker.config.v2`); all numbers are big-endian."""

from __future__ import annotations

from construct import Byte, Bytes, Const, GreedyBytes, Int8ub, Int16ub, Int32sb, Int64sb, Struct, this

from .java import decode_text
from .layout import FormatError, build
from .rocksdb_rows import CONTROL, Number, Row, fields_of

ConfigKey = Struct(
    "mark" / Const(1, Byte) * "1",
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
    number = next(number for number, name in _TABLES.items() if name == table)
    return build(ConfigKey, {"table": number, "record": record, "rest": rest})
