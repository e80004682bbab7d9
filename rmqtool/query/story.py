"""The story of a message: its records and its deliveries on one time line, each with what proves it.

Clients with message trace on say in the trace topic what they did: what is not there proves nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Literal

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.times import with_times
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message import parse_message_id
from rmqtool.formats.message_trace import CONSUME_RESULTS, TraceBody, TraceRecord, decode_trace
from rmqtool.query.by_place import Message, Notes, message_at
from rmqtool.query.groups import passed_by
from rmqtool.query.lookup import KeyQuery, by_key
from rmqtool.query.transactions import Relative, TransactionPart
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    DELAYED_TOPICS,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRACE_PREFIX,
    TRACE_TOPIC,
)
from rmqtool.scan.single_record import record_at
from rmqtool.store.config_tables import DELAYS, load_delay_offsets, main_table
from rmqtool.store.index_files import FOREVER
from rmqtool.store.side_rows import RocksDbIndex
from rmqtool.store.snapshot import Snapshot

_MILLISECONDS = re.compile(r"\d{1,19}", re.ASCII)


@dataclass(frozen=True)
class Delay:
    """A delayed message: when it is due, its real topic, and whether it was delivered (None: not known)."""

    by: str
    level: int | None
    due_timestamp: int | None
    real_topic: str | None
    real_queue_id: str | None
    delivered: bool | None
    delivered_physical_offset: int | None

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return with_times(asdict(self))


def delay_of(snapshot: Snapshot, message: Message, tags_code: int | None, relatives: list[Relative]) -> Delay | None:
    """The delay of a record in a delay level's queue or in the timer's; `tags_code` is that of its unit."""
    topic, properties = message["topic"], message["properties"]
    if topic not in DELAYED_TOPICS:
        return None
    real_topic, offset = properties.get("REAL_TOPIC"), message["physical_offset"]
    later = (other.record for other in relatives if other.record["physical_offset"] > offset)
    copy = next((other["physical_offset"] for other in later if other["topic"] == real_topic), None)
    level, due, passed = None, None, None
    if topic == SCHEDULE_TOPIC:
        level = message["queue_id"] + 1
        due = tags_code if "DELAY" in properties else None
        passed = _passed(snapshot, level, message["queue_offset"])
    elif _MILLISECONDS.fullmatch(properties.get("TIMER_OUT_MS", "")):
        due = int(properties["TIMER_OUT_MS"])
    return Delay("level" if level else "timer", level, due, real_topic, properties.get("REAL_QID"),
                 True if copy is not None else passed, copy)  # fmt: skip


def _passed(snapshot: Snapshot, level: int, queue_offset: int) -> bool | None:
    """Whether the broker has delivered a level's queue beyond an offset, by `delayOffset.json`; None without it."""
    offsets = load_delay_offsets(snapshot.store)
    if main_table(DELAYS, offsets.file.content) is None:
        return None
    return offsets.by_level.get(level, 0) > queue_offset  # a level that was never delivered is not in the table


@dataclass(frozen=True)
class Retry:
    """A retry or a dead letter of a group, and the original message."""

    kind: str
    group: str
    reconsume_times: int
    origin_topic: str | None
    origin_message_id: str | None
    origin_physical_offset: int | None
    origin_state: str

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return asdict(self)


def retry_of(snapshot: Snapshot, message: Message) -> Retry | None:
    """The retry that a record is, in a retry or dead letter topic or delayed on its way there; None for others."""
    properties = message["properties"]
    topic = message["topic"]
    if topic in DELAYED_TOPICS:
        topic = properties.get("REAL_TOPIC", "")
    kind = next((prefix for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if topic.startswith(prefix)), None)
    if kind is None:
        return None
    message_id = properties.get("ORIGIN_MESSAGE_ID") or properties.get("DLQ_ORIGIN_MESSAGE_ID")
    offset, state = _origin(snapshot, message_id)
    return Retry("retry" if kind == RETRY_PREFIX else "dead-letter", topic.removeprefix(kind),
                 message["reconsume_times"], properties.get("RETRY_TOPIC") or properties.get("DLQ_ORIGIN_TOPIC"),
                 message_id, offset, state)  # fmt: skip


