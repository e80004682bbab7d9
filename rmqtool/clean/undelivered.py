"""Messages that still wait for their time or their transaction, and are lost when their log file goes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.queue_deletion import QueueAfterRun
from rmqtool.rules.system_topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.scan.columns import record_batches
from rmqtool.scan.record_at import record_at
from rmqtool.store.config_json import load_config
from rmqtool.store.consume_queues import Queue
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.unit_files import open_units

Kind = Literal["delay", "timer", "transaction"]

_TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"  # MixAll.CID_SYS_RMQ_TRANS
_DUE = "TIMER_OUT_MS"  # MessageConst.PROPERTY_TIMER_OUT_MS
_TIMER_MAX_DELAY_MS = 3 * 86_400_000  # MessageStoreConfig#timerMaxDelaySec, its default
_MOST_RECORDS = 5_000  # that are read one by one for each queue
_NUMBER = re.compile(rb"\d{1,18}")

Committed = dict[tuple[str, str, int], int]
"""Committed offsets by group, topic and queue."""


@dataclass(frozen=True)
class Waiting:
    """Messages of one queue that wait and go with their files.

    Due times are epoch ms, None where the queue does not tell; `exact` is false when not all could be looked at and
    the number is the most that it may be.
    """

    kind: Kind
    topic: str
    queue_id: int
    messages_lost: int
    first_due: int | None = None
    last_due: int | None = None
    exact: bool = True


@dataclass(frozen=True)
class _Lost:
    """A queue whose messages from `start` to before `stop` (queue offsets) go; it is as it was before."""

    queue: Queue
    start: int
    stop: int


def waiting_messages(
    store: Store,
    before: Sequence[QueueAfterRun],
    after: Sequence[QueueAfterRun],
    committed: Committed,
    log: Sequence[MappedFile],
    now: int,
) -> Iterator[Waiting]:
    """What waits at `now`, epoch ms, and is lost between two states of the queues."""
    ops = {old.queue.queue_id: old for old in before if old.queue.topic == OP_TOPIC}
    delay_offsets = _delay_offsets(store)
    for old, new in zip(before, after, strict=True):
        lost = _Lost(old.queue, old.first_alive, new.first_alive)
        if lost.start >= lost.stop or lost.queue.kind != "simple":
            continue
        found: Waiting | None = None
        if lost.queue.topic == SCHEDULE_TOPIC:
            found = _delayed(lost, delay_offsets.get(lost.queue.queue_id + 1, 0))
        elif lost.queue.topic == TIMER_TOPIC:
            found = _timed(lost, log, now)
        elif lost.queue.topic == HALF_TOPIC:
            found = _pending(lost, ops.get(lost.queue.queue_id), committed, log)
        if found and found.messages_lost:
            yield found


def _delay_offsets(store: Store) -> dict[int, int]:
    """The next queue offset to deliver, by delay level (`ScheduleMessageService`); levels not there begin at 0."""
    table: Any = load_config(store.root / CONFIG / "delayOffset.json").content.get("offsetTable")
    items = table.items() if isinstance(table, dict) else ()
    return {int(level): offset for level, offset in items if level.isdigit() and type(offset) is int}


def _delayed(lost: _Lost, delivered: int) -> Waiting:
    """What a delay level has not delivered yet; its units tell the delivery time in place of the tags code."""
    count, first, last = 0, None, None
    for part in _units(lost.queue, max(lost.start, delivered), lost.stop):
        due = part["tags_code"]
        count += len(part)
        first = int(due.min()) if first is None else min(first, int(due.min()))
        last = int(due.max()) if last is None else max(last, int(due.max()))
    return Waiting("delay", lost.queue.topic, lost.queue.queue_id, count, first, last)


def _timed(lost: _Lost, log: Sequence[MappedFile], now: int) -> Waiting | None:
    """What the timer wheel has not delivered yet: the due time is a property of the record."""
    newest = next((_record(log, unit) for part in _units(lost.queue, lost.stop - 1, lost.stop) for unit in part), None)
    if newest and newest["store_timestamp"] + _TIMER_MAX_DELAY_MS < now:
        return None
    count = lost.stop - lost.start
    first = max(lost.start, lost.stop - _MOST_RECORDS)
    records = (_record(log, unit) for part in _units(lost.queue, first, lost.stop) for unit in part)
    due = [time for record in records if record and (time := _due(record)) is not None and time > now]
    exact = first == lost.start
    number = len(due) if exact else count
    return Waiting(
        "timer", lost.queue.topic, lost.queue.queue_id, number, min(due, default=None), max(due, default=None), exact
    )


def _due(record: dict[str, Any]) -> int | None:
    text = dict(record["properties"]).get(_DUE, "")
    return int(text) if _NUMBER.fullmatch(text.encode()) else None


def _pending(lost: _Lost, op: QueueAfterRun | None, committed: Committed, log: Sequence[MappedFile]) -> Waiting:
    """Half messages that nobody has committed or rolled back (`TransactionalMessageServiceImpl#check`)."""
    start = max(lost.start, committed.get((_TRANSACTION_GROUP, HALF_TOPIC, lost.queue.queue_id), 0))
    removed, exact = _removed(op, committed, log) if op and start < lost.stop else (set(), True)
    number = max(0, lost.stop - start) - sum(start <= offset < lost.stop for offset in removed)
    return Waiting("transaction", HALF_TOPIC, lost.queue.queue_id, number, exact=exact)


def _removed(op: QueueAfterRun, committed: Committed, log: Sequence[MappedFile]) -> tuple[set[int], bool]:
    """Queue offsets of half messages that op messages name as done, and whether all op messages were read."""
    queue, stop = op.queue, op.range.max_offset
    start = max(op.first_alive, committed.get((_TRANSACTION_GROUP, OP_TOPIC, queue.queue_id), 0))
    offsets: set[int] = set()
    for part in _units(queue, start, min(stop, start + _MOST_RECORDS)):
        for unit in part:
            record = _record(log, unit, "body")
            offsets.update(map(int, _NUMBER.findall(record["body"] if record else b"")))
    return offsets, stop <= start + _MOST_RECORDS


def _record(log: Sequence[MappedFile], unit: np.void, column: str = "properties") -> dict[str, Any] | None:
    frame = record_at(log, int(unit["physical_offset"]))
    if frame is None:
        return None
    (batch,) = record_batches(frame, ("store_timestamp", column))
    (row,) = batch.to_pylist()
    return dict(row)


def _units(queue: Queue, start: int, stop: int) -> Iterator[NDArray[np.void]]:
    """The units from queue offset `start` to before `stop`, file by file."""
    with open_units(queue) as files:
        for low, high, is_in_file in files.stretches(start, stop):
            if is_in_file:
                yield files.units(low, high - low)
