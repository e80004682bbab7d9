"""Totals of an overview: retries and dead letters of groups, messages that wait, growth, index coverage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rmqtool.inspect.overview import Overview
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from rmqtool.store.consumer_offsets import CommittedOffset
from rmqtool.store.delay_offsets import load_delay_offsets
from rmqtool.store.queue_range import QueueRange

_HOUR_MS = 3_600_000
_LEAST_SPAN_MS = 60_000  # a shorter time shows no growth per hour
_LEVEL = re.compile(r"[1-9]\d{0,3}", re.ASCII)

OutOfRange = Literal["below", "beyond"]


@dataclass(frozen=True)
class GroupFailures:
    """Messages that a group failed on, as far as their queues still hold them: to retry are those not yet consumed."""

    group: str
    retry_messages: int
    dead_letter_messages: int


@dataclass(frozen=True)
class DelayLevel:
    """A delay level: messages that were not delivered yet by `delayOffset.json`; all of them without that file."""

    level: int
    messages: int


@dataclass(frozen=True)
class Waiting:
    """Messages that a broker has accepted and consumers do not see yet, counted in units of its queues."""

    delayed: tuple[DelayLevel, ...]
    timer_messages: int
    half_messages: int
    op_messages: int


def messages_in(offsets: QueueRange) -> int:
    """Units between minimum and maximum."""
    return max(0, offsets.max_offset - max(offsets.min_offset, 0))


def out_of_range(overview: Overview, committed: CommittedOffset) -> OutOfRange | None:
    """Whether a committed offset lies below its queue's minimum, or beyond its maximum; None within, or no queue."""
    offsets = overview.range_of(committed.topic, committed.queue_id)
    if offsets is None:
        return None
    if committed.offset > offsets.max_offset:
        return "beyond"
    return "below" if committed.offset < offsets.min_offset else None


def group_failures(overview: Overview) -> list[GroupFailures]:
    """The groups that have retry or dead letter topics, in name order."""
    counts: dict[str, list[int]] = {}
    committed = overview.snapshot.committed.offsets
    consumed = {
        (each.topic, each.queue_id): each.offset for each in committed if each.topic == RETRY_PREFIX + each.group
    }
    for queue, offsets in overview.queues:
        for column, prefix in enumerate((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            if queue.topic.startswith(prefix):
                done = consumed.get((queue.topic, queue.queue_id), 0)
                left = min(messages_in(offsets), max(0, offsets.max_offset - done))
                counts.setdefault(queue.topic.removeprefix(prefix), [0, 0])[column] += left
    return [GroupFailures(group, *offsets) for group, offsets in sorted(counts.items())]


def waiting(overview: Overview) -> Waiting:
    """Messages that wait in the schedule topic, in the timer's topic and between the two phases of transactions."""
    totals = {topic: _messages_of(overview, topic) for topic in (TIMER_TOPIC, HALF_TOPIC, OP_TOPIC)}
    return Waiting(tuple(_delayed(overview)), totals[TIMER_TOPIC], totals[HALF_TOPIC], totals[OP_TOPIC])


def bytes_per_hour(overview: Overview) -> int | None:
    """How much the commit log grew on average, bytes; None where the times of its messages do not show it."""
    log = overview.log_range
    if log is None or log.first_store_timestamp is None or log.last_store_timestamp is None:
        return None
    span = log.last_store_timestamp - log.first_store_timestamp
    return (log.max_offset - log.min_offset) * _HOUR_MS // span if span >= _LEAST_SPAN_MS else None


def index_coverage(overview: Overview) -> tuple[int, int] | None:
    """Store timestamps of the first and last message in an index file, epoch ms; None without a key."""
    files = [file for file, _ in overview.snapshot.index_geometries if file.keys]
    if not files:
        return None
    return min(file.begin_timestamp for file in files), max(file.end_timestamp for file in files)


def _messages_of(overview: Overview, topic: str) -> int:
    return sum(messages_in(offsets) for queue, offsets in overview.queues if queue.topic == topic)


def _delayed(overview: Overview) -> Iterator[DelayLevel]:
    done = load_delay_offsets(overview.snapshot.store).by_level
    for queue, offsets in overview.queues:
        if queue.topic == SCHEDULE_TOPIC:
            level = queue.queue_id + 1  # ScheduleMessageService#delayLevel2QueueId
            first = max(offsets.min_offset, done.get(level, 0), 0)
            yield DelayLevel(level, max(0, offsets.max_offset - first))