def _origin(snapshot: Snapshot, message_id: str | None) -> tuple[int | None, str]:
    """Physical offset of the original message, and its state: found, deleted, other-store or unknown."""
    try:
        _, offset = parse_message_id(message_id or "")
    except FormatError:
        return None, "unknown"
    origin = message_at(snapshot, offset)
    if origin is None:
        return None, "deleted" if offset < snapshot.log_min_offset else "unknown"
    return (offset, "found") if origin["message_id"] == message_id else (None, "other-store")


EventName = Literal[
    "sent", "stored", "half", "committed", "rolled-back", "delayed", "sent-back", "retry", "dead-letter", "read",
    "passed", "not-passed", "trace-send", "trace-consume-begin", "trace-consume-end", "trace-transaction-end",
    "trace-recall", "trace-unreadable",
]  # fmt: skip

_FAILURES = ("sent-back", "retry", "dead-letter")


@dataclass(frozen=True)
class Event:
    """What happened between `timestamp` and `until_timestamp`, epoch ms; they are the same where the time is known.

    None is an unknown time: of an end, that it has not happened. `due_timestamp` is when a delay ends.
    What a client says has `client_host`, `cost` in ms and a `result`; `from_check` is whether the broker had asked.
    """

    event: EventName
    timestamp: int | None
    until_timestamp: int | None
    record: Message
    proof: str
    group: str | None = None
    due_timestamp: int | None = None
    times: int | None = None
    client_host: str | None = None
    cost: int | None = None
    result: str | None = None
    from_check: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        when = {"event": self.event, "timestamp": self.timestamp, "until_timestamp": self.until_timestamp}
        where = {name: self.record[name] for name in ("topic", "queue_id", "queue_offset", "physical_offset")}
        what = {"group": self.group, "reconsume_times": self.times, "due_timestamp": self.due_timestamp}
        told = {"client_host": self.client_host, "cost_ms": self.cost, "result": self.result}
        return with_times({**when, **where, **what, **told, "from_check": self.from_check, "proof": self.proof})


def story_of(
    snapshot: Snapshot, message: Message, relatives: Sequence[Relative], transaction: TransactionPart | None = None
) -> list[Event]:
    """All that the store has of a message: its records as they lie in the log, each with who got it until the next.

    The order is that of the log, for clocks may differ; future events come last.
    """
    records = sorted([message, *(other.record for other in relatives)], key=lambda each: each["physical_offset"])
    sent = records[0]["born_timestamp"]
    stored = [_stored(snapshot, record, relatives) for record in records]
    events = [Event("sent", sent, sent, records[0], "the clock of the producer")]
    for at, record in enumerate(records):
        events.append(stored[at])
        if record["topic"] not in (HALF_TOPIC, OP_TOPIC, *DELAYED_TOPICS):
            events += _deliveries(snapshot, record, stored[at + 1 :])
    if transaction is not None and transaction.state == "rolled-back" and transaction.op is not None:
        op = message_at(snapshot, transaction.op)
        if op is not None:
            time = op["store_timestamp"]
            events.append(Event("rolled-back", time, time, op, f"op message at {transaction.op}, and no copy"))
    return sorted(events, key=lambda each: each.event == "not-passed")


def _stored(snapshot: Snapshot, record: Message, relatives: Sequence[Relative]) -> Event:
    topic, time = record["topic"], record["store_timestamp"]
    proof = f"record at {record['physical_offset']}"
    if topic in DELAYED_TOPICS:
        delay = delay_of(snapshot, record, _tags_code(snapshot, record), list(relatives))
        target = delay.real_topic or "" if delay else ""
        group = target.removeprefix(RETRY_PREFIX) if target.startswith(RETRY_PREFIX) else None
        name: EventName = "sent-back" if group else "delayed"
        due = delay.due_timestamp if delay else None
        return Event(name, time, time, record, proof, group, due, record["reconsume_times"] if group else None)
    for name, prefix in _OF_GROUPS:
        if topic.startswith(prefix):
            return Event(name, time, time, record, proof, topic.removeprefix(prefix), None, record["reconsume_times"])
    ends: dict[str, EventName] = {"prepared": "half", "commit": "committed", "rollback": "rolled-back"}
    name = "half" if topic == HALF_TOPIC else ends.get(record["transaction"], "stored")
    return Event(name, time, time, record, proof)


