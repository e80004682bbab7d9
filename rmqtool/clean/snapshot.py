"""What a store shows that retention depends on: files with their modification times, disks, queues, index, signs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import RateLimit, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.broker.disks import disk_of
from rmqtool.broker.log_deletion import LogFile, stat_log_file
from rmqtool.broker.queue_deletion import QueueAfterRun, first_state
from rmqtool.broker.trigger import Disks
from rmqtool.rules.versions import SEVERAL_LOG_PATHS, Version
from rmqtool.scan.record_at import record_at
from rmqtool.store.commit_log import LogRange, log_range
from rmqtool.store.index_files import IndexFile
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONSUME_QUEUE, Store

T = TypeVar("T")

_MOST_LOOKS = 5
_BETWEEN_LOOKS_S = 0.2


@dataclass(frozen=True)
class Facts:
    """What the cleaner of a broker goes by: a snapshot of the store, and times and sizes of its files and disks."""

    snapshot: Snapshot
    log_range: LogRange
    log_files: Sequence[LogFile]
    first_timestamps: Sequence[int | None]  # store timestamp of each file's first message, epoch ms
    disks: Disks
    states: Sequence[QueueAfterRun]

    @property
    def log_bytes(self) -> int:
        """What the commit log takes of its disks, bytes."""
        return sum(log_file.allocated for log_file in self.log_files)

    @cached_property
    def by_queue(self) -> dict[tuple[str, int], QueueAfterRun]:
        """The queues by topic and number."""
        return {(state.queue.topic, state.queue.queue_id): state for state in self.states}


def retry_on_deletion(look: Callable[[], T], attempts: int = _MOST_LOOKS) -> T:
    """What `look` returns, which starts anew when a broker has deleted a file that it was about to read."""
    try:
        return look()
    except UnreadableError as error:
        if attempts == 1 or not isinstance(error.__cause__, FileNotFoundError):
            raise
    time.sleep(_BETWEEN_LOOKS_S)
    return retry_on_deletion(look, attempts - 1)


def take_snapshot(
    store: Store, version: Version | None = None, used_ratio: float | None = None, limit: RateLimit | None = None
) -> Facts:
    """Look at a store; `used_ratio` (a fraction) replaces what would be measured of every disk."""
    snapshot = Snapshot(store, version, limit)
    log, release, reading = snapshot.log, snapshot.release, snapshot.reading
    states = [first_state(queue, snapshot.log_min_offset, release) for queue in snapshot.queues]
    log_files = [found for found in map(stat_log_file, log.files) if found]
    ends = [state.range.last_physical_offset for state in states if state.range.last_physical_offset is not None]
    disks = [disk_of(path, release, used_ratio) for path in _measured_paths(store, release)]
    queue_disk = disk_of(store.root / CONSUME_QUEUE, release, used_ratio)
    return Facts(
        snapshot=snapshot,
        log_range=log_range(log.files, max(ends, default=None), reading),
        log_files=log_files,
        first_timestamps=[_first_timestamp(found.file, reading) for found in log_files],
        disks=Disks(disks, queue_disk, _major_size(log, states, snapshot.index_files)),
        states=states,
    )


def _measured_paths(store: Store, version: Version) -> Sequence[Path]:
    """The paths whose disks count: those that are written to; before 4.9.2 several are one that does not exist."""
    text = store.conf.text("storePathCommitLog")
    if text is None:
        return store.commit_log_directories
    if version < SEVERAL_LOG_PATHS:
        return [store.root / text]
    return [path for path in store.commit_log_directories if path in {store.root / part for part in text.split(",")}]


def _first_timestamp(file: MappedFile, reading: ReadPolicy) -> int | None:
    """Store timestamp of the message that a file begins with; every file begins with one."""
    if reading.rate_limit:
        reading.rate_limit.spend(os.sysconf("SC_PAGESIZE"))
    found = record_at([file], file.start_offset)
    return int(found.headers.field("store_timestamp")[0]) if found is not None else None


def _major_size(log: MappedFiles, states: Sequence[QueueAfterRun], index_files: Sequence[IndexFile]) -> int:
    """Commit log, queues and index together, bytes (`DefaultMessageStore#getMajorFileSize`)."""
    return log.size + sum(state.queue.files.size for state in states) + sum(file.size for file in index_files)
