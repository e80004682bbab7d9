"""A message unit of the commit log, V1 and V2, and the blank that ends a full file.

Mirrors `CommitLog#checkMessageAndReturnSize`, `MessageExtEncoder` and `MessageVersion`.
"""

from __future__ import annotations

from typing import Any

from construct import Bytes, IfThenElse, Int8sb, Int16sb, Int32sb, Int64sb, Struct, this

from .host import host_size
from .layout import build, dtype_of, parse, position_of, size_of, struct_of
from .sys_flag import BORN_HOST_V6, STORE_HOST_V6

MAGIC_CODE_V1 = -626843481  # 0xDAA320A7, MessageDecoder.MESSAGE_MAGIC_CODE
MAGIC_CODE_V2 = -626843477  # 0xDAA320AB, MessageDecoder.MESSAGE_MAGIC_CODE_V2, since 5.1.0
MAGIC_CODE_BLANK = -875286124  # 0xCBD43194, MessageDecoder.BLANK_MAGIC_CODE

MAX_TOPIC_SIZE_V1 = 127  # the length is a signed byte in Java
MAX_PROPERTIES_SIZE = 32767

MessageUnit = Struct(
    "message_size" / Int32sb * "size of the whole record, this field included, bytes",
    "magic_code" / Int32sb * "kind of record: V1, V2 (two-byte topic length) or blank",
    "body_crc" / Int32sb * "CRC-32 of the stored body, sign bit cleared; 0 without a body",
    "queue_id" / Int32sb * "number of the queue within its topic",
    "flag" / Int32sb * "flag of the application, opaque to the broker",
    "queue_offset" / Int64sb * "number of this message in its queue; 0 for prepared and rollback",
    "physical_offset" / Int64sb * "position of this record in the commit log, bytes",
    "sys_flag" / Int32sb * "bits: compression, transaction type, IPv6 hosts, inner batch",
    "born_timestamp" / Int64sb * "client's clock at sending, epoch ms",
    "born_host" / Bytes(lambda c: host_size(c.sys_flag, BORN_HOST_V6)) * "client's address and four-byte port",
    "store_timestamp" / Int64sb * "broker's clock at storing, epoch ms",
    "store_host" / Bytes(lambda c: host_size(c.sys_flag, STORE_HOST_V6)) * "broker's address and four-byte port",
    "reconsume_times" / Int32sb * "how often the message was sent back for a retry",
    "prepared_transaction_offset" / Int64sb * "commit log position of the half message of a committed copy, else 0",
    "body_size" / Int32sb * "stored size of the body, bytes",
    "body" / Bytes(this.body_size) * "the body as stored, possibly compressed",
    "topic_size" / IfThenElse(this.magic_code == MAGIC_CODE_V2, Int16sb, Int8sb) * "size of the topic, bytes",
    "topic" / Bytes(this.topic_size) * "topic, UTF-8",
    "properties_size" / Int16sb * "size of the properties, bytes",
    "properties" / Bytes(this.properties_size) * "properties, UTF-8: name 0x01 value 0x02 ...",
)

Blank = Struct(
    "size" / Int32sb * "bytes from here to the end of the file; no reader uses it",
    "magic_code" / Int32sb * "MAGIC_CODE_BLANK",
)

BLANK_SIZE = size_of(Blank)  # CommitLog.END_FILE_MIN_BLANK_LENGTH
PREFIX_DTYPE = dtype_of(MessageUnit, until="born_host")  # the fields before the first of variable width
HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6
HEADER_DTYPES = {
    bits: dtype_of(MessageUnit, until="body", sys_flag=bits) for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOST_BITS)
}
"""The fields before the body, by the two host bits of the sys flag."""

MAX_HEADER_SIZE = HEADER_DTYPES[HOST_BITS].itemsize
MESSAGE_SIZE_WIDTH = PREFIX_DTYPE["message_size"].itemsize
BODY_SIZE_WIDTH = HEADER_DTYPES[0]["body_size"].itemsize
PROPERTIES_SIZE_WIDTH = size_of(MessageUnit.properties_size)
MAGIC_POSITION = position_of(PREFIX_DTYPE, "magic_code")
SIZE_AND_MAGIC = struct_of(PREFIX_DTYPE, "message_size", "magic_code")
HEAD = struct_of(PREFIX_DTYPE, "message_size", "magic_code", "physical_offset", "sys_flag")
"""The fields that show where a record ends, and whether it is one."""

MIN_MESSAGE_SIZE = HEADER_DTYPES[0].itemsize + 1 + PROPERTIES_SIZE_WIDTH  # IPv4, no body, no topic, no properties: 91


def topic_size_width(magic_code: int) -> int:
    """Width of the topic length, bytes (`MessageVersion#getTopicLengthSize`)."""
    return 2 if magic_code == MAGIC_CODE_V2 else 1


def parse_message(data: bytes | bytearray | memoryview) -> Any:
    """Decode one message unit; raise FormatError when a length leads out of `data`."""
    return parse(MessageUnit, data)


def build_message(**fields: Any) -> bytes:
    """Encode one message unit; the four sizes are computed, `magic_code` defaults to V1."""
    values = {"magic_code": MAGIC_CODE_V1, **fields}
    for name in ("body", "topic", "properties"):
        values[f"{name}_size"] = len(values[name])
    values["message_size"] = (
        HEADER_DTYPES[values["sys_flag"] & HOST_BITS].itemsize
        + topic_size_width(values["magic_code"])
        + PROPERTIES_SIZE_WIDTH
        + sum(len(values[name]) for name in ("body", "topic", "properties"))
    )
    return build(MessageUnit, values)


def build_blank(size: int) -> bytes:
    """Encode the eight bytes of a blank that reaches `size` bytes to the end of its file."""
    return build(Blank, {"size": size, "magic_code": MAGIC_CODE_BLANK})
