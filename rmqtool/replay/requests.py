"""What is sent of a stored message: topic, properties and flags, and the request that carries them.

``docs/replay.md`` has the table; the request is `SendMessageRequestHeaderV2`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rmqtool.formats.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    INNER_BATCH,
    MAX_PROPERTIES_SIZE,
    MIN_MESSAGE_SIZE,
    MULTI_TAGS,
    NEED_UNWRAP,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    compression,
    transaction,
)
from rmqtool.formats.properties import (
    DELAY,
    HALF_OFFSET,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)
from rmqtool.replay.cluster import REPLAY_OF, BrokerFacts
from rmqtool.replay.connection import MAX_FRAME_SIZE, SEND_BATCH_MESSAGE, SEND_MESSAGE_V2, Request, whole_number
from rmqtool.replay.journal import Identity, LeftOut, Origin, Outgoing, Reason
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_PREFIX,
    is_system_topic,
)
from rmqtool.scan.bodies import BodyError, decompress
from rmqtool.scan.filters import ANY, TopicChoice, is_pattern

_UNIT = struct.Struct(">I8xiI")  # of a batch: its size, 8 unused bytes, flag, size of the body; then as in a record
UNIT_OVERHEAD = _UNIT.size + 2
"""Bytes of a unit beside its body and properties."""


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
    units = bytearray()
    for part in parts:
        properties = encode_properties(part.properties)
        units += _UNIT.pack(UNIT_OVERHEAD + len(part.body) + len(properties), part.flag, len(part.body))
        units += part.body + len(properties).to_bytes(2, "big") + properties
    return bytes(units)


def unpack(body: bytes) -> list[Part]:
    """The messages of a batch; raises BatchError."""
    parts, position = [], 0
    while position < len(body):
        begin = position + _UNIT.size
        size, flag, body_size = _UNIT.unpack_from(body, position) if begin <= len(body) else (0, 0, 0)
        stop = begin + body_size
        end = stop + 2 + int.from_bytes(body[stop : stop + 2], "big")
        if not end <= position + size <= len(body):
            raise BatchError(f"a message of {size} bytes at {position} of {len(body)}")
        parts.append(Part(flag, body[begin:stop], decode_properties(body[stop + 2 : end])))
        position += size
    return parts


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


RETRY_TOPIC, DLQ_ORIGIN_TOPIC = "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"
DELAYED_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)

_DROPPED = frozenset(
    (
        *(DELAY, "TRAN_MSG", PRODUCER_GROUP, REAL_TOPIC, REAL_QUEUE_ID, RETRY_TOPIC, "ORIGIN_MESSAGE_ID"),
        *("MIN_OFFSET", "MAX_OFFSET", "RECONSUME_TIME", "CONSUME_START_TIME", "1ST_POP_TIME"),
        *(HALF_OFFSET, "TRANS_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__"),
        *(INNER_NUM, INNER_BASE, INNER_MULTI_QUEUE_OFFSET, "CLUSTER", "MSG_REGION", "TRACE_ON", "__CRC32#"),
        *("EXTEND_UNIQ_INFO", REPLAY_OF),
    )
)
_DROPPED_PREFIXES = ("TIMER_", "DLQ_", "POP_CK")
_DISPATCHED = frozenset((INNER_MULTI_DISPATCH, "__LITE_TOPIC"))
_KEPT_FLAGS = COMPRESSED | COMPRESSION_TYPE_MASK | MULTI_TAGS
_NEVER = (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC)
_MAX_QUEUE_ID_DIGITS = 9


@dataclass(frozen=True)
class Rewriting:
    """How messages are rewritten.

    `named` are the topics that the user has named; `topics` are new names by the old ones, and `only_topic` is one for
    all. With `to_group` retries and dead letters go to the retry topic of their group. `due` gives by physical offset
    when a delayed message that still waits is due, epoch ms; all others of the delay topics are left out.
    `choice` filters the topics that messages go to, before they are renamed.
    """

    named: TopicChoice = field(default_factory=TopicChoice)
    topics: Mapping[str, str] = field(default_factory=dict)
    only_topic: str | None = None
    to_group: bool = False
    due: Mapping[int, int] = field(default_factory=dict)
    keeps_due: bool = True
    include_replays: bool = False
    keep_dispatch: bool = False
    blank_for_empty: bool = False
    choice: TopicChoice = field(default_factory=TopicChoice)
    queue_ids: frozenset[int] = frozenset()

    def messages(self, row: Mapping[str, Any]) -> Iterator[Outgoing | LeftOut]:
        """What becomes of a row of `sources.COLUMNS`: nothing where a filter leaves it out, several of a batch."""
        origin = Origin(
            Identity(row["physical_offset"]),
            *(row[name] for name in ("topic", "queue_id", "queue_offset", "message_id", "store_timestamp")),
        )
        properties = dict(row["properties"] or ())
        target = self._target(origin, properties, row["sys_flag"])
        if not isinstance(target, _Target):
            yield LeftOut(origin, target)
            return
        if target.origin not in self.choice or (self.queue_ids and target.queue_id not in self.queue_ids):
            return
        if REPLAY_OF in properties and not self.include_replays:
            yield LeftOut(origin, "replay")
            return
        try:
            body, sys_flag = _body(row)
        except BodyError:
            yield LeftOut(origin, "damaged-body")
            return
        whole = Outgoing(
            origin,
            target.origin,
            target.topic,
            target.queue_id,
            {},
            body,
            row["flag"],
            sys_flag & _KEPT_FLAGS,
            row["born_timestamp"],
            0 if target.is_copy else row["reconsume_times"],
            target.due,
            target.is_copy,
        )
        place = f"{row['store_host']} {origin.identity.physical_offset} {origin.store_timestamp}"
        if row["sys_flag"] & INNER_BATCH and row["sys_flag"] & NEED_UNWRAP:
            yield from self._parts(whole, place)
        else:
            yield self._complete(whole, properties, place, target.keeps_retry)

    def _parts(self, whole: Outgoing, place: str) -> Iterator[Outgoing | LeftOut]:
        """The messages of an inner batch (`MessageDecoder#decodeMessages`)."""
        origin = whole.origin
        try:
            parts = unpack(decompress(whole.body, whole.sys_flag))
        except (BodyError, BatchError):
            yield LeftOut(origin, "damaged-batch")
            return
        for number, part in enumerate(parts):
            of_part = replace(
                origin, identity=Identity(origin.identity.physical_offset, number),
                queue_offset=origin.queue_offset + number,
            )  # fmt: skip
            one = replace(whole, origin=of_part, body=part.body, flag=part.flag, sys_flag=whole.sys_flag & MULTI_TAGS)
            yield self._complete(one, part.properties, f"{place} {number}", None)

    def _complete(
        self, message: Outgoing, properties: Mapping[str, str], place: str, retry_topic: str | None
    ) -> Outgoing | LeftOut:
        kept = {name: value for name, value in properties.items() if not self._drops(name)}
        if UNIQUE_KEY not in kept:  # a message of an old client: consumers see this as its id, as they did before
            part = message.origin.identity.part
            kept[UNIQUE_KEY] = f"{message.origin.message_id}{f'-{part}' if part else ''}"
        if retry_topic is not None:
            kept[RETRY_TOPIC] = retry_topic
        kept[REPLAY_OF] = place
        body = message.body
        if not body:
            if not self.blank_for_empty:
                return LeftOut(message.origin, "empty-body")
            body = b" "
        return replace(message, properties=kept, body=body)

    def _drops(self, name: str) -> bool:
        if name in _DISPATCHED:
            return not self.keep_dispatch
        return name in _DROPPED or name.startswith(_DROPPED_PREFIXES)

    def _target(self, origin: Origin, properties: Mapping[str, str], sys_flag: int) -> _Target | Reason:
        """Where a message goes, or why it goes nowhere."""
        topic, queue_id = origin.topic, origin.queue_id
        if topic in _NEVER:
            return "half"
        if transaction(sys_flag) in _NOT_COMMITTED:
            return "rolled-back"
        due, real = None, topic
        if topic in DELAYED_TOPICS:
            if origin.identity.physical_offset not in self.due:
                return "delayed"
            due = self.due[origin.identity.physical_offset] if self.keeps_due else None
            real = properties.get(REAL_TOPIC, "")
            queue_id = whole_number(properties.get(REAL_QUEUE_ID), _MAX_QUEUE_ID_DIGITS) or 0
            if not real:
                return "no-origin"
        elif not self._is_named(topic):
            if topic.startswith(RETRY_PREFIX):
                return "retry-topic"
            if topic.startswith(DEAD_LETTER_PREFIX):
                return "dead-letter"
            if is_system_topic(topic) or topic.startswith(TRACE_PREFIX):
                return "system-topic"
        return self._of_copy(real, queue_id, properties, due)

    def _of_copy(self, topic: str, queue_id: int, properties: Mapping[str, str], due: int | None) -> _Target | Reason:
        """The target of a message, or of its copy in a retry or dead-letter topic."""
        group = next((topic[len(p) :] for p in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if topic.startswith(p)), None)
        if group is None:
            return _Target(topic, self._renamed(topic), queue_id, due)
        before = properties.get(RETRY_TOPIC)
        if topic.startswith(DEAD_LETTER_PREFIX):
            before = properties.get(DLQ_ORIGIN_TOPIC) or before
        if not before or before.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return "no-origin"
        if self.to_group:
            return _Target(before, f"{RETRY_PREFIX}{group}", 0, due, is_copy=True, keeps_retry=before)
        return _Target(before, self._renamed(before), queue_id, due, is_copy=True)

    def _is_named(self, topic: str) -> bool:
        """Whether the user has named a topic, and not only all topics."""
        patterns = tuple(word for word in self.named.wanted if not (is_pattern(word) and word.startswith(ANY)))
        return bool(patterns) and topic in TopicChoice(patterns, self.named.excluded)

    def _renamed(self, topic: str) -> str:
        return self.only_topic or self.topics.get(topic, topic)


@dataclass(frozen=True, slots=True)
class _Target:
    """`origin` is the topic that consumers know, `topic` the one on the target."""

    origin: str
    topic: str
    queue_id: int
    due: int | None
    is_copy: bool = False
    keeps_retry: str | None = None


_NOT_COMMITTED = tuple(transaction(flag) for flag in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK))


def _body(row: Mapping[str, Any]) -> tuple[bytes, int]:
    """The body and the sys flag that fits it; raises BodyError for stored bytes without their CRC.

    Of an export the body may be decompressed, or edited: what does not have the record's CRC is compressed again.
    """
    body, sys_flag = row["body"] or b"", row["sys_flag"]
    has_crc = row["body_crc"] is not None and zlib.crc32(body) & 0x7FFFFFFF == row["body_crc"]
    if row["is_stored"]:
        if body and not has_crc:
            raise BodyError("the body has a CRC mismatch")
        return body, sys_flag
    if sys_flag & COMPRESSED and not has_crc:  # type 0 is zlib, which clients of all releases know
        return zlib.compress(body), sys_flag & ~COMPRESSION_TYPE_MASK
    return body, sys_flag
