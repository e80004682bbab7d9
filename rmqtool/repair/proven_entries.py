"""Topics and groups that a store proves, as a broker makes them new (`TopicConfig`, `SubscriptionGroupConfig`).

Only fields that every release has are written: a newer one gives the others its defaults, and writes them itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

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
    is_system_topic,
)
from rmqtool.rules.versions import OFFSETS_HAVE_DATA_VERSION, Releases
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.paths import COMPACTION, COMPACTION_LOG
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store
from rmqtool.store.topics import READABLE, WRITABLE


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


def new_data_version(releases: Releases) -> dict[str, int]:
    """A data version as of a new file: `stateVersion` only where no older release may read it as a sign of a newer."""
    version = {"counter": 0, "timestamp": time.time_ns() // 1_000_000}
    return {**version, "stateVersion": 0} if releases.oldest >= OFFSETS_HAVE_DATA_VERSION else version
