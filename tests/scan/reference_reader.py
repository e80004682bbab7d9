"""The reference reader: the same rules as `rmqtool.scan.reader`, one record at a time, for people and for tests.

Nothing of the fast path is used here: a record is sound when construct decodes it and encoding its fields again gives
the same bytes. A whole file is held in memory, and a record takes a few tenths of a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Literal

from construct import Struct

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import FormatError, parse, size_of
from rmqtool.formats.message import (
    BLANK_SIZE,
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_BLANK,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MessageUnit,
    body_crc,
    build_message,
    compression,
    format_host,
    format_message_id,
    parse_message,
    topic_size_width,
    transaction,
)
from rmqtool.formats.message import Blank as BlankUnit
from rmqtool.formats.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties, split_keys
from rmqtool.scan.block import MAX_MESSAGE_SIZE, Blank, Damage, Reason
from rmqtool.scan.bodies import BodyError, decompress

Message = dict[str, Any]
"""A message: the names of `rmqtool.scan.columns.COLUMNS`, and plain Python values."""

Event = Message | Blank | Damage
Kind = Message | Reason | Literal["blank"]

_PAGE_SIZE = 4096
_MAGIC_CODES = {MAGIC_CODE_V1: "v1", MAGIC_CODE_V2: "v2"}
_MAGIC_BYTES = tuple(code.to_bytes(4, "big", signed=True) for code in (*_MAGIC_CODES, MAGIC_CODE_BLANK))
_NUMBERS = (
    *("queue_id", "queue_offset", "physical_offset", "message_size", "born_timestamp", "store_timestamp", "flag"),
    *("sys_flag", "reconsume_times", "body_crc", "prepared_transaction_offset", "body_size"),
)

Head = Struct(*takewhile(lambda field: field.name != "born_timestamp", MessageUnit.subcons))
"""The fields that tell what stands somewhere and how long it is at least."""


def read_log(files: Sequence[MappedFile]) -> Iterator[Event]:
    """Messages, blanks and damage of a whole commit log, in order. Raises UnreadableError."""
    end = None
    for number, mapped in enumerate(files):
        if end is not None and end < mapped.start_offset:
            yield Damage(end, mapped.start_offset - end, "missing")
        end = mapped.end_offset
        nothing_follows = not any(_bytes_of(later).strip(b"\0") for later in files[number + 1 :])
        yield from read_file(_bytes_of(mapped), mapped.start_offset, nothing_follows)


def read_file(data: bytes, start_offset: int, nothing_follows: bool) -> Iterator[Event]:
    """Messages, blank and damage of one file that begins at `start_offset`; later files may be only zeros."""
    position, end = 0, len(data)
    if nothing_follows:
        end = len(data.rstrip(b"\0"))
    while position < end:
        event = _event_at(data, start_offset, position, nothing_follows)
        yield event
        position += event["message_size"] if isinstance(event, dict) else event.size


def _event_at(data: bytes, start_offset: int, position: int, nothing_follows: bool) -> Event:
    kind = _kind_at(data, start_offset, position)
    if isinstance(kind, dict):
        return kind
    end = len(data)
    if kind == "blank" and _leads_to_end(data, position):
        return Blank(start_offset + position, end - position)
    after = next((later for later in range(position + 1, end) if _is_sound(data, start_offset, later)), end)
    if kind == "blank":
        if after == end:
            return Blank(start_offset + position, end - position)
        return Damage(start_offset + position, after - position, "lengths")
    if after == end and nothing_follows:
        return _tail(data, start_offset, position, kind)
    return Damage(start_offset + position, after - position, kind)


def _tail(data: bytes, start_offset: int, position: int, kind: Reason) -> Damage:
    """The end of the log: a record that was not written to its end, or old bytes up to the end of the page."""
    size = len(data.rstrip(b"\0")) - position
    if kind in ("lengths", "truncated") or (kind == "physical-offset" and not _is_moved(data, position)):
        kind = "torn"
    elif kind != "physical-offset" and position % _PAGE_SIZE and position % _PAGE_SIZE + size <= _PAGE_SIZE:
        kind = "leftover"
    return Damage(start_offset + position, size, kind, tail=True)


def _is_moved(data: bytes, position: int) -> bool:
    """Whether there is a sound record that tells another position as its own."""
    told = parse(Head, data[position : position + size_of(Head)]).physical_offset
    return isinstance(_kind_at(data, told - position, position), dict)


def _is_sound(data: bytes, start_offset: int, position: int) -> bool:
    """Whether a scan can go on here: a sound record, or a blank that leads exactly to the file's end."""
    if data[position + 4 : position + 8] not in _MAGIC_BYTES:
        return False
    kind = _kind_at(data, start_offset, position)
    return _leads_to_end(data, position) if kind == "blank" else isinstance(kind, dict)


