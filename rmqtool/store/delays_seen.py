"""Delay levels of a store: as broker.conf sets them, else as its own delay queues show them.

Levels are not stored. Of a delayed message the tags code of its unit is the time of its delivery: less the store
timestamp of its record, that is the delay of the queue's level (`CommitLog#checkMessageAndReturnSize`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.paths import entry_path
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.rules.delay_levels import DelayLevels, delay_levels_of
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.consume_queues import Queue, queue_in
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.store import CONSUME_QUEUE, Store
from rmqtool.store.unit_files import open_units

_QUEUE_ID = re.compile(r"\d{1,3}", re.ASCII)
_SAMPLE = 16  # units of each queue, the newest
_SECOND = 1000  # ms: the smallest delay


def delay_levels_of_store(store: Store, database: QueueDatabase | None = None) -> DelayLevels:
    """The levels of this store's broker: as configured, else as its queues show, else the default.

    `database` holds the queues that are in RocksDB.
    """
    levels = delay_levels_of(store.conf)
    if store.conf.text("messageDelayLevel"):
        return levels
    delays = dict(enumerate(levels.delays, 1)) | observed_delays(store, database)
    highest = max(delays)
    return DelayLevels(tuple(delays.get(level, levels.delays[-1]) for level in range(1, highest + 1)))


def observed_delays(store: Store, database: QueueDatabase | None = None) -> dict[int, int]:
    """The delay of each level, ms, on which the newest units of its queue agree."""
    delays: dict[int, int] = {}
    log: Sequence[MappedFile] | None = None
    with skip_unreadable():  # checks that read all of it report what cannot be read
        for queue in _queues(store, database):
            log = store.commit_log().files if log is None else log
            delay = _delay_of(queue, log)
            if delay is not None:
                delays[queue.queue_id + 1] = delay
    return delays


def _queues(store: Store, database: QueueDatabase | None) -> Iterator[Queue]:
    for entry in list_directory(store.root / CONSUME_QUEUE / SCHEDULE_TOPIC):
        if _QUEUE_ID.fullmatch(entry.name) and entry.is_dir():
            yield Queue(SCHEDULE_TOPIC, int(entry.name), "simple", list_mapped_files(entry_path(entry)))
    for topic, queue_id in database.lasts if database else ():
        if database and topic == SCHEDULE_TOPIC:
            yield queue_in(database, topic, queue_id)


def _newest(queue: Queue) -> NDArray[np.void] | None:
    """The newest units of a queue."""
    if queue.database:
        last = queue.database.lasts[queue.topic, queue.queue_id].queue_offset
        return queue.database.units((queue.topic, queue.queue_id), max(0, last - _SAMPLE + 1), last + 1).values
    if not queue.files.files:
        return None
    with open_units(queue) as units:
        file_index, count = units.recovered_end()
        first = max(0, count - _SAMPLE)
        return units.units_in(queue.files.files[file_index], first, count - first)


def _delay_of(queue: Queue, log: Sequence[MappedFile]) -> int | None:
    """The delay that more than half of the newest units have, if it is one that can be configured."""
    newest = _newest(queue)
    if newest is None:
        return None
    delays = Counter[int]()
    for unit in newest:
        record = single_record_at(log, int(unit["physical_offset"]))
        if record is not None:
            delays[int(unit["tags_code"]) - record.number("store_timestamp")] += 1
    ((delay, times),) = delays.most_common(1) or [(0, 0)]
    return delay if delay > 0 and delay % _SECOND == 0 and 2 * times > delays.total() else None
