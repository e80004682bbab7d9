"""What the clients say of a message in the trace topic, as events of its story.

Only clients with message trace on say anything: what is not there proves nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rmqtool.formats.message_trace import CONSUME_RESULTS, TraceBody, TraceRecord, decode_trace
from rmqtool.query.by_place import Message
from rmqtool.query.relatives import Relative
from rmqtool.query.story import Event
from rmqtool.query.trace_topic import trace_messages
from rmqtool.store.index_query import FOREVER
from rmqtool.store.snapshot import Snapshot

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
