"""Committed offsets against other evidence of a group's progress (`ConsumerOffsetManager`).

A broker stores any offset that it is given, and the queue does not show whether it is too small or too large. But the
group's retries show what it has consumed, the ``.bak`` what it had committed five seconds before, and the time of the
file whether messages were stored long after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, note_failure
from rmqtool.base.paths import modified_ms
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.report import Report
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message_id import parse_message_id
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqtool.store.consumer_offsets import CommittedOffset, load_offsets_in
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.single_messages import Message, SingleMessages
from rmqtool.store.store import Store
from rmqtool.verify.offset_checks import Ranges
from rmqtool.verify.witnesses import Witnesses

_FAR = 10_000  # beyond a queue's end; a slave, whose offsets come from its master, lags less
_SPAN = 2_000  # DefaultMQPushConsumer#consumeConcurrentlyMaxSpan: how far a client runs ahead
_SAMPLED = 8  # retries of a queue, the oldest and the newest
_OLD_MS = 3_600_000  # offsets are written every five seconds
_AGAIN = "the group consumes again what lies between, unless its offset was set back on purpose"

GroupQueue = tuple[str, str, int]
"""Group, topic and queue."""


@dataclass(frozen=True)
class _Wrong:
    committed: CommittedOffset
    reason: str
    consequence: str
    other_offset: int | None = None  # that of the evidence


def check_offset_witnesses(witnesses: Witnesses, report: Report) -> None:
    """Report offsets that another part of the store contradicts."""
    file, committed = witnesses.snapshot.committed.file, witnesses.snapshot.committed.offsets
    report.check("config.wrong-offset", len(committed))
    if file.path is None or witnesses.is_in_rocksdb:
        return
    wrong = {(one.committed.group, one.committed.topic, one.committed.queue_id): one
             for one in (*_behind_retries(witnesses), *_behind_backup(file.path, committed, witnesses.ranges),
                         *_out_of_reach(committed, witnesses.ranges))}  # fmt: skip
    _report(witnesses.store, file.path, wrong, report)
    _check_age(witnesses.store, file.path, witnesses.totals.latest, report)


def _report(store: Store, path: Path, wrong: Mapping[GroupQueue, _Wrong], report: Report) -> None:
    """One finding for each group and topic."""
    ordered = [wrong[key] for key in sorted(wrong)]
    for _, group in groupby(ordered, key=lambda one: (one.committed.group, one.committed.topic)):
        first, *others = group
        at = first.committed
        key: dict[str, Any] = {"topic": at.topic, "queue_id": at.queue_id, "queue_offset": at.offset}
        file = store.relative(path)
        report.add("config.wrong-offset", file=file, effect=first.consequence, count=1 + len(others), **key,
                   details={"group": at.group, "reason": first.reason, "committed_offset": at.offset,
                            "other_offset": first.other_offset, "other_queues": len(others)})  # fmt: skip


def _out_of_reach(committed: Sequence[CommittedOffset], ranges: Ranges) -> Iterator[_Wrong]:
    ends = {(name.topic, name.queue_id): queue_range.max_offset for name, queue_range in ranges.items()}
    for one in committed:
        end = ends.get((one.topic, one.queue_id), 0)
        if one.offset < 0:
            yield _Wrong(one, "negative", "the broker begins at the queue's minimum")
        elif one.offset - end >= _FAR:
            effect = "the broker sets the group to the end of the queue: it skips what it has not consumed; up to " \
                     "4.9.3 to its beginning"  # fmt: skip
            yield _Wrong(one, "beyond", effect, end)


def _behind_backup(path: Path, committed: Sequence[CommittedOffset], ranges: Ranges) -> Iterator[_Wrong]:
    """Offsets that are less than in the .bak: they grow from one write to the next, unless they are set back.

    At the end of its queue a group has nothing to consume again.
    """
    if path.suffix == ".bak":
        return
    try:
        backup = load_offsets_in(path.with_name(f"{path.name}.bak"))
    except RmqtoolError:
        return
    before = {(one.group, one.topic, one.queue_id): one.offset for one in backup}
    for one in committed:
        earlier = before.get((one.group, one.topic, one.queue_id), one.offset)
        queue = ranges.get(QueueName(one.topic, one.queue_id))
        if one.offset < (min(earlier, queue.max_offset) if queue else earlier):
            yield _Wrong(one, "backup", _AGAIN, earlier)


def _behind_retries(witnesses: Witnesses) -> Iterator[_Wrong]:
    """Offsets far before a message that the group has failed on, and so has consumed."""
    committed = witnesses.snapshot.committed.offsets
    offsets = {(one.group, one.topic, one.queue_id): one.offset for one in committed}
    groups = {one.group for one in committed}
    for (group, topic, queue_id), consumed in _consumed(witnesses.ranges, witnesses.messages).items():
        if group not in groups or QueueName(topic, queue_id) not in witnesses.ranges:
            continue  # the group or the topic was deleted
        offset = offsets.get((group, topic, queue_id), 0)
        if offset <= 0 or consumed - offset > _SPAN:
            yield _Wrong(CommittedOffset(group, topic, queue_id, offset), "retries", _AGAIN, consumed)


def _consumed(ranges: Ranges, messages: SingleMessages) -> dict[GroupQueue, int]:
    """The largest queue offset of each group among the messages that it has failed on."""
    furthest: dict[GroupQueue, int] = {}
    for name in ranges:
        prefix = next((prefix for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if name.topic.startswith(prefix)), None)
        queue = messages.queue(name.topic, name.queue_id) if prefix else None
        if prefix is None or queue is None:
            continue
        for retry in _some(queue, messages):
            origin = _origin(retry, messages)
            if origin is not None:
                key = name.topic.removeprefix(prefix), origin["topic"], origin["queue_id"]
                furthest[key] = max(furthest.get(key, 0), origin["queue_offset"])
    return furthest


def _some(queue: LoadedQueue, messages: SingleMessages) -> Iterator[Message]:
    first, end = queue.range.min_offset, queue.range.max_offset
    queue_offsets = {*range(first, min(first + _SAMPLED, end)), *range(max(first, end - _SAMPLED), end)}
    for queue_offset in sorted(queue_offsets):
        message = messages.in_queue(queue, queue_offset)
        if message is not None:
            yield message


def _origin(retry: Message, messages: SingleMessages) -> Message | None:
    """The original message of a retry; None when it is not in this log."""
    properties = retry["properties"]
    text = properties.get("ORIGIN_MESSAGE_ID") or properties.get("DLQ_ORIGIN_MESSAGE_ID") or ""
    try:
        _, offset = parse_message_id(text)
    except FormatError:
        return None
    origin = messages.at(offset)
    is_origin = origin is not None and origin["message_id"] == text and origin["topic"] == properties.get("RETRY_TOPIC")
    return origin if is_origin else None


def _check_age(store: Store, path: Path, newest: int, report: Report) -> None:
    report.check("config.older-copy")
    try:
        written = modified_ms(path)
    except OSError as error:
        note_failure(path, error)
        return
    if written is None or newest > time.time() * 1000:  # a time that is still to come proves nothing
        return
    if newest - written > _OLD_MS:
        times = {"problem": "time", "written": written, "newest": newest}
        report.add("config.older-copy", file=store.relative(path), details=times)
