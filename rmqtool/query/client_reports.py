"""What the clients say of a message in the trace topic, as events of its story.

Only clients with message trace on say anything: what is not there proves nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from rmqtool.base.errors import RmqtoolError
from rmqtool.formats.message_trace import CONSUME_RESULTS, TraceBody, TraceRecord, decode_trace
from rmqtool.query.by_key import KeyQuery, by_key
from rmqtool.query.by_place import Message, Notes, message_at
from rmqtool.query.story import Event
from rmqtool.query.transactions import Relative
from rmqtool.rules.system_topics import TRACE_PREFIX, TRACE_TOPIC
from rmqtool.scan.single_record import record_at
from rmqtool.store.index_files import FOREVER
from rmqtool.store.side_rows import RocksDbIndex
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


_SUCCESS, _FAILED = CONSUME_RESULTS[0], CONSUME_RESULTS[-1]


@dataclass(frozen=True)
class _Told:
    """A record of a trace message, and the message."""

    record: TraceRecord
    by: Message


def client_reports(snapshot: Snapshot, message: Message, relatives: Sequence[Relative]) -> list[Event]:
    """All that clients say of a message, and where they may have said more that cannot be read."""
    records = [message, *(other.record for other in relatives)]
    first = min(records, key=lambda record: record["physical_offset"])
    message_id = message["unique_key"] or message["message_id"]
    told: dict[TraceRecord, _Told] = {}
    events = []
    for trace in trace_messages(snapshot, message_id, first["physical_offset"]):
        body = _body(trace)
        for record in body.records:
            if message_id in record.message_ids:
                told.setdefault(record, _Told(record, trace))  # a client may have sent its traces twice
        if body.unreadable:
            events.append(_unreadable(trace, body.unreadable))
    places = {record["message_id"]: record["physical_offset"] for record in records}
    begins = {each.record.request_id: each.record for each in told.values() if each.record.type == "SubBefore"}
    for each in told.values():
        begin = begins.get(each.record.request_id) if each.record.type == "SubAfter" else None
        events.append(_event(each, begin, first, places))
    return events


def _body(trace: Message) -> TraceBody:
    if "body_error" in trace or not trace["body_crc_ok"]:
        return TraceBody((), 1)
    return decode_trace(base64.b64decode(trace["body_base64"]) if trace["body"] is None else trace["body"].encode())


def _unreadable(trace: Message, count: int) -> Event:
    time = trace["store_timestamp"]
    return Event("trace-unreadable", time, time, trace, f"{_proof(trace)}: {count} that may be about other messages")


def _proof(trace: Message) -> str:
    return f"trace topic, message at {trace['physical_offset']}"


def _event(told: _Told, begin: TraceRecord | None, first: Message, places: Mapping[str, int]) -> Event:
    """The event of one record; `begin` is the begin of the consumption that it ends."""
    record, proof = told.record, f"{_proof(told.by)}: the client's word and clock"
    time = record.timestamp
    host = record.client_host or told.by["born_host"]
    event = Event("trace-send", time, time, told.by, proof, record.group, client_host=host, cost=record.cost)
    match record.type:
        case "Pub":
            named = places.get(record.offset_message_id or "")
            if named is not None:
                event = replace(event, proof=f"{proof}, with the id of the record at {named}")
            return replace(event, result=_result(record))
        case "SubBefore":
            return replace(event, event="trace-consume-begin", times=record.retry_times)
        case "SubAfter":
            return _end(replace(event, event="trace-consume-end", result=_result(record)), begin, first)
        case "EndTransaction":
            return replace(event, event="trace-transaction-end", result=record.state, from_check=record.from_check)
        case "Recall":
            return replace(event, event="trace-recall", result=_result(record))


def _result(record: TraceRecord) -> str:
    """`ConsumeReturnType`, where a client says more than that it failed."""
    code = record.context_code or 0
    if 0 < code < len(CONSUME_RESULTS):
        return CONSUME_RESULTS[code]
    return _SUCCESS if record.success else _FAILED


def _end(event: Event, begin: TraceRecord | None, first: Message) -> Event:
    """The end of a consumption, with what only its begin tells: group, retry, and in old forms the time."""
    if begin is not None:
        event = replace(event, group=event.group or begin.group, times=begin.retry_times)
    if event.timestamp is not None:
        return event
    since, proof = first["store_timestamp"], f"{event.proof}; without a time"
    if begin is not None and begin.timestamp is not None:
        since = min(begin.timestamp + (event.cost or 0), FOREVER)
        proof = f"{event.proof}; time by begin and duration"
    until = event.record["born_timestamp"]  # the client wrote its traces down afterwards
    return replace(event, timestamp=since, until_timestamp=until if until >= since else None, proof=proof)
