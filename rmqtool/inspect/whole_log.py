"""Statistics of a whole commit log, in parts and by several processes, which an overview alone does not load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.files import Progress, RateLimit, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.parallel import Job, WorkerPool
from rmqtool.inspect.log_statistics import LogStatistics, events_of
from rmqtool.scan.reader import scan_files
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import PART_SIZE, log_parts


def workers_for(size: int, jobs: int) -> WorkerPool[LogStatistics]:
    """As many processes as `size` bytes of a log call for, besides this one; start them before a progress bar."""
    return WorkerPool(min(jobs - 1, size // PART_SIZE))


def whole_log(
    snapshot: Snapshot,
    unread: list[RmqtoolError],
    progress: Progress,
    pool: WorkerPool[LogStatistics],
    least: int = PART_SIZE,
) -> LogStatistics:
    """The statistics, the same for any number of processes; files that cannot be read are added to `unread`.

    One process reads a log that grows meanwhile, and those of DLedger. Parts have at least about `least` bytes.
    """
    files, is_plain = snapshot.log.files, snapshot.store.layout != "dledger" and not snapshot.older_log.files
    parts = log_parts(files, snapshot.reading, least) if pool.workers and is_plain and not snapshot.holder else []
    if len(parts) > 1:
        try:
            return _by_parts(files, parts, snapshot.reading, progress, pool)
        except UnreadableError:
            pass  # one process finds out what can be read
    statistics = LogStatistics(live=snapshot.holder is not None)
    first = next((file.start_offset for file in (*snapshot.older_log.files, *files)), 0)
    for event in events_of(snapshot, unread):
        statistics.add(event)
        progress(event.physical_offset + event.size - first)
    return statistics


def _by_parts(
    files: Sequence[MappedFile],
    parts: Sequence[tuple[int, int]],
    reading: ReadPolicy,
    progress: Progress,
    pool: WorkerPool[LogStatistics],
) -> LogStatistics:
    if reading.rate_limit:
        slower = RateLimit(max(1, reading.rate_limit.bytes_per_second // (len(pool.workers) + 1)))
        reading = replace(reading, rate_limit=slower)
    make = partial(_Parts, files, parts, reading)
    pool.begin(make, range(len(parts)), make())
    done, results = 0, dict[int, LogStatistics]()
    for step in pool.steps():
        done += step.size
        progress(done)
        if step.result is not None:
            results[step.part] = step.result
    total = results[0]
    for part in range(1, len(parts)):
        total.merge(results[part])
    return total


class _Parts(Job[LogStatistics]):
    """The work of one process."""

    def __init__(self, files: Sequence[MappedFile], parts: Sequence[tuple[int, int]], reading: ReadPolicy) -> None:
        self._files, self._parts, self._reading = files, parts, reading

    def do(self, part: int) -> Iterator[tuple[int, LogStatistics | None]]:
        """Scan one part."""
        statistics = LogStatistics()
        for event in scan_files(self._files, *self._parts[part], self._reading):
            statistics.add(event)
            yield event.size, None
        yield 0, statistics
