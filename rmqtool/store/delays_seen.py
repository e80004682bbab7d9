"""Delay levels of a store: as broker.conf sets them, else as its own delay queues show them.

Levels are not stored. Of a delayed message the tags code of its unit is the time of its delivery: less the store
timestamp of its record, that is the delay of the queue's level (`CommitLog#checkMessageAndReturnSize`). Where
`messageDelayLevel` was changed, units from before have another delay, and a broker keeps to it.
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
from rmqtool.rules.broker_conf import DelayLevels, delay_levels_of
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.consume_queues import Queue, queue_in
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.store import CONSUME_QUEUE, Store
from rmqtool.store.unit_files import UnitFiles, open_units

_QUEUE_ID = re.compile(r"\d{1,3}", re.ASCII)
_SAMPLE = 16  # units of each queue, the newest
_SECOND = 1000  # ms: the smallest delay
_LONGEST = 3650 * 24 * 3600 * _SECOND  # ms: nobody waits longer for a message
_NEIGHBOURS = 8  # units on each side of one that are asked for their delay


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


def _delay_of(queue: Queue, log: Sequence[MappedFile]) -> int | None:
    """The delay of the newest units: that of more than half of them, or to which the setting was changed last.

    It is one that can be configured.
    """
    delays = []
    with open_units(queue) as units:
        newest = units.newest(_SAMPLE)
    for unit in newest:
        record = single_record_at(log, int(unit["physical_offset"]))
        if record is not None and record.number("queue_id") == queue.queue_id:  # not of a queue in its place
            delays.append(int(unit["tags_code"]) - record.number("store_timestamp"))
    last, counts = delays[-1:], Counter(delays)
    if last and delays[-2:] == 2 * last and _can_be_set(last[0]):
        return last[0]
    ((delay, times),) = counts.most_common(1) or [(0, 0)]
    return delay if _can_be_set(delay) and 2 * times > counts.total() else None


def _can_be_set(delay: int) -> bool:
    return 0 < delay <= _LONGEST and delay % _SECOND == 0


class SeenDelays:
    """Judges delivery times in a delay level's queue by the delays of the units around them."""

    def __init__(self, units: UnitFiles, levels: DelayLevels, log: Sequence[MappedFile]) -> None:
        """`levels` are those of the broker, `log` are the files of the commit log."""
        self._units = units
        self._log = log
        self._configured = levels.delays[min(units.queue.queue_id + 1, levels.highest) - 1]

    def are_sound(self, first: int, stored: NDArray[np.void], timestamps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the delivery times of consecutive units from number `first` on are such that a broker has set them.

        `timestamps` are those of their records, epoch ms. The delay is one that can be configured, and that of the
        level or of a unit nearby; or the unit is the first or the last, next to which the setting was changed.
        """
        delays = stored["tags_code"].astype(np.int64) - timestamps
        found: NDArray[np.bool_] = (delays > 0) & (delays <= _LONGEST) & (delays % _SECOND == 0)
        is_single = found & (delays != self._configured)
        is_same = found[1:] & (delays[1:] == delays[:-1])
        is_single[1:] &= ~is_same
        is_single[:-1] &= ~is_same
        for row in np.flatnonzero(is_single).tolist():
            found[row] = self._fits(first + row, int(delays[row]))
        return found

    def _fits(self, number: int, delay: int) -> bool:
        sides = range(number - 1, number - 1 - _NEIGHBOURS, -1), range(number + 1, number + 1 + _NEIGHBOURS)
        before, after = ([seen for near in side if (seen := self._delay_at(near)) is not None] for side in sides)
        return not before or not after or delay in (*before, *after)

    def _delay_at(self, number: int) -> int | None:
        """The delay of the unit with a number; None where no unit leads to a record."""
        if not self._units.start <= number < self._units.data_end:
            return None
        unit = self._units.units(number, 1)
        record = None
        if self._units.is_written(unit).all():
            with skip_unreadable():
                record = single_record_at(self._log, int(unit["physical_offset"][0]))
        return None if record is None else int(unit["tags_code"][0]) - record.number("store_timestamp")
