"""What is deleted beside the log: segments of a tier at its next hour, and messages by the next compaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.numbers import Count, Long
from rmqtool.base.times import Moment
from rmqtool.clean.plan import CleanPlan
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.versions import Version
from rmqtool.store.compaction import (
    CompactedQueue,
    LogRecords,
    compaction_positions,
    is_compaction_on,
    list_compacted,
    read_records,
)
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import NEVER, QUEUE_KINDS, Row, SegmentKind, Tier, TieredQueue, tier_of

_DELETES = "tieredStoreDeleteFileEnable"
_EMPTY_ONES_GO = Version(5, 3, 0)  # FlatAppendFile#destroyExpiredFile; before TieredFlatFile#cleanExpiredFile
_ENTRY_BYTES = 24  # of a key in CompactionLog.OffsetMap
_MAP_BYTES, _THREADS = 100 << 20, 6  # maxOffsetMapSize, compactionThreadNum


@dataclass(frozen=True)
class TierExpiry:
    """What the tier deletes of one queue at its next hour, by the ends of its segments."""

    topic: str  # Topic.
    queue_id: Long  # Queue number.
    segments: Count  # Segments that are deleted, of log and units.
    bytes: Count  # Their sizes.
    min_offset: Long  # The tier's minimum of the queue now.
    min_offset_after: Long  # Its minimum after that hour.
    messages_deleted: Count  # Messages to be deleted that the local queue does not have, or no longer has.
    next_expires: Moment  # When the next segment that stays expires; null without one.


# one-file: the last file is never compacted. nothing-new: no message since the last compaction. too-many-keys: the map
# of keys is too small, and nothing is compacted.
Skipped = Literal["one-file", "nothing-new", "too-many-keys"]


@dataclass(frozen=True)
class NextCompaction:
    """What the next compaction leaves of one queue; it never reads the last file."""

    topic: str  # Topic.
    queue_id: Long  # Queue number.
    messages: Count  # Messages of the compacted log, those of the last file included.
    superseded: Count  # Those removed because there is a newer one with their key.
    without_body: Count  # Those removed because they delete their key.
    dropped: Count  # Those lost after a damaged record, which ends its file.
    skipped: Skipped | None  # Why the queue is skipped; null if it is compacted.


@dataclass(frozen=True)
class OtherLogs:
    """What goes beside the log, by queue."""

    tier: list[TierExpiry]
    compactions: list[NextCompaction]


def other_logs_of(plan: CleanPlan) -> OtherLogs:
    """What goes at the time of a plan: of queues from which something goes, and of all compacted ones."""
    snapshot = plan.snapshot
    tier = tier_of(snapshot.store)
    expiries = [*_expiries(snapshot, tier, plan.now)] if isinstance(tier, Tier) else []
    return OtherLogs(expiries, [*_compactions(snapshot)])


def _expiries(snapshot: Snapshot, tier: Tier, now: int) -> Iterator[TierExpiry]:
    if not snapshot.store.conf.is_on(_DELETES, default=True):
        return
    for queue in tier.queues:
        yield from _expiry(snapshot, tier, queue, now - tier.reserved_ms(queue.topic), now)


def _expiry(snapshot: Snapshot, tier: Tier, queue: TieredQueue, expires_before: int, now: int) -> Iterator[TierExpiry]:
    """From the front, each flat file by itself."""
    is_of_empty_ones = snapshot.release >= _EMPTY_ONES_GO
    left, gone = dict[SegmentKind, list[Row]](), list[Row]()
    for kind in QUEUE_KINDS:
        rows = [row for _, row in sorted(tier.rows(queue, kind).items())]
        count = 0
        while count < len(rows) and _is_over(rows[count], expires_before, empty=is_of_empty_ones):
            count += 1
        gone, left[kind] = [*gone, *rows[:count]], rows[count:]
    ends = [row.end_timestamp for rows in left.values() for row in rows[:1] if row.end_timestamp != NEVER]
    expires = min(ends) + (now - expires_before) if ends else None
    if gone:
        after = _min_offset(queue, left)
        local = snapshot.queue(queue.topic, queue.queue_id)
        begin = local.range.held.start if local and local.range.held else queue.max_offset
        only_there = max(0, min(after, begin) - queue.min_offset)
        yield TierExpiry(queue.topic, queue.queue_id, len(gone), sum(row.size for row in gone), queue.min_offset, after,
                         only_there, expires)  # fmt: skip
    elif expires is not None:
        yield TierExpiry(queue.topic, queue.queue_id, 0, 0, queue.min_offset, queue.min_offset, 0, expires)


def _is_over(row: Row, expires_before: int, *, empty: bool) -> bool:
    return empty if row.end_timestamp == NEVER else row.end_timestamp < expires_before


def _min_offset(queue: TieredQueue, left: Mapping[SegmentKind, list[Row]]) -> int:
    """The tier's minimum with the segments that are left."""
    units = left["CONSUME_QUEUE"][0].base // UNIT_SIZE if left["CONSUME_QUEUE"] else queue.max_offset
    record = queue.first_offset_from(left["COMMIT_LOG"][0].base) if left["COMMIT_LOG"] else queue.max_offset
    return max(queue.min_offset, units, min(record, queue.max_offset))


