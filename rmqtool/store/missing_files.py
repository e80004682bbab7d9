"""Commit log files that a store lacks, by the offsets that its queues and its index lead to."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from rmqtool.formats.file_name import file_name
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE, LOG_FILE_SIZE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import COMMIT_LOG

MAX_NAMES = 20


def missing_files(snapshot: Snapshot, start: int, end: int) -> tuple[str, ...]:
    """The log files, with their sizes, that hold the bytes from `start` to before `end`; no more than MAX_NAMES.

    A file may be there though what it should hold is not: what it does hold may be all that is left of something else.
    """
    log = snapshot.log
    size = log.file_size or snapshot.store.conf.size(*LOG_FILE_SIZE) or DEFAULT_LOG_FILE_SIZE
    first = log.files[0].start_offset if log.files else 0
    starts = range(start - (start - first) % size, end, size)
    present = {file.start_offset for file in log.files if file.size}
    names = tuple(
        f"{COMMIT_LOG}/{file_name(each)} ({size} bytes{'; keep the present one as well' if each in present else ''})"
        for each in starts[:MAX_NAMES]
    )
    return (*names, f"and {len(starts) - MAX_NAMES} more") if len(starts) > MAX_NAMES else names


def known_end(snapshot: Snapshot, without: Set[Path] = frozenset()) -> int:
    """The physical offset after which no queue and no index file leads, but for those `without`; 0 where none does."""
    loaded = (snapshot.queue(queue.topic, queue.queue_id) for queue in snapshot.queues)
    of_queues = (queue.range.last_physical_offset or -1 for queue in loaded if queue)
    of_index = (file.end_physical_offset for file in snapshot.index_files if file.keys and file.path not in without)
    return max(max(of_queues, default=-1), max(of_index, default=-1)) + 1
