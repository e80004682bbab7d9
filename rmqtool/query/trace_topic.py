"""The messages of the trace topic about one message: clients with message trace on write them (`AsyncTraceDispatcher`).

Each has the ids and keys of the messages that it tells of as its own keys, so that the index leads to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from rmqtool.base.errors import RmqtoolError
from rmqtool.query.by_key import KeyQuery, by_key
from rmqtool.query.by_place import Message, message_at
from rmqtool.query.notes import Notes
from rmqtool.rules.system_topics import TRACE_PREFIX, TRACE_TOPIC
from rmqtool.scan.record_at import record_at
from rmqtool.store.rocksdb_index import RocksDbIndex
from rmqtool.store.snapshot import Snapshot

_MOST_UNITS = 1000  # of the index; a client tells of a consumption in one message or two
_MOST_READ = 10_000  # messages of a queue of the trace topic that no index covers
_BATCH_SEPARATOR = ","  # the ids of a batch are one key


def trace_messages(snapshot: Snapshot, message_id: str, first: int) -> list[Message]:
    """The trace messages about the message with an id, with their bodies, in the order of the log.

    `message_id` is the unique key, or the offset message id of a message without one. `first` is the physical offset of
    its first record. The index is asked; what it does not cover is read.
    """
    topics = _trace_topics(snapshot)
    if not topics:
        return []
    query = KeyQuery(message_id, topics, limit=_MOST_UNITS)
    found = {message["physical_offset"]: message for message in by_key(snapshot, query, "decompressed", Notes())}
    for offset in _unindexed(snapshot, topics, first):
        if offset in found or not _holds(snapshot, offset, message_id):
            continue
        message = message_at(snapshot, offset, "decompressed")
        if message is not None and _is_about(message, message_id):
            found[offset] = message
    return [found[offset] for offset in sorted(found) if found[offset]["unique_key"] != message_id]


def _holds(snapshot: Snapshot, offset: int, message_id: str) -> bool:
    """Whether an id is anywhere in a record, as its properties are stored: much faster than to decode them."""
    frame = record_at(snapshot.log.files, offset)
    return frame is not None and message_id.encode() in bytes(frame.block.view)


def _is_about(message: Message, message_id: str) -> bool:
    return any(message_id in key.split(_BATCH_SEPARATOR) for key in message["keys"])


def _trace_topics(snapshot: Snapshot) -> tuple[str, ...]:
    """The trace topics of the store: the one by default, the one of broker.conf, those of a cloud's regions."""
    own = {TRACE_TOPIC, snapshot.store.conf.text("msgTraceTopicName")}
    return tuple(topic for topic in snapshot.topic_names if topic in own or topic.startswith(TRACE_PREFIX))


def _unindexed(snapshot: Snapshot, topics: tuple[str, ...], first: int) -> Iterator[int]:
    """Physical offsets of trace messages after `first` that the index does not cover."""
    start = _indexed_to(snapshot, first)
    for topic in topics:
        with suppress(RmqtoolError):  # queues that cannot be read tell nothing
            for queue_id in snapshot.queue_ids(topic):
                queue = snapshot.queue(topic, queue_id)
                for unit in islice(queue.units_behind(start) if queue else (), _MOST_READ):
                    yield unit.physical_offset


def _indexed_to(snapshot: Snapshot, first: int) -> int:
    """Physical offset up to which the index knows all that was stored since `first`; `first` where it does not."""
    files = [file for file in snapshot.index.files if file.keys]
    ends = [file.end_physical_offset for file in files]
    is_whole = not snapshot.index.problems and bool(files) and files[0].begin_physical_offset <= first
    in_rocksdb = RocksDbIndex(snapshot.store).last_offset()
    known: list[int] = [first, *(ends if is_whole else ()), *([] if in_rocksdb is None else [in_rocksdb])]
    return max(known)