def _leads_to_end(data: bytes, position: int) -> bool:
    """Whether the size of the blank at `position` is that of the rest of the file."""
    return bool(parse(BlankUnit, data[position : position + BLANK_SIZE]).size == len(data) - position)


def _kind_at(data: bytes, start_offset: int, position: int) -> Kind:
    """The message at `position`, or "blank", or why there is neither."""
    rest = len(data) - position
    head = data[position : position + size_of(Head)]
    if not head[:BLANK_SIZE].strip(b"\0"):
        return "zeroed"
    if rest >= BLANK_SIZE:
        magic_code = parse(BlankUnit, head).magic_code
        if magic_code == MAGIC_CODE_BLANK:
            return "blank"
        if magic_code not in _MAGIC_CODES:
            return "magic-code"
    if rest < size_of(Head):
        return "truncated"
    fields = parse(Head, head)
    if fields.physical_offset != start_offset + position:
        return "physical-offset"
    if not _smallest_size(fields) <= fields.message_size <= MAX_MESSAGE_SIZE:
        return "lengths"
    if fields.message_size > rest:
        return "truncated"
    record = data[position : position + fields.message_size]
    return decode_message(record) if _is_whole(record) else "lengths"


def _smallest_size(head: Any) -> int:
    """Size of a record with this head and nothing in it, bytes."""
    return HEADER_DTYPES[head.sys_flag & HOST_BITS].itemsize + topic_size_width(head.magic_code) + 2


def _is_whole(record: bytes) -> bool:
    """Whether the lengths add up: then the fields, encoded again with sizes that are counted, give the same bytes."""
    try:
        return build_message(**parse_message(record)) == record
    except FormatError:
        return False


def decode_message(record: bytes) -> Message:
    """The columns of a sound record."""
    fields = parse_message(record)
    properties = decode_properties(fields.properties)
    return {
        **{name: fields[name] for name in _NUMBERS},
        "topic": decode_text(fields.topic),
        "message_id": format_message_id(fields.store_host, fields.physical_offset),
        "unique_key": properties.get(UNIQUE_KEY),
        "keys": split_keys(properties.get(KEYS)),
        "tags": properties.get(TAGS),
        "properties": properties,
        "born_host": format_host(fields.born_host),
        "store_host": format_host(fields.store_host),
        "transaction": transaction(fields.sys_flag),
        "compression": compression(fields.sys_flag),
        "body": _plain_body(fields.body, fields.sys_flag),
        "stored_body": fields.body,
        "stored_topic": fields.topic,
        "stored_properties": fields.properties,
        "magic_code": _MAGIC_CODES[fields.magic_code],
        "body_crc_ok": not fields.body or fields.body_crc == body_crc(fields.body),
    }


def _plain_body(body: bytes, sys_flag: int) -> bytes:
    try:
        return decompress(body, sys_flag)
    except BodyError:
        return body


def _bytes_of(mapped: MappedFile) -> bytes:
    with InputFile(mapped.path) as file:
        return file.read(0, file.size)
