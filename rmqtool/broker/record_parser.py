"""One record as the broker parses it (`CommitLog#checkMessageAndReturnSize`), which is laxer and stricter than a scan.

Laxer: the record may store another physical offset than its own, and negative lengths may pass. Stricter: the body's
CRC and some properties count. Nothing is read twice, and no more than a piece of a body is held in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from rmqtool.base.files import InputFile
from rmqtool.formats import message
from rmqtool.formats.java import whole_number
from rmqtool.formats.layout import struct_of
from rmqtool.formats.message import topic_size_width
from rmqtool.formats.properties import DELAY, INNER_BASE, INNER_NUM, decode_properties
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.system_topics import SCHEDULE_TOPIC

_PIECE_SIZE = 1 << 20  # of a body whose CRC is computed, bytes
WRONG_BODY = "a record with a body CRC mismatch"
WRONG_LEVEL = "a record whose property DELAY is not a number"
_AFTER_MAGIC = struct_of(message.PREFIX_DTYPE, "body_crc", "physical_offset", "sys_flag")
_HEADER_ENDS = {
    bits: struct_of(header, "store_timestamp", "body_size") for bits, header in message.HEADER_DTYPES.items()
}
NOTHING_WRITTEN = "nothing is written after the last record"
_MAX_INT = (1 << 31) - 1
_SMALLEST_ARRAY = 8  # a host is copied into an array of the record's size


@dataclass(frozen=True)
class Parsed:
    """The broker's `DispatchRequest`: `size` in bytes and `ok`; 0 and True for a blank, -1 and False for no record."""

    size: int
    ok: bool
    why: str = ""
    physical_offset: int = 0
    sys_flag: int = 0
    store_timestamp: int = 0
    out_of_memory: bool = False

    @property
    def is_record(self) -> bool:
        """Whether the broker takes it for a record."""
        return self.ok and self.size > 0

    @property
    def is_blank(self) -> bool:
        """Whether the broker goes on in the next file."""
        return self.ok and self.size == 0


_BLANK = Parsed(0, True)


class _UnderflowError(Exception):
    """Java's BufferUnderflowException and its kin: what is read is not there."""


class _Cursor:
    """Java's ByteBuffer over the rest of a file."""

    def __init__(self, file: InputFile, position: int) -> None:
        self._file = file
        self.position = position

    @property
    def remaining(self) -> int:
        return self._file.size - self.position

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self.remaining:
            raise _UnderflowError
        data = self._file.read(self.position, size)
        if len(data) < size:
            raise _UnderflowError
        self.position += size
        return data

    def integer(self, width: int) -> int:
        return int.from_bytes(self.read(width), "big", signed=True)

    def crc_of(self, size: int) -> int:
        crc, end = 0, self.position + size
        while self.position < end:
            crc = zlib.crc32(self.read(min(_PIECE_SIZE, end - self.position)), crc)
        return crc & message.CRC_MASK


def parse_at(file: InputFile, position: int, rules: RecoveryRules, *, check_crc: bool = True) -> Parsed:
    """Parse the record at `position` of a commit log file as the broker does."""
    try:
        return _parse(_Cursor(file, position), rules, check_crc=check_crc)
    except _UnderflowError:
        return Parsed(-1, False, "the file ends inside a record")


def _parse(cursor: _Cursor, rules: RecoveryRules, *, check_crc: bool) -> Parsed:
    rest = cursor.remaining
    if rules.compares_size_first and rest <= 4:
        return Parsed(-1, False, "the file is full and has no blank")
    size = cursor.integer(4)
    if size < 0 and rules.knows_negative_sizes:
        return Parsed(-1, False, "a record of negative size")
    if rules.compares_size_first and rest - 4 < _java_int(size - 4):
        return Parsed(-1, False, "a record whose size points past the end of its file")
    magic_code = cursor.integer(4)
    if magic_code == message.MAGIC_CODE_BLANK:
        return _BLANK
    if size == 0 and magic_code == 0:
        return Parsed(-1, False, NOTHING_WRITTEN)
    if magic_code != message.MAGIC_CODE_V1 and not (magic_code == message.MAGIC_CODE_V2 and rules.knows_second_format):
        return Parsed(-1, False, "neither a message nor a blank begins there")
    if size < 0:
        return Parsed(-1, False, "a record of negative size")
    if size > rules.heap_limit and not rules.compares_size_first:
        return Parsed(-1, False, f"a record claims {size} bytes", out_of_memory=True)
    return _parse_record(cursor, rules, size, magic_code, check_crc=check_crc)


def _parse_record(cursor: _Cursor, rules: RecoveryRules, size: int, magic_code: int, *, check_crc: bool) -> Parsed:
    body_crc, physical_offset, sys_flag = _AFTER_MAGIC.unpack(cursor.read(_AFTER_MAGIC.size))
    host_bits = sys_flag & message.HOST_BITS if rules.knows_ipv6 else 0
    header = message.HEADER_DTYPES[host_bits]
    if size < _SMALLEST_ARRAY:
        return Parsed(-1, False, "a record that is too small")
    rest, end = cursor.read(header.itemsize - message.SIZE_AND_MAGIC.size - _AFTER_MAGIC.size), _HEADER_ENDS[host_bits]
    store_timestamp, body_size = end.unpack(rest[-end.size :])
    body_size = max(0, body_size)
    if body_size > size or body_size > cursor.remaining:
        return Parsed(-1, False, "a record whose body is longer than the record")
    if not check_crc:
        cursor.position += body_size
    elif body_size and cursor.crc_of(body_size) != body_crc:
        return Parsed(-1, False, WRONG_BODY)
    width = topic_size_width(magic_code)
    topic_size = cursor.integer(width)
    if topic_size > size:
        raise _UnderflowError
    topic = cursor.read(topic_size)
    properties_size = max(0, cursor.integer(message.PROPERTIES_SIZE_WIDTH))
    if properties_size > size:
        raise _UnderflowError
    properties = decode_properties(cursor.read(properties_size))
    if topic == SCHEDULE_TOPIC.encode() and whole_number(properties.get(DELAY, "0")) is None:
        return Parsed(-1, False, WRONG_LEVEL)
    if size != header.itemsize + body_size + width + topic_size + message.PROPERTIES_SIZE_WIDTH + properties_size:
        return Parsed(size, False, "a record with inconsistent lengths")
    if rules.parses_batches and not _is_batch_readable(properties):
        return Parsed(-1, False, "a record whose batch properties are not numbers")
    return Parsed(size, True, "", physical_offset, sys_flag, store_timestamp)


def _is_batch_readable(properties: Mapping[str, str]) -> bool:
    """`CommitLog#setBatchSizeIfNeeded`: when both properties are set, both must be numbers."""
    base, count = properties.get(INNER_BASE), properties.get(INNER_NUM)
    return base is None or count is None or None not in (whole_number(base, 64), whole_number(count, 16))


def _java_int(value: int) -> int:
    """`value` as Java's int arithmetic leaves it."""
    return (value + _MAX_INT + 1) % (1 << 32) - _MAX_INT - 1
