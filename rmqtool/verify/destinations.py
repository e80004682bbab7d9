"""Delayed and timer messages that have lost where they go to, so that a broker cannot deliver them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatched
from rmqtool.formats.java import decode_text, whole_number
from rmqtool.formats.properties import REAL_QUEUE_ID, REAL_TOPIC
from rmqtool.rules.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.scan.frames import RecordRun

_INT = 32


class Undeliverable(NamedTuple):
    """Such a message: its queue, its queue offset, its physical offset."""

    queue: QueueName
    queue_offset: int
    physical_offset: int


def undeliverable(frames: RecordRun, dispatched: Dispatched) -> Iterator[Undeliverable]:
    """Those of a run that name no topic, or no queue (`ScheduleMessageService#messageTimeUp`)."""
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        rows = dispatched.rows_of(topic).tolist()
        if not rows:
            continue
        topics, queue_ids = dispatched.values(REAL_TOPIC), dispatched.values(REAL_QUEUE_ID)
        numbers, offsets = (frames.headers.field(name) for name in ("queue_id", "queue_offset"))
        for row in rows:
            if not topics.sizes[row] or whole_number(decode_text(queue_ids.text(row)), _INT) is None:
                name = QueueName(topic, int(numbers[row]))
                yield Undeliverable(name, int(offsets[row]), int(frames.physical_offsets[row]))


def offsets_by_queue(found: Iterable[Undeliverable]) -> dict[QueueName, list[int]]:
    """Their queue offsets."""
    offsets = dict[QueueName, list[int]]()
    for each in found:
        offsets.setdefault(each.queue, []).append(each.queue_offset)
    return offsets
