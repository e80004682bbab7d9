"""The snapshot that the cleaner's decisions depend on: files with their modification times, disks, queues, index."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.files import RateLimit, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.broker.disks import disk_of
from rmqtool.broker.log_deletion import LogFile, stat_log_file
from rmqtool.broker.queue_deletion import QueueAfterRun, first_state
from rmqtool.broker.trigger import Disks
from rmqtool.rules.versions import SEVERAL_LOG_PATHS, Version
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.commit_log import LogRange, log_range
from rmqtool.store.index_files import IndexFile
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONSUME_QUEUE, Store


@dataclass(frozen=True)
class Facts:
    """The facts that a broker's cleaner decides by: the store, and times and sizes of its files and disks."""

    snapshot: Snapshot
    log_range: LogRange
    log_files: Sequence[LogFile]
    first_timestamps: Sequence[int | None]  # store timestamp of each file's first message, epoch ms
    disks: Disks
    states: Sequence[QueueAfterRun]

    @property
    def log_bytes(self) -> int:
        """Bytes that the commit log occupies on its disks."""
        return sum(log_file.allocated for log_file in self.log_files)


def take_snapshot(
    store: Store, version: Version | None = None, used_ratio: float | None = None, limit: RateLimit | None = None
) -> Facts:
    """The facts about a store now; `used_ratio` (a fraction) replaces the measured ratio of all disks."""
    snapshot = Snapshot(store, version, limit)
    log, release, reading = snapshot.log, snapshot.release, snapshot.reading
    states = [first_state(queue, snapshot.log_min_offset, release) for queue in snapshot.queues]
    log_files = [log_file for log_file in map(stat_log_file, log.files) if log_file]
    ends = [state.range.last_physical_offset for state in states if state.range.last_physical_offset is not None]
    measured = _measured_paths(store, release, has_plain_files=bool(snapshot.older_log.files))
    disks = [disk_of(path, release, used_ratio) for path in measured]
    queue_disk = disk_of(store.root / CONSUME_QUEUE, release, used_ratio)
    return Facts(
        snapshot=snapshot,
        log_range=log_range(log.files, max(ends, default=None), reading),
        log_files=log_files,
        first_timestamps=[_first_timestamp(log_file.file, reading) for log_file in log_files],
        disks=Disks(disks, queue_disk, _major_size(log, states, snapshot.index_files)),
        states=states,
    )


def _measured_paths(store: Store, version: Version, *, has_plain_files: bool) -> Sequence[Path]:
    """The paths whose disks count: those that are written to; before 4.9.2 several are one that does not exist."""
    text = store.conf.text("storePathCommitLog")
    if store.dledger_directory:
        return store.older_log_directories if has_plain_files else store.commit_log_directories
    if text is None:
        return store.commit_log_directories
    if version < SEVERAL_LOG_PATHS:
        return [store.root / text]
    return [path for path in store.commit_log_directories if path in {store.root / path for path in text.split(",")}]


def _first_timestamp(file: MappedFile, reading: ReadPolicy) -> int | None:
    """Store timestamp of a file's first message, with which each file begins."""
    if reading.rate_limit:
        reading.rate_limit.spend(os.sysconf("SC_PAGESIZE"))
    record = single_record_at([file], file.start_offset + file.header_size)
    return record.number("store_timestamp") if record is not None else None


def _major_size(log: MappedFiles, states: Sequence[QueueAfterRun], index_files: Sequence[IndexFile]) -> int:
    """Commit log, queues and index together, bytes (`DefaultMessageStore#getMajorFileSize`)."""
    return log.size + sum(state.queue.files.size for state in states) + sum(file.size for file in index_files)
