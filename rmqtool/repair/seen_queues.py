"""The queues that a store proves: by their files, and where some of these are missing or short, by the log too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.snapshot import Snapshot


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
