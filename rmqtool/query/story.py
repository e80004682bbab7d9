"""The story of a message: its records and its deliveries on one time line, each with what proves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.times import rfc3339
from rmqtool.query.by_place import Message
from rmqtool.query.deliveries import delay_of
from rmqtool.query.groups import passed_by
from rmqtool.query.relatives import Relative
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
    "unread",
]

_FAILURES = ("sent-back", "retry", "dead-letter")


@dataclass(frozen=True)
class Event:
    """What happened between `timestamp` and `until_timestamp`, epoch ms; they are the same where the time is known.

    None is a time that nothing tells: of an end, that it has not happened. `due_timestamp` is when a delay ends.
    """

    event: EventName
    timestamp: int | None
    until_timestamp: int | None
    record: Message
    proof: str
    group: str | None = None
    due_timestamp: int | None = None
    times: int | None = None

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
            "proof": self.proof,
        }


def story_of(snapshot: Snapshot, message: Message, relatives: Sequence[Relative]) -> list[Event]:
    """All that the store tells of a message, in the order of time; what has not happened yet is last."""
    records = sorted([message, *(other.message for other in relatives)], key=lambda each: each["physical_offset"])
    sent = records[0]["born_timestamp"]
    stored = [_stored(snapshot, record, relatives) for record in records]
    events = [Event("sent", sent, sent, records[0], "the clock of the producer"), *stored]
    for at, record in enumerate(records):
        if record["topic"] not in (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
            events += _deliveries(snapshot, record, stored[at + 1 :])
    return sorted(events, key=lambda each: (each.event == "unread", each.timestamp is None, each.timestamp))


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
    """The groups of the record's queue: they have read it at a time between two, or not yet.

    `later` are the records after it: a group that failed on it had read it by then.
    """
    stored = record["store_timestamp"]
    for item in passed_by(snapshot, record["topic"], record["queue_id"], record["queue_offset"]):
        group, proof, after = (
            item["group"],
            f"committed offset {item['committed_offset']}",
            item["passed_after_timestamp"],
        )
        failed = next((each for each in later if each.group == group and each.event in _FAILURES), None)
        if failed is not None:
            yield Event("read", stored, failed.timestamp, record, "it failed on it", group)
        elif item["consumed"]:
            proof += "" if after is None else ", which was less in the .bak"
            yield Event("read", max(stored, after or stored), item["as_of_timestamp"], record, proof, group)
        else:
            yield Event("unread", None, None, record, proof, group)
