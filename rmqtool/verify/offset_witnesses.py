"""Committed offsets against what else shows how far a group has come (`ConsumerOffsetManager`).

A broker writes down any offset that it is given, and one that is too small or too large shows nowhere in its queue. Its
retries do show what a group has consumed, the ``.bak`` what it had committed five seconds before, and the time of the
file that messages were stored long after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.times import rfc3339
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message_id import parse_message_id
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqtool.store.consumer_offsets import CommittedOffset, load_offsets_in
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.store import Store
from rmqtool.verify.offset_checks import Ranges
from rmqtool.verify.single_messages import Message, SingleMessages
from rmqtool.verify.witnesses import Witnesses

_FAR = 10_000  # beyond a queue's end; a slave, whose offsets come from its master, is not that far behind
_SPAN = 2_000  # DefaultMQPushConsumer#consumeConcurrentlyMaxSpan: a client does not run further ahead
_LOOKED_AT = 8  # retries of a queue, the oldest and the newest
_OLD_MS = 3_600_000  # offsets are written every five seconds
_AGAIN = "the group consumes again what lies between, unless its offset was set back on purpose"

Place = tuple[str, str, int]
"""Group, topic and queue."""


@dataclass(frozen=True)
class _Wrong:
    committed: CommittedOffset
    why: str
    effect: str


def check_offset_witnesses(seen: Witnesses, report: Report) -> None:
    """Report offsets that another part of the store contradicts."""
    file, committed = seen.snapshot.committed.file, seen.snapshot.committed.offsets
    report.check("config.wrong-offset", len(committed))
    if file.path is None or seen.is_in_rocksdb:
        return
    wrong = {(one.committed.group, one.committed.topic, one.committed.queue_id): one
             for one in (*_behind_retries(seen), *_behind_backup(file.path, committed),
                         *_out_of_reach(committed, seen.ranges))}  # fmt: skip
    _report(seen.store, file.path, wrong, report)
    _check_age(seen.store, file.path, seen.totals.latest, report)


def _report(store: Store, path: Path, wrong: Mapping[Place, _Wrong], report: Report) -> None:
    """One finding for each group and topic."""
    ordered = [wrong[place] for place in sorted(wrong)]
    for _, found in groupby(ordered, key=lambda one: (one.committed.group, one.committed.topic)):
        first, *others = found
        queues = f", and {counted(len(others), 'other queue')} like it" if others else ""
        at = first.committed
        message = f"group {at.group}: committed {at.offset}, {first.why}{queues}"
        place: dict[str, Any] = {"topic": at.topic, "queue_id": at.queue_id, "queue_offset": at.offset}
        file = store.relative(path)
        report.add("config.wrong-offset", message, file=file, effect=first.effect, count=1 + len(others), **place)


def _out_of_reach(committed: Sequence[CommittedOffset], ranges: Ranges) -> Iterator[_Wrong]:
    ends = {(name.topic, name.queue_id): found.max_offset for name, found in ranges.items()}
    for one in committed:
        end = ends.get((one.topic, one.queue_id), 0)
        if one.offset < 0:
            yield _Wrong(one, "which no queue begins with", "the broker begins at the queue's minimum")
        elif one.offset - end >= _FAR:
            effect = "the broker sets the group to the end of the queue: it skips what it has not consumed; up to " \
                     "4.9.3 to its beginning"  # fmt: skip
            yield _Wrong(one, f"far beyond the end of its queue ({end})", effect)


def _behind_backup(path: Path, committed: Sequence[CommittedOffset]) -> Iterator[_Wrong]:
    """Offsets grow from one write of the file to the next, unless someone sets them back in these seconds."""
    if path.suffix == ".bak":
        return
    try:
        backup = load_offsets_in(path.with_name(f"{path.name}.bak"))
    except RmqtoolError:
        return
    before = {(one.group, one.topic, one.queue_id): one.offset for one in backup}
    for one in committed:
        earlier = before.get((one.group, one.topic, one.queue_id), one.offset)
        if one.offset < earlier:
            yield _Wrong(one, f"its .bak, written earlier, has {earlier}", _AGAIN)


def _behind_retries(seen: Witnesses) -> Iterator[_Wrong]:
    """Groups that have failed on a message, and so consumed it, that is far behind their offset."""
    committed = seen.snapshot.committed.offsets
    offsets = {(one.group, one.topic, one.queue_id): one.offset for one in committed}
    groups = {one.group for one in committed}
    for (group, topic, queue_id), consumed in _consumed(seen.ranges, seen.messages).items():
        if group not in groups or QueueName(topic, queue_id) not in seen.ranges:
            continue  # the group or the topic was deleted
        offset = offsets.get((group, topic, queue_id), 0)
        if offset <= 0 or consumed - offset > _SPAN:
            why = f"its retries show that it has consumed the message at {consumed}"
            yield _Wrong(CommittedOffset(group, topic, queue_id, offset), why, _AGAIN)


def _consumed(ranges: Ranges, messages: SingleMessages) -> dict[Place, int]:
    """The furthest queue offset that each group has consumed, of the messages that it has failed on."""
    found: dict[Place, int] = {}
    for name in ranges:
        prefix = next((prefix for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if name.topic.startswith(prefix)), None)
        queue = messages.queue(name.topic, name.queue_id) if prefix else None
        if prefix is None or queue is None:
            continue
        for retry in _some(queue, messages):
            origin = _origin(retry, messages)
            if origin is not None:
                place = name.topic.removeprefix(prefix), origin["topic"], origin["queue_id"]
                found[place] = max(found.get(place, 0), origin["queue_offset"])
    return found


def _some(queue: LoadedQueue, messages: SingleMessages) -> Iterator[Message]:
    first, end = queue.range.min_offset, queue.range.max_offset
    numbers = {*range(first, min(first + _LOOKED_AT, end)), *range(max(first, end - _LOOKED_AT), end)}
    for number in sorted(numbers):
        message = messages.in_queue(queue, number)
        if message is not None:
            yield message


def _origin(retry: Message, messages: SingleMessages) -> Message | None:
    """The message that a retry began with; None when it is not in this log."""
    properties = retry["properties"]
    text = properties.get("ORIGIN_MESSAGE_ID") or properties.get("DLQ_ORIGIN_MESSAGE_ID") or ""
    try:
        _, offset = parse_message_id(text)
    except FormatError:
        return None
    origin = messages.at(offset)
    same = origin is not None and origin["message_id"] == text and origin["topic"] == properties.get("RETRY_TOPIC")
    return origin if same else None


def _check_age(store: Store, path: Path, newest: int, report: Report) -> None:
    report.check("config.older-copy")
    try:
        written = path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return
    if newest - written > _OLD_MS:
        message = f"written {rfc3339(written)}, and the newest message was stored {rfc3339(newest)}: a running " \
                  "broker writes it every five seconds"  # fmt: skip
        report.add("config.older-copy", message, file=store.relative(path))
