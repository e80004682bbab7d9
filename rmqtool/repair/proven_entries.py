"""What a store proves of its config files: topics and groups, the offsets that queues have, where delay levels go on.

Topics and groups are as a broker makes them new (`TopicConfig`, `SubscriptionGroupConfig`), of fields that every
release has: a newer one gives the others its defaults, and writes them itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_system_topic,
)
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.config_tables import DELAYS, LMQ_QUEUE_ID, LMQ_TABLE, MAIN_TABLES, READABLE, WRITABLE
from rmqtool.store.config_text import Member, entries_of, members, table_in, value_of, with_members, with_values
from rmqtool.store.paths import COMPACTION, COMPACTION_LOG
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.single_messages import LEVELS, Deliveries, SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store
from rmqtool.transaction.losses import chosen_until


@dataclass(frozen=True)
class SeenQueue:
    """A queue: the offsets that can be consumed, the maximum exclusive, and whether it is a batch consume queue."""

    min_offset: int
    max_offset: int
    is_batch: bool = False


SeenQueues = Mapping[QueueName, SeenQueue]


def seen_queues(snapshot: Snapshot, *, in_log: bool) -> SeenQueues:
    """The queues on disk, and with `in_log`, which reads all of it, those of its records."""
    queues = dict(_on_disk(snapshot))
    for name, queue in _in_log(snapshot) if in_log else ():
        there = queues.get(name, queue)
        queues[name] = replace(there, max_offset=max(there.max_offset, queue.max_offset))
    return queues


def _on_disk(snapshot: Snapshot) -> Iterator[tuple[QueueName, SeenQueue]]:
    for queue in snapshot.queues:
        loaded = None
        with suppress(RmqtoolError):  # then the log shows it
            loaded = snapshot.queue(queue.topic, queue.queue_id) if queue.files.files else None
        if loaded is not None:
            low, high = max(0, loaded.range.min_offset), loaded.range.max_offset
            yield QueueName(queue.topic, queue.queue_id), SeenQueue(low, max(low, high), queue.kind == "batch")


def _in_log(snapshot: Snapshot) -> Iterator[tuple[QueueName, SeenQueue]]:
    """The queues of the log's records; each begins with its first record in the log."""
    rules = DispatchRules.of(
        snapshot.release, snapshot.store.conf, snapshot.delay_levels, has_light_queues=snapshot.has_light_queues
    )
    plain = snapshot.topics_with_plain_queues
    dispatcher = Dispatcher(rules, snapshot.topics.with_batch_queues or None, plain_topics=plain)
    lows, highs = np.empty(0, np.int64), np.empty(0, np.int64)
    for event in scan_files(snapshot.log.files, reading=snapshot.reading):
        if isinstance(event, RecordRun):
            units = dispatcher.dispatch(event).units
            new = len(dispatcher.queues) - len(lows)
            lows = np.append(lows, np.full(new, np.iinfo(np.int64).max))
            highs = np.append(highs, np.zeros(new, np.int64))
            np.minimum.at(lows, units.queues, units.queue_offsets)
            np.maximum.at(highs, units.queues, _ends(units))
    for name, low, high in zip(dispatcher.queues, lows.tolist(), highs.tolist(), strict=True):
        if low < high:
            yield QueueName(*name), SeenQueue(low, high, dispatcher.is_batch_topic(name[0]))


def _ends(units: QueueUnits) -> NDArray[np.int64]:
    ends: NDArray[np.int64] = units.queue_offsets + units.batch_sizes
    return ends


_OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_MAX_QUEUES = 1024  # more than a topic has; an offset of a higher queue is damaged
_ON_DEMAND = (HALF_TOPIC, "RMQ_SYS_TRACE_TOPIC")  # brokers before 5.0, or without traceTopicEnable, make them later


def proven_topics(
    store: Store, queues: SeenQueues, groups: Collection[str], consumed: Iterable[tuple[str, int]]
) -> dict[str, dict[str, Any]]:
    """The topics whose queues are seen, but those that a broker makes by itself at a start.

    Queues that are `consumed`, by topic and queue id, are there, too, though they have no message yet. Each of the
    `groups` has a retry topic, which the broker makes when the first consumer connects.
    """
    counts: dict[str, int] = {}
    batch: set[str] = set()
    for name, queue in queues.items():
        if name.topic.startswith((*_OF_GROUPS, *_ON_DEMAND)) or not is_system_topic(name.topic):
            counts[name.topic] = max(counts.get(name.topic, 0), name.queue_id + 1)
            batch |= {name.topic} if queue.is_batch else set()
    for topic, queue_id in consumed:
        if topic in counts and queue_id < _MAX_QUEUES:
            counts[topic] = max(counts[topic], queue_id + 1)
    counts |= {topic: 1 for group in groups if (topic := RETRY_PREFIX + group) not in counts}
    return {topic: _topic(store, topic, counts[topic], is_batch=topic in batch) for topic in sorted(counts)}


