"""The story of a message: its records and its deliveries on one time line, each with what proves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.times import rfc3339
from rmqtool.query.by_place import Message, message_at
from rmqtool.query.deliveries import delay_of
from rmqtool.query.groups import passed_by
from rmqtool.query.relatives import Relative
from rmqtool.query.transactions import TransactionPart
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from rmqtool.store.snapshot import Snapshot

EventName = Literal[
    "sent",
    "stored",
    "half",
    "committed",
    "rolled-back",
    "delayed",
    "sent-back",
    "retry",
    "dead-letter",
    "read",
    "passed",
    "not-passed",
    "trace-send",
    "trace-consume-begin",
    "trace-consume-end",
    "trace-transaction-end",
    "trace-recall",
    "trace-unreadable",
]

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
        record = {name: self.record[name] for name in ("topic", "queue_id", "queue_offset", "physical_offset")}
        return {
            "event": self.event,
            "timestamp": self.timestamp,
            "time": rfc3339(self.timestamp),
            "until_timestamp": self.until_timestamp,
            "until_time": rfc3339(self.until_timestamp),
            **record,
            "group": self.group,
            "reconsume_times": self.times,
            "due_timestamp": self.due_timestamp,
            "due_time": rfc3339(self.due_timestamp),
            "client_host": self.client_host,
            "cost_ms": self.cost,
            "result": self.result,
            "from_check": self.from_check,
            "proof": self.proof,
        }


def story_of(
    snapshot: Snapshot, message: Message, relatives: Sequence[Relative], transaction: TransactionPart | None = None
) -> list[Event]:
    """All that the store has of a message: its records as they lie in the log, each with who got it until the next.

    The order is that of the log, for clocks may differ; what has not happened yet is last.
    """
    records = sorted([message, *(other.record for other in relatives)], key=lambda each: each["physical_offset"])
    sent = records[0]["born_timestamp"]
    stored = [_stored(snapshot, record, relatives) for record in records]
    events = [Event("sent", sent, sent, records[0], "the clock of the producer")]
    for at, record in enumerate(records):
        events.append(stored[at])
        if record["topic"] not in (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
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
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
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
        group, proof, after = (
            item["group"],
            f"committed {item['committed_offset']}",
            item["passed_after_timestamp"],
        )
        failed = next((each for each in later if each.group == group and _is_failure_on(each, record)), None)
        if failed is not None:
            yield Event("read", stored, _after(stored, failed.timestamp), record, "it failed on it", group)
        elif not item["consumed"]:
            yield Event("not-passed", None, None, record, proof, group)
        elif not _is_beyond(snapshot, record, item["committed_offset"]):
            proof += "" if after is None else ", less in the .bak"
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
