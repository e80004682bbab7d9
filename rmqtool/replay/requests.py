"""The requests that send messages (`SendMessageRequestHeaderV2`), and what a broker takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from construct import Bytes, Int16ub, Int32sb, Int32ub, Struct, this

from rmqtool.formats.layout import FormatError, build, parse
from rmqtool.formats.message import MAX_PROPERTIES_SIZE, MIN_MESSAGE_SIZE
from rmqtool.formats.properties import DELAY, decode_properties, encode_properties
from rmqtool.formats.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK, compression
from rmqtool.replay.cluster import BrokerFacts
from rmqtool.replay.codes import SEND_BATCH_MESSAGE, SEND_MESSAGE_V2
from rmqtool.replay.connection import MAX_FRAME_SIZE, Request
from rmqtool.replay.outgoing import Outgoing, Reason
from rmqtool.rules.system_topics import RETRY_PREFIX
from rmqtool.scan.bodies import BodyError, decompress

BatchUnit = Struct(
    "size" / Int32ub * "size of the unit, this field included, bytes",
    "magic_code" / Int32sb * "not used: 0",
    "body_crc" / Int32sb * "not used: 0",
    "flag" / Int32sb * "flag of the application",
    "body_size" / Int32ub * "size of the body, bytes",
    "body" / Bytes(this.body_size) * "the body",
    "properties_size" / Int16ub * "size of the properties, bytes",
    "properties" / Bytes(this.properties_size) * "properties as a record has them",
)

UNIT_OVERHEAD = 22
"""Bytes of a unit beside its body and properties."""

_SIZE_WIDTH = 4


class BatchError(ValueError):
    """A body that is no batch."""


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a batch."""

    flag: int
    body: bytes
    properties: Mapping[str, str]


def pack(parts: Iterable[Part]) -> bytes:
    """The body of a batch."""
    return b"".join(map(_unit, parts))


def unpack(body: bytes) -> list[Part]:
    """The messages of a batch; raises BatchError."""
    return list(_units(body))


def _unit(part: Part) -> bytes:
    properties = encode_properties(part.properties)
    fields = {
        "size": UNIT_OVERHEAD + len(part.body) + len(properties),
        "magic_code": 0,
        "body_crc": 0,
        "flag": part.flag,
        "body_size": len(part.body),
        "body": part.body,
        "properties_size": len(properties),
        "properties": properties,
    }
    return build(BatchUnit, fields)


def _units(body: bytes) -> Iterator[Part]:
    position = 0
    while position < len(body):
        size = int.from_bytes(body[position : position + _SIZE_WIDTH], "big")
        if not UNIT_OVERHEAD <= size <= len(body) - position:
            raise BatchError(f"a message of {size} bytes at {position} of {len(body)}")
        try:
            unit = parse(BatchUnit, body[position : position + size])
        except FormatError as error:
            raise BatchError(str(error)) from error
        yield Part(unit.flag, bytes(unit.body), decode_properties(bytes(unit.properties)))
        position += size


GROUP = "rmqtool-replay"
"""The producer group that brokers see."""

TIMER_DELIVER = "TIMER_DELIVER_MS"  # MessageConst.PROPERTY_TIMER_DELIVER_MS, since 5.0.0
MAX_BATCH_BYTES = 1 << 20
"""Bodies and properties of one batch, bytes, where the broker takes as much."""

_ADDED_SIZE = 128  # room for properties that the broker adds: CLUSTER, TRACE_ON, ...
_HEADER_ROOM = 64 << 10  # of a frame
_ANY_QUEUES = "4"  # defaultTopicQueueNums: no topic is made


def fit(message: Outgoing, facts: BrokerFacts, now: int) -> Outgoing | Reason:
    """The message as this broker takes it at `now`, epoch ms, or why it does not."""
    if facts.is_4 and compression(message.sys_flag) not in ("none", "zlib"):
        try:
            plain = decompress(message.body, message.sys_flag)
        except BodyError:
            return "damaged-body"
        message = replace(message, body=plain, sys_flag=message.sys_flag & ~(COMPRESSED | COMPRESSION_TYPE_MASK))
    if message.due_timestamp is not None:
        waiting = _with_delay(message, facts, now)
        if waiting is None:
            return "too-late"
        message = waiting
    properties = len(encode_properties(message.properties))
    if properties + _ADDED_SIZE > MAX_PROPERTIES_SIZE:
        return "properties-too-large"
    whole = MIN_MESSAGE_SIZE + len(message.topic.encode()) + len(message.body) + properties + _ADDED_SIZE
    size = whole if facts.is_4 or facts.release is None else len(message.body)
    if size > facts.max_message_size or whole + _HEADER_ROOM > MAX_FRAME_SIZE:
        return "too-large"
    return message


def _with_delay(message: Outgoing, facts: BrokerFacts, now: int) -> Outgoing | None:
    """A message that is delivered when it is due; None when the broker cannot wait so long."""
    remaining = (message.due_timestamp or 0) - now
    if remaining <= 0:
        return replace(message, due_timestamp=None)
    if facts.timer_max_ms is not None:
        if remaining > facts.timer_max_ms:
            return None
        added = {TIMER_DELIVER: str(message.due_timestamp)}
    else:
        levels = [number for number, delay in enumerate(facts.delay_levels.delays, 1) if delay >= remaining]
        if not levels:
            return None
        added = {DELAY: str(min(levels, key=lambda level: facts.delay_levels.delays[level - 1]))}
    return replace(message, properties={**message.properties, **added})


def can_share(message: Outgoing, other: Outgoing, *, loose_born_time: bool) -> bool:
    """Whether a batch may hold both: what its header says once must be so for all (`SendMessageProcessor`)."""
    if message.due_timestamp is not None or message.topic.startswith(RETRY_PREFIX):
        return False
    same = message.sys_flag == other.sys_flag and message.reconsume_times == other.reconsume_times
    born = loose_born_time or message.born_timestamp == other.born_timestamp
    return same and born and other.due_timestamp is None


def batch_size(message: Outgoing) -> int:
    """Bytes that a message takes in a batch."""
    return UNIT_OVERHEAD + len(message.body) + len(encode_properties(message.properties))


def send_request(messages: Sequence[Outgoing], broker: str, queue_id: int) -> Request:
    """The request that sends one message, or several of one topic and queue as a batch."""
    first, is_batch = messages[0], len(messages) > 1
    properties = "" if is_batch else encode_properties(first.properties).decode()
    fields = {
        "a": GROUP,
        "b": first.topic,
        "c": first.topic,  # the topic to copy settings from: none, so that a broker makes no topic
        "d": _ANY_QUEUES,
        "e": str(queue_id),
        "f": str(first.sys_flag),
        "g": str(first.born_timestamp),
        "h": "0" if is_batch else str(first.flag),
        "i": properties,
        "j": str(first.reconsume_times),
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": broker,
    }
    if not is_batch:
        return Request(SEND_MESSAGE_V2, fields, first.body)
    parts = (Part(message.flag, message.body, message.properties) for message in messages)
    return Request(SEND_BATCH_MESSAGE, fields, pack(parts))
