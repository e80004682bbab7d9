"""Delayed and timer messages that have lost where they go to, so that a broker cannot deliver them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatched
from rmqtool.formats.java import decode_text, whole_number
from rmqtool.formats.properties import REAL_QUEUE_ID, REAL_TOPIC
from rmqtool.rules.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.scan.block import Positions
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.windows import Texts

_INT = 32
_ZERO, _NINE = b"09"
_SHORT = 2  # digits


class Undeliverable(NamedTuple):
    """Such a message: its queue, its queue offset, its physical offset."""

    queue: QueueName
    queue_offset: int
    physical_offset: int


def is_queue_id(text: str) -> bool:
    """Whether a broker reads a number from REAL_QID (`Integer#parseInt`)."""
    return whole_number(text, _INT) is not None


def undeliverable(frames: RecordRun, dispatched: Dispatched) -> Iterator[Undeliverable]:
    """Those of a run that name no topic, or no queue (`ScheduleMessageService#messageTimeUp`)."""
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        rows = dispatched.rows_of(topic)
        if not rows.size:
            continue
        topics, queue_ids = dispatched.values(REAL_TOPIC), dispatched.values(REAL_QUEUE_ID)
        numbers, offsets = (frames.headers.field(name) for name in ("queue_id", "queue_offset"))
        for row in rows[(topics.sizes[rows] == 0) | ~_are_short_numbers(queue_ids, rows)].tolist():
            if not topics.sizes[row] or not is_queue_id(decode_text(queue_ids.text(row))):
                name = QueueName(topic, int(numbers[row]))
                yield Undeliverable(name, int(offsets[row]), int(frames.physical_offsets[row]))


def _are_short_numbers(texts: Texts, rows: Positions) -> NDArray[np.bool_]:
    """Which texts have one digit or two, as nearly all."""
    starts, sizes = texts.starts[rows], texts.sizes[rows]
    ends = (texts.data.take(places, mode="clip") for places in (starts, starts + sizes - 1))
    first, last = ((each >= _ZERO) & (each <= _NINE) for each in ends)
    found: NDArray[np.bool_] = (sizes > 0) & (sizes <= _SHORT) & first & last
    return found


def offsets_by_queue(found: Iterable[Undeliverable]) -> dict[QueueName, list[int]]:
    """Their queue offsets."""
    offsets = dict[QueueName, list[int]]()
    for each in found:
        offsets.setdefault(each.queue, []).append(each.queue_offset)
    return offsets
