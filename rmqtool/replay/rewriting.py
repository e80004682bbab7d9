"""What is sent of a stored message: its topic, its properties, its flags (`docs/replay.md` has the table)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
)
from rmqtool.formats.sys_flag import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    INNER_BATCH,
    MULTI_TAGS,
    NEED_UNWRAP,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    transaction,
)
from rmqtool.replay.cluster import REPLAY_OF
from rmqtool.replay.outgoing import Identity, LeftOut, Origin, Outgoing, Reason
from rmqtool.replay.requests import BatchError, unpack
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
            queue = properties.get(REAL_QUEUE_ID, "")
            is_number = queue.isascii() and queue.isdigit() and len(queue) <= _MAX_QUEUE_ID_DIGITS
            queue_id = int(queue) if is_number else 0
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
            raise BodyError("the body does not have its CRC")
        return body, sys_flag
    if sys_flag & COMPRESSED and not has_crc:  # type 0 is zlib, which clients of all releases know
        return zlib.compress(body), sys_flag & ~COMPRESSION_TYPE_MASK
    return body, sys_flag