def _compactions(snapshot: Snapshot) -> Iterator[NextCompaction]:
    if not is_compaction_on(snapshot.store):
        return
    positions, topics = compaction_positions(snapshot.store), snapshot.topics.by_name
    for queue in list_compacted(snapshot.store)[0]:
        topic = topics.get(queue.topic)
        if topic is not None and topic.is_compacted:
            yield _next_compaction(snapshot, queue, positions.get((queue.topic, queue.queue_id), -1))


def _next_compaction(snapshot: Snapshot, queue: CompactedQueue, position: int) -> NextCompaction:
    """`CompactionLog#doCompaction`: the newest of each key of files that are new, and all files against these."""
    files = [read_records(queue, file, snapshot.reading) for file in queue.log.files]
    messages = sum(len(each.units) for each in files)
    read = [_Read.of(each) for each in files[:-1]]
    skipped: Skipped | None = None
    newest = _newest(read, position)
    if not read:
        skipped = "one-file"
    elif not newest:
        skipped = "nothing-new"
    elif len(newest) > _most_keys(snapshot):
        skipped = "too-many-keys"
    if skipped:
        return NextCompaction(queue.topic, queue.queue_id, messages, 0, 0, 0, skipped)
    last, superseded, without_body = max(newest.values()), 0, 0
    for each in read:
        is_older = each.offsets <= last
        older = is_older & (each.offsets < np.array([newest.get(key, -1) for key in each.keys], np.int64))
        superseded += int(np.count_nonzero(older))
        without_body += int(np.count_nonzero(is_older & ~older & (each.body_sizes == 0)))
    dropped = sum(each.dropped for each in read)
    return NextCompaction(queue.topic, queue.queue_id, messages, superseded, without_body, dropped, None)


@dataclass(frozen=True)
class _Read:
    """The records of a file that a compaction reads, before the first that cannot be decoded."""

    offsets: NDArray[np.int64]
    keys: list[str | None]
    body_sizes: NDArray[np.int64]
    dropped: int

    @classmethod
    def of(cls, records: LogRecords) -> _Read:
        places = records.units["physical_offset"].astype(np.int64)
        ends = [damage.physical_offset for damage in records.damages]
        ends += places[records.wrong & records.compressed].tolist()
        stop = int(np.searchsorted(places, min(ends))) if ends else len(places)
        offsets = records.units["base_queue_offset"].astype(np.int64)[:stop]
        keys = pc.fill_null(records.keys, "") if len(records.keys) else pa.array([], pa.string())
        return cls(offsets, keys[:stop].to_pylist(), records.body_sizes[:stop], len(places) - stop)


def _newest(files: list[_Read], position: int) -> dict[str | None, int]:
    """The newest queue offset of each key, of messages after the position of the last compaction."""
    newest: dict[str | None, int] = {}
    for each in files:
        for key, offset in zip(each.keys, each.offsets.tolist(), strict=True):
            if offset > position:
                newest[key] = max(offset, newest.get(key, -1))
    return newest


def _most_keys(snapshot: Snapshot) -> int:
    """How many keys the map holds (`OffsetMap`)."""
    conf = snapshot.store.conf
    size, threads = conf.size("maxOffsetMapSize") or _MAP_BYTES, conf.size("compactionThreadNum") or _THREADS
    return size // threads // _ENTRY_BYTES
