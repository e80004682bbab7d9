"""What a start does with compacted queues (`CompactionStore#load`), and what it serves of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtool.base.mapped_files import MappedFiles
from rmqtool.base.paths import has_directory
from rmqtool.broker.prediction import StartRefusal
from rmqtool.findings.finding import counted
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, is_batch_written
from rmqtool.store.compaction import (
    CompactedQueue,
    compacted_queue,
    directory_of,
    file_sizes,
    is_compaction_on,
    list_compacted,
    stored_units,
)
from rmqtool.store.config_tables import is_compacted
from rmqtool.store.paths import COMPACTION_LOG
from rmqtool.store.store import Store
from rmqtool.store.unit_files import count_leading

_MISMATCH = "the files of the compacted log and of its queue do not have the same names"


@dataclass(frozen=True)
class Obstacle:
    """Why a start does not take a queue: it `refuses` then, or goes on without the queue. `path` is in its way."""

    problem: str
    why: str
    path: Path
    queue: CompactedQueue | None = None
    refuses: bool = True
    expected: int = 0  # size of the file, bytes


def obstacles(store: Store) -> Iterator[Obstacle]:
    """What stands in the way of each queue, whether or not its topic is compacted."""
    queues, strays = list_compacted(store)
    for path in strays:
        yield Obstacle("queue-id", "the name is not a queue id (NumberFormatException)", path)
    sizes = file_sizes(store, queues)
    for queue in queues:
        if obstacle := obstacle_of(queue, sizes):
            yield obstacle


def obstacle_of(queue: CompactedQueue, sizes: tuple[int, int]) -> Obstacle | None:
    """The first thing that a start does not take of a queue; `sizes` are those of the files of log and units."""
    if not has_directory(queue.units_directory):
        why = "the directory is missing (compactionLog mismatch with compactionCq)"
        return Obstacle("no-queue", why, queue.units_directory, queue, refuses=False)
    for files, size in zip((queue.log, queue.units), sizes, strict=True):
        if obstacle := _in_directory(queue, files, size):
            return obstacle
    log, units = ({file.start_offset for file in files.files if file.size} for files in (queue.log, queue.units))
    if log != units and (end := _end_of_units(queue)) > 0:
        log = {
            start for start in log if start <= end
        }  # files after the last unit are deleted before names are compared
    if log != units:
        return Obstacle("names", _MISMATCH, queue.units_directory, queue)
    return None


def _end_of_units(queue: CompactedQueue) -> int:
    """Where the message of the last unit ends in the log, bytes; -1 without one (`getMaxPhyOffsetInLog`)."""
    files = [file for file in queue.units.files if file.size]
    units = stored_units(files[-1]) if files else np.zeros(0, BATCH_UNIT_DTYPE)
    count = count_leading(is_batch_written(units))
    return int(units["physical_offset"][count - 1] + units["message_size"][count - 1]) if count else -1


def _in_directory(queue: CompactedQueue, files: MappedFiles, size: int) -> Obstacle | None:
    """`MappedFileQueue#load`: the entries in the order of their names, without directories."""
    strays = [(stray.path, stray.path.stat().st_size) for stray in files.strays if stray.kind != "directory"]
    entries = sorted([*strays, *((file.path, file.size) for file in files.files)], key=lambda each: each[0].name)
    for index, (path, found) in enumerate(entries):
        if found == 0 and index == len(entries) - 1:
            return None  # which it deletes
        if size and found != size:
            why = f"{counted(found, 'byte')}, expected {size} (length not matched message store config value)"
            return Obstacle("size", why, path, queue, refuses=False, expected=size)
        if not (path.name.isascii() and path.name.isdecimal()):
            return Obstacle("name", "the name is not a start offset (NumberFormatException)", path, queue)
    return None


def compaction_refusal(store: Store) -> StartRefusal | None:
    """Why a broker with compaction does not start."""
    found = next((each for each in obstacles(store) if each.refuses), None) if is_compaction_on(store) else None
    if found is None:
        return None
    topic, queue_id = (found.queue.topic, found.queue.queue_id) if found.queue else (None, None)
    return StartRefusal("compaction", found.why, store.relative(found.path), topic, queue_id)


def served_queue(store: Store, topic: str, queue_id: int) -> CompactedQueue | None:
    """The compacted queue from which consumers of a topic are served, None where it is the plain one.

    Without a file where a start goes on without the queue, or has none.
    """
    if not is_compaction_on(store) or not is_compacted(store, topic):
        return None
    queue = compacted_queue(store, topic, queue_id)
    queues, _ = list_compacted(store)
    is_there = has_directory(directory_of(store.root, COMPACTION_LOG, topic, queue_id))
    if not is_there or obstacle_of(queue, file_sizes(store, queues)):
        return CompactedQueue(topic, queue_id, MappedFiles(), MappedFiles(), store.root)
    return queue
