"""When a message is delivered later, and where a retry or a dead letter comes from.

`ScheduleMessageService`, `TimerMessageStore`, `SendMessageProcessor#consumerSendMsgBack`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.times import rfc3339
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message_id import parse_message_id
from rmqtool.query.by_place import Message, message_at
from rmqtool.query.relatives import Relative
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.store.config_json import load_config
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG

_DELAY_OFFSETS = "delayOffset.json"
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
        return {
            "by": self.by,
            "level": self.level,
            "due_timestamp": self.due_timestamp,
            "due_time": rfc3339(self.due_timestamp),
            "real_topic": self.real_topic,
            "real_queue_id": self.real_queue_id,
            "delivered": self.delivered,
            "delivered_physical_offset": self.delivered_physical_offset,
        }


def delay_of(snapshot: Snapshot, message: Message, tags_code: int | None, relatives: list[Relative]) -> Delay | None:
    """The delay of a record in a delay level's queue or in the timer's; `tags_code` is that of its unit."""
    topic, properties = message["topic"], message["properties"]
    if topic not in (SCHEDULE_TOPIC, TIMER_TOPIC):
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
    return Delay(
        "level" if level else "timer",
        level,
        due,
        real_topic,
        properties.get("REAL_QID"),
        True if copy is not None else passed,
        copy,
    )


def _passed(snapshot: Snapshot, level: int, queue_offset: int) -> bool | None:
    """Whether the broker has delivered a level's queue beyond an offset, by `delayOffset.json`; None without it."""
    try:
        table = load_config(snapshot.store.root / CONFIG / _DELAY_OFFSETS).content.get("offsetTable")
    except RmqtoolError:
        return None
    # A level that was never delivered is not in the table: it begins at 0.
    offset = table.get(str(level), 0) if isinstance(table, dict) else None
    return offset > queue_offset if type(offset) is int else None


@dataclass(frozen=True)
class Retry:
    """A retry or a dead letter of a group, and the original message."""

    kind: str
    group: str
    times: int
    origin_topic: str | None
    origin_message_id: str | None
    origin_physical_offset: int | None
    origin_state: str

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return {
            "kind": self.kind,
            "group": self.group,
            "reconsume_times": self.times,
            "origin_topic": self.origin_topic,
            "origin_message_id": self.origin_message_id,
            "origin_physical_offset": self.origin_physical_offset,
            "origin_state": self.origin_state,
        }


def retry_of(snapshot: Snapshot, message: Message) -> Retry | None:
    """The retry that a record is, in a retry or dead letter topic or delayed on its way there; None for others."""
    properties = message["properties"]
    topic = message["topic"]
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        topic = properties.get("REAL_TOPIC", "")
    kind = next((prefix for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if topic.startswith(prefix)), None)
    if kind is None:
        return None
    message_id = properties.get("ORIGIN_MESSAGE_ID") or properties.get("DLQ_ORIGIN_MESSAGE_ID")
    offset, state = _origin(snapshot, message_id)
    return Retry(
        "retry" if kind == RETRY_PREFIX else "dead-letter",
        topic.removeprefix(kind),
        message["reconsume_times"],
        properties.get("RETRY_TOPIC") or properties.get("DLQ_ORIGIN_TOPIC"),
        message_id,
        offset,
        state,
    )


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
