"""Logs beside the commit log: of queues of a tier, and of compacted queues, with the messages that only they have.

Where the local queue begins, its messages come from the commit log: a tier is asked for those before
(`TieredMessageStore#fetchFromCurrentStore`), and so is what compactions have kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import notice
from rmqtool.base.files import OpenFiles, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.compaction import is_compaction_on, list_compacted
from rmqtool.store.consume_queues import Queue
from rmqtool.store.lock import lock_holder
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import OtherLog, Source
from rmqtool.store.store import NamedStore
from rmqtool.store.tiered import Tier, TieredQueue, Unreadable, is_tier_read, tier_of, units_at
from rmqtool.store.unit_files import units_of


class OwnRecords:
    """The records of another log that count, run by run, until it is closed."""

    def __init__(self, log: OtherLog, files: tuple[MappedFile, ...], reading: ReadPolicy) -> None:
        self._log, self._files = log, files
        self._open_files = OpenFiles(reading)
        self._units = units_of(Queue(log.topic, log.queue_id, "simple", MappedFiles(log.units)), self._open_files)

    def close(self) -> None:
        """Close the files of units."""
        self._open_files.close()

    def of(self, run: RecordRun) -> RecordRun | None:
        """Those of a run."""
        numbers = run.headers.field("queue_offset").astype(np.int64)
        is_own = (numbers >= self._log.first) & (numbers < self._log.stop)
        if self._log.units and is_own.any():
            is_own &= self._count(run, numbers)
        if is_own.all():
            return run
        return sound_prefix(run.block, run.positions[is_own]) if is_own.any() else None

    def _count(self, run: RecordRun, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which records no other copy counts for: that to which their unit leads."""
        leading = units_at(self._units, numbers)["physical_offset"].astype(np.int64)
        counts: NDArray[np.bool_] = leading == run.physical_offsets
        for row in np.flatnonzero(~counts).tolist():
            other = single_record_at(self._files, int(leading[row]))
            counts[row] = other is None or other.number("queue_offset") != numbers[row]
        return counts


def other_sources(named: NamedStore, filters: Filters, begins: Mapping[QueueName, int] | None = None) -> list[Source]:
    """The logs beside the commit log of a store that have messages which it has not, or no longer.

    None of what no message can pass, as physical offsets are those of the commit log, or before the queue offsets at
    which queues begin that are given. Of a tier that cannot be read a notice says why.
    """
    if filters.from_offset or filters.to_offset is not None:
        return []
    snapshot, sources = Snapshot(named.store), list[Source]()
    is_live = lock_holder(named.store.root) is not None
    for log, files in (*_tiered(snapshot), *_compacted(snapshot)):
        begin = (begins or {}).get((log.topic, log.queue_id), 0)
        is_wanted = log.topic in filters.topic_choice and (not filters.queue_ids or log.queue_id in filters.queue_ids)
        if max(log.first, begin) < log.stop and files and is_wanted:
            sources.append(_source(named, replace(log, first=max(log.first, begin)), files, is_live=is_live))
    return sources


QueueName = tuple[str, int]
"""Topic and queue id."""


def _source(named: NamedStore, log: OtherLog, files: tuple[MappedFile, ...], *, is_live: bool) -> Source:
    held = tuple(file.at(file.path.absolute()) for file in files)
    start, end = held[0].start_offset, held[-1].end_offset
    return Source(named.name, named.store.root.absolute(), held, held[-1], start, end, start, end, is_live, log)


def local_begin(snapshot: Snapshot, topic: str, queue_id: int) -> int:
    """Where the local queue begins; past all where it has nothing."""
    local = snapshot.queue(topic, queue_id)
    return local.range.held.start if local and local.range.held else MAX_OFFSET


def _tiered(snapshot: Snapshot) -> Iterator[tuple[OtherLog, tuple[MappedFile, ...]]]:
    tier = tier_of(snapshot.store)
    if isinstance(tier, Unreadable):
        notice(f"{snapshot.store.root}: tiered storage is not read: {tier.why}")
    if not isinstance(tier, Tier) or not is_tier_read(snapshot.store):
        return
    for queue in tier.queues:
        yield _of_tier(snapshot, queue)


def _of_tier(snapshot: Snapshot, queue: TieredQueue) -> tuple[OtherLog, tuple[MappedFile, ...]]:
    stop = local_begin(snapshot, queue.topic, queue.queue_id)
    log = OtherLog("tiered", queue.topic, queue.queue_id, queue.min_offset, stop, queue.units)
    return log, tuple(file for file in queue.log if file.size)


def _compacted(snapshot: Snapshot) -> Iterator[tuple[OtherLog, tuple[MappedFile, ...]]]:
    """One for each file: between the names of two files there may be a gap."""
    if not is_compaction_on(snapshot.store):
        return
    topics = snapshot.topics.by_name
    for queue in list_compacted(snapshot.store)[0]:
        topic = topics.get(queue.topic)
        stop = local_begin(snapshot, queue.topic, queue.queue_id)
        for file in queue.log.files if topic and topic.is_compacted else ():
            yield OtherLog("compacted", queue.topic, queue.queue_id, 0, stop), (file,)
