"""The minimum and maximum offset of a queue as a broker reports them, from its files or rows as they stand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rmqtool.rules.versions import Version
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_minimum import SimpleQueue, batch_min_offset, end_of_batch, rows_min_offset
from rmqtool.store.rocksdb_queues import NO_UNIT, QueueDatabase, QueueKey
from rmqtool.store.unit_files import UnitFiles, open_units


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What a broker reports for a queue: offsets (the maximum exclusive), and the physical offset in its last unit.

    `expired` is set when all units point below the commit log: the minimum then depends on the release.
    """

    min_offset: int
    max_offset: int
    last_physical_offset: int | None = None
    expired: bool = False


def queue_range(
    queue: Queue, log_min_offset: int, version: Version, min_offset: int = 0, opened: UnitFiles | None = None
) -> QueueRange:
    """The range of a queue as it stands; `log_min_offset` is the commit log's minimum, -1 without a file.

    `min_offset` is the queue's minimum so far, which stays when no unit is found; a broker that starts begins with 0.
    `opened` are its units, where they are read for something else, too.
    """
    if queue.database:
        return _rocksdb_range(queue.database, (queue.topic, queue.queue_id), log_min_offset)
    files = queue.files.files
    if not files:
        return QueueRange(0 if queue.kind == "simple" else -1, 0)
    with open_units(queue, opened=opened) as units:
        return _range_in_files(units, min_offset, log_min_offset, version)


def _range_in_files(units: UnitFiles, min_offset: int, log_min_offset: int, version: Version) -> QueueRange:
    """The same of the units of a queue that has files."""
    files = units.files
    file_index, count = units.recovered_end()
    in_first = count if file_index == 0 else units.room_of(files[0])  # files before the last one count as full
    if units.queue.kind == "batch":
        return _batch_range(units, in_first, file_index, count, log_min_offset)
    last = int(units.offsets_in(files[file_index], count)[count - 1]) if count else None
    max_offset = files[file_index].start_offset // units.size + count
    known = QueueRange(min_offset, max_offset, last)
    return _simple_range(units, in_first, known, log_min_offset, version)


def moved_range(queue: Queue, known: QueueRange, log_min_offset: int, version: Version) -> QueueRange:
    """The range of a queue that was `known` before its first files were deleted, or before the log began later."""
    files = queue.files.files
    written = 0
    if queue.kind == "simple" and files and known.last_physical_offset is not None:
        units_left = known.max_offset - files[0].start_offset // queue.unit_size
        written = min(files[0].size // queue.unit_size, units_left)
    if written <= 0:
        return queue_range(queue, log_min_offset, version, known.min_offset)
    with open_units(queue) as units:
        return _simple_range(units, written, known, log_min_offset, version)


def _rocksdb_range(database: QueueDatabase, key: QueueKey, log_min_offset: int) -> QueueRange:
    """The range of a queue in RocksDB, which ends where its `max` row says."""
    known = database.last_of(key)
    last = known or NO_UNIT
    physical_offset_at = partial(database.physical_offset, key)
    first = rows_min_offset(database.first_of(key), known, log_min_offset, physical_offset_at)
    is_expired = 0 <= last.queue_offset < first
    return QueueRange(
        first, last.queue_offset + 1, last.physical_offset if last.queue_offset >= 0 else None, is_expired
    )


def _simple_range(
    units: UnitFiles, in_first: int, known: QueueRange, log_min_offset: int, version: Version
) -> QueueRange:
    """`known` with its minimum moved; the queue's first file holds `in_first` units."""
    last, size, first = known.last_physical_offset, units.size, units.files[0]
    offsets = units.offsets_in(first, in_first)
    queue = SimpleQueue(first.start_offset, offsets, known.max_offset * size, last, known.min_offset * size)
    min_offset, is_expired = queue.min_offset(log_min_offset, version), queue.is_expired(log_min_offset)
    if (min_offset, is_expired) == (known.min_offset, known.expired):
        return known
    return QueueRange(min_offset, known.max_offset, last, is_expired)


def _batch_range(units: UnitFiles, in_first: int, file_index: int, count: int, log_min_offset: int) -> QueueRange:
    """The range of a batch queue whose last file, at `file_index`, holds `count` units."""
    files = units.files
    offsets = units.offsets_in(files[0], in_first)
    min_offset = batch_min_offset(offsets, partial(units.unit_in, files[0]), log_min_offset)
    if count == 0 and file_index > 0:  # BatchConsumeQueue#reviseMaxOffsetInQueue
        file_index, count = file_index - 1, units.room_of(files[file_index - 1])
    if count == 0:
        return QueueRange(min_offset, 0)
    last = units.unit_in(files[file_index], count - 1)
    return QueueRange(min_offset, end_of_batch(last), int(last["physical_offset"]))