def _topic(store: Store, topic: str, queues: int, *, is_batch: bool) -> dict[str, Any]:
    """A topic's configuration; before 4.9 a broker made dead letter topics that cannot be read."""
    attributes = {"queue.type": "BatchCQ"} if is_batch else {}
    if (store.root / COMPACTION / COMPACTION_LOG / topic).is_dir():
        attributes["cleanup.policy"] = "COMPACTION"
    config = {
        "order": False,
        "perm": READABLE | WRITABLE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
    return {**config, "attributes": attributes} if attributes else config


def group_topics(topics: Iterable[str]) -> Iterator[str]:
    """The groups to which retry and dead letter topics belong; those of pop consumers name a topic after the group."""
    known = {*topics}
    for topic in known:
        for prefix in _OF_GROUPS:
            if topic.startswith(prefix):
                group = topic.removeprefix(prefix).partition("+")[0]
                ends = (at for at, letter in enumerate(group) if letter == "_" and group[at + 1 :] in known)
                yield group[: next(ends, len(group))]


def group_entry(group: str) -> dict[str, Any]:
    """A group's settings as a broker makes them when a consumer connects."""
    return {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": group,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


_FAR = 10_000  # from 0: of a queue without any message; a smaller offset may be that of messages that have expired
NO_PROOF = "offsets past the ends of queues may be the only proof that the log has lost its end"
"""What no one can know any more when they are brought to those ends."""


class Moved(NamedTuple):
    """An offset that is brought to another one, and why to that one; `backup` is one that its queue has, too."""

    group: str
    topic: str
    queue_id: int
    offset: int
    to: int
    why: str
    backup: int | None = None

    @property
    def line(self) -> str:
        """The line that shows it."""
        why = self.why if self.backup is None else f"{self.why}; its .bak has {self.backup}"
        return f"group {self.group}, {self.topic} queue {self.queue_id}: {self.offset} -> {self.to} ({why})"


def with_real_offsets(
    text: str, queues: SeenQueues, backup: str | None = None, topics: Collection[str] | None = None
) -> tuple[str, list[Moved]]:
    """The text of a file of committed offsets with each in the range of its queue, and those that are moved.

    Past the end of its queue one stays in other topics than `topics`, which have lost messages: a tool has set it.
    Where the text of its ``.bak`` has another one in that range, somebody may prefer it: the group was there.
    """
    values, moved, older = [], [], offsets_in(backup) if backup else {}
    for key, (place, offset) in offsets_in(text).items():
        queue = queues.get(QueueName(*key[1:]))
        nearest, why = _nearest(queue, offset)
        is_set = topics is not None and queue is not None and offset > queue.max_offset and key[1] not in topics
        if nearest != offset and not is_set:
            values.append((place, nearest))
            _, before = older.get(key, (None, None))
            moved.append(Moved(*key, offset, nearest, why, _plausible(queue, before, nearest)))
    return with_values(text, values), moved


def with_newer_offsets(text: str, entries: Mapping[str, str], queues: SeenQueues) -> tuple[str, list[str]]:
    """The text of a ``.bak`` with the offsets that the damaged file has whole in `entries`, and a line for each.

    Offsets grow: one that is less, or that its queue does not have, is not taken over.
    """
    newer = offsets_in(f'{{"offsetTable":{{{",".join(entries.values())}}}}}')
    values, lines = [], []
    for key, (place, before) in offsets_in(text).items():
        group, topic, queue_id = key
        _, after = newer.get(key, (None, before))
        queue = queues.get(QueueName(topic, queue_id))
        if queue is not None and before < after <= queue.max_offset:
            values.append((place, after))
            lines.append(f"group {group}, {topic} queue {queue_id}: {after} (its .bak has {before})")
    return with_values(text, values), lines


def offsets_in(
    text: str, tables: Iterable[str] = ("offsetTable", LMQ_TABLE)
) -> dict[tuple[str, str, int], tuple[Member, int]]:
    """The offsets of a file by group, topic and queue id, each with its place in the text."""
    found = {}
    for entry in (each for table in tables for each in entries_of(text, table)):
        topic, _, group = entry.name.partition("@")
        is_map = text[entry.value] == "{"
        numbers = members(text, entry.value) if is_map else [entry._replace(name=str(LMQ_QUEUE_ID))]
        found.update({(group, topic, number): place for number, place in _whole_numbers(text, numbers).items()})
    return found


def _whole_numbers(text: str, found: Iterable[Member]) -> dict[int, tuple[Member, int]]:
    """Those of the members whose names and values are whole numbers, by name."""
    values = ((each, value_of(text, each)) for each in found if each.name.isdecimal())
    return {int(each.name): (each, value) for each, value in values if type(value) is int}


def _plausible(queue: SeenQueue | None, offset: Any, nearest: int) -> int | None:
    """The offset of a ``.bak`` if its queue has it, and it is not the nearest one anyhow."""
    if queue is None or type(offset) is not int or offset == nearest:
        return None
    return offset if queue.min_offset <= offset <= queue.max_offset else None


def _nearest(queue: SeenQueue | None, offset: int) -> tuple[int, str]:
    if queue is None:
        return (0 if offset < 0 or offset >= _FAR else offset), "its queue has no message"
    nearest = min(max(offset, queue.min_offset), queue.max_offset)
    return nearest, "the end" if nearest == queue.max_offset else "the beginning"


class DelayOffsets:
    """The offsets of the levels that have messages."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @cached_property
    def proven(self) -> dict[int, int]:
        """By level, the offset after its last delivery, where the log proves it."""
        snapshot, newest = self._snapshot, self._snapshot.log_range.last_store_timestamp
        if newest is None:
            return {}
        messages = SingleMessages(snapshot)
        deliveries = Deliveries(messages, newest, newest + 1, chosen_until(snapshot.store.root))
        ends = {level: deliveries.end_of(level) for level in range(1, LEVELS + 1)}
        return {level: end for level, end in ends.items() if end is not None}

    @cached_property
    def unproven(self) -> list[int]:
        """Levels that have messages, of which the log does not show which were delivered."""
        with_messages = {level for level, each in self._ranges.items() if each.max_offset > each.min_offset}
        return sorted(with_messages - self.proven.keys())

    @cached_property
    def _ranges(self) -> dict[int, QueueRange]:
        """The ranges of the levels' queues."""
        queues = {queue_id + 1: self._snapshot.queue(SCHEDULE_TOPIC, queue_id)
                  for queue_id in self._snapshot.queue_ids(SCHEDULE_TOPIC)}  # fmt: skip
        return {level: queue.range for level, queue in queues.items() if queue is not None}

    def lost(self, text: str) -> list[str]:
        """What goes with the levels of a file's text that are past the ends of their queues."""
        is_behind = any(offset > self._end_of(level, offset) for level, (_, offset) in levels_in(text).items())
        return [f"the positions of these levels; {NO_PROOF}"] if is_behind else []

    def corrected(self, text: str, levels: Collection[int] | None = None) -> tuple[str, list[str]]:
        """A text with `levels` (or all) where they are proven, else in the range of their queue; and the lines.

        Those that it lacks are added as far as they are proven.
        """
        values, lines = [], []
        for level, (place, offset) in levels_in(text).items():
            right = self.proven.get(level, min(max(offset, 0), self._end_of(level, offset)))
            if right != offset and (levels is None or level in levels):
                values.append((place, right))
                where = "where its deliveries end" if level in self.proven else "the end of its queue"
                lines.append(f"delay level {level}: {offset} -> {right} ({where})")
        text = with_values(text, values)
        table = table_in(text, MAIN_TABLES[DELAYS])
        there = {each.name for each in entries_of(text, MAIN_TABLES[DELAYS])}
        new = {level: offset for level, offset in self.proven.items()
               if str(level) not in there and (levels is None or level in levels)}  # fmt: skip
        if table is None or not new:
            return text, lines
        lines += [f"delay level {level}: {offset} (where its deliveries end)" for level, offset in new.items()]
        return with_members(text, table, {str(level): f"{level}:{offset}" for level, offset in new.items()}), lines

    def _end_of(self, level: int, offset: int) -> int:
        """The end of a level's queue; the offset itself without one."""
        return self._ranges[level].max_offset if level in self._ranges else offset


def levels_in(text: str) -> dict[int, tuple[Member, int]]:
    """The offsets of a file of delay levels by level, each with its place in the text."""
    return _whole_numbers(text, entries_of(text, MAIN_TABLES[DELAYS]))