_OF_GROUPS: tuple[tuple[EventName, str], ...] = (("retry", RETRY_PREFIX), ("dead-letter", DEAD_LETTER_PREFIX))


def _tags_code(snapshot: Snapshot, record: Message) -> int | None:
    """That of the record's unit, which is when a delay ends; None without the unit."""
    try:
        queue = snapshot.queue(record["topic"], record["queue_id"])
        unit = queue.unit_at(record["queue_offset"]) if queue else None
    except RmqtoolError:
        return None
    return unit.tags_code if unit and unit.physical_offset == record["physical_offset"] else None


def _deliveries(snapshot: Snapshot, record: Message, later: Sequence[Event]) -> Iterator[Event]:
    """The groups of the record's queue: they have read it, or passed it at a time between two, or not yet.

    `later` are the records after it: a group that failed on it had read it by then. An offset past the end of the
    queue shows nothing.
    """
    stored = record["store_timestamp"]
    for item in passed_by(snapshot, record["topic"], record["queue_id"], record["queue_offset"]):
        group, after, proof = item["group"], item["passed_after_timestamp"], f"committed {item['committed_offset']}"
        failed = next((each for each in later if each.group == group and _is_failure_on(each, record)), None)
        if failed is not None:
            yield Event("read", stored, _after(stored, failed.timestamp), record, "it failed on it", group)
        elif not item["consumed"]:
            yield Event("not-passed", None, None, record, proof, group)
        elif not _is_beyond(snapshot, record, item["committed_offset"]):
            proof += "" if after is None else ", lower in the .bak"
            begin = max(stored, after or stored)
            yield Event("passed", begin, _after(begin, item["as_of_timestamp"]), record, proof, group)


def _is_failure_on(event: Event, record: Message) -> bool:
    """Whether a record of a failure is of this copy of the message: a producer may have sent it twice."""
    if event.event not in _FAILURES:
        return False
    origin = event.record["properties"].get("ORIGIN_MESSAGE_ID")
    return origin in (None, record["message_id"], record["properties"].get("ORIGIN_MESSAGE_ID"))


def _is_beyond(snapshot: Snapshot, record: Message, offset: int) -> bool:
    try:
        queue = snapshot.queue(record["topic"], record["queue_id"])
    except RmqtoolError:
        return False
    return queue is not None and offset > queue.range.max_offset


def _after(begin: int, end: int | None) -> int | None:
    """An end that is not before the beginning; clocks may differ."""
    return None if end is None or end < begin else end


_STORED = ("stored", "half", "delayed", "committed", "sent-back", "retry", "dead-letter")

_ENDS = ("committed", "rolled-back")


def with_reports(story: Sequence[Event], reports: Iterable[Event]) -> list[Event]:
    """The story with what clients report in it, each where its time is.

    The order of the story stays. Clocks of clients and brokers may differ: what is stored has been sent before, what is
    consumed has been stored, and what comes back has failed, whatever the clocks say.
    """
    line = list(story)
    for report in sorted(reports, key=lambda each: (each.timestamp or 0, each.event == "trace-consume-end")):
        low, high = _bounds(line, report)
        times = ((at, line[at].timestamp) for at in range(low, high))
        line.insert(next((at for at, time in times if time is None or time > (report.timestamp or 0)), high), report)
    return line


def _bounds(line: Sequence[Event], report: Event) -> tuple[int, int]:
    """Positions in a line between which a report belongs: after its last cause, and before its first effect."""
    own = [(at, event) for at, event in enumerate(line) if not event.event.startswith("trace-")]
    low = max((at + 1 for at, event in own if _is_cause(event, report)), default=1)
    high = min((at for at, event in own if at >= low and _is_effect(event, report)), default=len(line))
    return low, high


def _is_cause(event: Event, report: Event) -> bool:
    """Whether a client could do what it reports only after an event."""
    if report.event == "trace-transaction-end":
        return event.event == "half"
    if report.event not in ("trace-consume-begin", "trace-consume-end"):
        return False
    if report.times:
        return event.event == "retry" and (event.group, event.times) == (report.group, report.times)
    return event.event in ("stored", "committed")


