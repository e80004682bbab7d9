"""A message unit of the commit log, V1 and V2, its flags, hosts, checksums and ids; the blank that ends a full file.

Mirrors `CommitLog#checkMessageAndReturnSize`, `MessageExtEncoder`, `MessageVersion` and `MessageSysFlag`.
"""

from __future__ import annotations

import ipaddress
import re
import zlib
from typing import Any

from construct import Bytes, IfThenElse, Int8sb, Int16sb, Int32sb, Int64sb, Struct, this

from .layout import FormatError, build, dtype_of, parse, position_of, size_of, struct_of

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10  # since 4.6.0
STORE_HOST_V6 = 0x20  # since 4.6.0
NEED_UNWRAP = 0x40  # since 4.9.4
INNER_BATCH = 0x80  # since 4.9.4
COMPRESSION_TYPE_MASK = 0x700  # meaningful only with COMPRESSED, since 4.9.4

TRANSACTION_NAMES = ("none", "prepared", "commit", "rollback")
"""By ``(sys_flag & TRANSACTION_MASK) >> 2``."""

COMPRESSION_NAMES = ("zlib", "lz4", "zstd", "zlib", "unknown", "unknown", "unknown", "unknown")
"""By ``(sys_flag & COMPRESSION_TYPE_MASK) >> 8`` of a compressed body; older writers leave 0 and mean zlib."""

HostV4 = Struct("address" / Bytes(4) * "IPv4 address", "port" / Int32sb * "port")
HostV6 = Struct("address" / Bytes(16) * "IPv6 address", "port" / Int32sb * "port")
HOST_V4_SIZE = size_of(HostV4)
HOST_V6_SIZE = size_of(HostV6)


def host_size(sys_flag: int, v6_bit: int) -> int:
    """Stored size of a host, bytes: 8, or 20 when its IPv6 bit is set."""
    return HOST_V6_SIZE if sys_flag & v6_bit else HOST_V4_SIZE


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

CRC_MASK = 0x7FFFFFFF  # UtilAll#crc32 clears the sign bit
CRC32_PROPERTY = b"__CRC32#"
CRC32_DIGITS = 10
CRC32_PROPERTY_SIZE = 20  # name, 0x01, ten digits, 0x02: CommitLog.CRC32_RESERVED_LEN, since 5.2.0
_PROPERTY = re.compile(re.escape(CRC32_PROPERTY) + rb"\x01([0-9]{%d})\x02" % CRC32_DIGITS)

MessageIdV4 = Struct(
    "store_host" / Bytes(HOST_V4_SIZE) * "broker's IPv4 address and port",
    "physical_offset" / Int64sb * "position of the record in the commit log, bytes",
)
MessageIdV6 = Struct(
    "store_host" / Bytes(HOST_V6_SIZE) * "broker's IPv6 address and port",
    "physical_offset" / Int64sb * "position of the record in the commit log, bytes",
)


def transaction(sys_flag: int) -> str:
    """Name of the transaction type."""
    return TRANSACTION_NAMES[(sys_flag & TRANSACTION_MASK) >> 2]


def compression(sys_flag: int) -> str:
    """Name of the body's compression: none, zlib, lz4, zstd, or unknown (types that Java refuses)."""
    if not sys_flag & COMPRESSED:
        return "none"
    return COMPRESSION_NAMES[(sys_flag & COMPRESSION_TYPE_MASK) >> 8]


def format_host(data: bytes) -> str:
    """Show a stored host as ``ip:port``; an IPv6 address is shortened and in brackets."""
    host = parse(HostV4 if len(data) == HOST_V4_SIZE else HostV6, data)
    address = ipaddress.ip_address(host.address)
    if isinstance(address, ipaddress.IPv4Address):
        return f"{address}:{host.port}"
    mapped = address.ipv4_mapped
    return f"[::ffff:{mapped}]:{host.port}" if mapped else f"[{address}]:{host.port}"  # as Python 3.13 shows it


def build_host(address: str, port: int) -> bytes:
    """Encode a host; the kind of address decides the size."""
    packed = ipaddress.ip_address(address).packed
    return build(HostV4 if len(packed) == 4 else HostV6, {"address": packed, "port": port})


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


def body_crc(body: bytes) -> int:
    """CRC-32 of a stored body as `UtilAll#crc32` gives it; 0 for an empty body."""
    return zlib.crc32(body) & CRC_MASK


def build_crc32_property(crc: int) -> bytes:
    """The last 20 bytes of a record: digits stand least significant first (`MessageDecoder#createCrc32`)."""
    return CRC32_PROPERTY + b"\x01" + f"{crc:0{CRC32_DIGITS}d}"[::-1].encode() + b"\x02"


def stored_record_crc(record: bytes) -> int | None:
    """The CRC that the record's last 20 bytes carry, or None when there is no such property."""
    match = _PROPERTY.fullmatch(record[-CRC32_PROPERTY_SIZE:])
    return int(match[1][::-1]) if match else None


def record_crc(record: bytes) -> int:
    """CRC-32 over all of the record but its last 20 bytes, sign bit cleared."""
    return zlib.crc32(record[:-CRC32_PROPERTY_SIZE]) & CRC_MASK


def format_message_id(store_host: bytes, physical_offset: int) -> str:
    """Upper-case hex, 32 characters for an IPv4 store host and 56 for IPv6."""
    layout = MessageIdV4 if len(store_host) == HOST_V4_SIZE else MessageIdV6
    return build(layout, {"store_host": store_host, "physical_offset": physical_offset}).hex().upper()


def parse_message_id(text: str) -> tuple[bytes, int]:
    """Store host (8 or 20 bytes) and physical offset; raise FormatError when `text` is not a message id."""
    layouts = {2 * size_of(layout): layout for layout in (MessageIdV4, MessageIdV6)}
    if len(text) not in layouts:
        raise FormatError(f"a message id has 32 or 56 hex digits, this has {len(text)} characters")
    if not re.fullmatch("[0-9A-Fa-f]+", text):
        raise FormatError(f"a message id has hex digits only: {text!r}")
    fields = parse(layouts[len(text)], bytes.fromhex(text))
    return fields.store_host, fields.physical_offset