def _is_effect(event: Event, report: Event) -> bool:
    """Whether an event could happen only after what a client reports."""
    match report.event:
        case "trace-send":
            return report.result == "SUCCESS" and event.event in _STORED
        case "trace-transaction-end":
            return event.event in _ENDS
        case "trace-consume-begin" | "trace-consume-end":
            again = event.event in _FAILURES and event.group == report.group
            return again and report.times is not None and (event.times or 0) > report.times
    return False


_MOST_UNITS = 1000  # of the index; a client tells of a consumption in one message or two
_MOST_READ = 10_000  # messages of a queue of the trace topic that no index covers
_BATCH_SEPARATOR = ","  # the ids of a batch are one key


def trace_messages(snapshot: Snapshot, message_id: str, first: int) -> list[Message]:
    """The trace messages about the message with an id, with their bodies, in the order of the log.

    `message_id` is the unique key, or the offset message id of a message without one. `first` is the physical offset of
    its first record. The index is asked; what it does not cover is read.
    """
    own = {TRACE_TOPIC, snapshot.store.conf.text("msgTraceTopicName")}  # others are of a cloud's regions
    topics = tuple(topic for topic in snapshot.topic_names if topic in own or topic.startswith(TRACE_PREFIX))
    if not topics:
        return []
    query = KeyQuery(message_id, topics, limit=_MOST_UNITS)
    found = {message["physical_offset"]: message for message in by_key(snapshot, query, "decompressed", Notes())}
    for offset in _unindexed(snapshot, topics, first):
        frame = None if offset in found else record_at(snapshot.log.files, offset)
        # Properties are not decoded of a record that does not hold the id anywhere.
        if frame is None or message_id.encode() not in bytes(frame.block.view):
            continue
        message = message_at(snapshot, offset, "decompressed")
        if message and any(message_id in key.split(_BATCH_SEPARATOR) for key in message["keys"]):
            found[offset] = message
    return [found[offset] for offset in sorted(found) if found[offset]["unique_key"] != message_id]


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


def client_reports(snapshot: Snapshot, message: Message, relatives: Sequence[Relative]) -> list[Event]:
    """All that clients say of a message, and where they may have said more that cannot be read."""
    records = [message, *(other.record for other in relatives)]
    first = min(records, key=lambda record: record["physical_offset"])
    message_id = message["unique_key"] or message["message_id"]
    told: dict[TraceRecord, Message] = {}
    events = []
    for trace in trace_messages(snapshot, message_id, first["physical_offset"]):
        body, time = _body(trace), trace["store_timestamp"]
        for record in body.records:
            if message_id in record.message_ids:
                told.setdefault(record, trace)  # a client may have sent its traces twice
        if body.unreadable:
            proof = f"{_proof(trace)}: {body.unreadable} that may be about other messages"
            events.append(Event("trace-unreadable", time, time, trace, proof))
    places = {record["message_id"]: record["physical_offset"] for record in records}
    begins = {record.request_id: record for record in told if record.type == "SubBefore"}
    for record, by in told.items():
        begin = begins.get(record.request_id) if record.type == "SubAfter" else None
        events.append(_event(record, by, begin, first, places))
    return events


def _body(trace: Message) -> TraceBody:
    if "body_error" in trace or not trace["body_crc_ok"]:
        return TraceBody((), 1)
    return decode_trace(base64.b64decode(trace["body_base64"]) if trace["body"] is None else trace["body"].encode())


def _proof(trace: Message) -> str:
    return f"trace topic, message at {trace['physical_offset']}"


def _event(
    record: TraceRecord, by: Message, begin: TraceRecord | None, first: Message, places: Mapping[str, int]
) -> Event:
    """The event of one record of a trace message; `begin` is the begin of the consumption that it ends."""
    time, proof = record.timestamp, f"{_proof(by)}: as reported by the client"
    host = record.client_host or by["born_host"]
    event = Event("trace-send", time, time, by, proof, record.group, client_host=host, cost=record.cost)
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
