"""Queue and index files that follow the commit log (`CleanConsumeQueueService`, `IndexService#deleteExpiredFile`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.formats import consume_queue
from rmqtool.formats.layout import integer_at
from rmqtool.rules.versions import Version
from rmqtool.store.consume_queues import Queue
from rmqtool.store.index_files import IndexFile
from rmqtool.store.queue_range import QueueRange, moved_range, queue_range


@dataclass(frozen=True)
class QueueAfterRun:
    """A queue after a run: the files that are left, and the range that the broker reports.

    `first_alive` is the first queue offset whose message the log still has; before 5.0.0 the minimum of a queue that
    has expired stays below it.
    """

    queue: Queue
    range: QueueRange
    first_alive: int


def first_state(queue: Queue, log_min_offset: int, version: Version) -> QueueAfterRun:
    """A queue as a start leaves it with its present files."""
    reported = queue_range(queue, log_min_offset, version)
    return QueueAfterRun(queue, reported, _first_alive(reported))


def follow(state: QueueAfterRun, log_min_offset: int, version: Version) -> tuple[list[MappedFile], QueueAfterRun]:
    """The queue files that are deleted when the log begins at `log_min_offset`, and the queue without them.

    The last file is always kept. Of the others the last unit decides; in a file that is not full it reads as offset 0
    (`MappedFileQueue#deleteExpiredFileByOffset`). Rows in RocksDB are not read any more when their messages are gone.
    """
    queue = state.queue
    if queue.database:
        reported = queue_range(queue, log_min_offset, version)
        return [], QueueAfterRun(queue, reported, max(_first_alive(reported), state.first_alive))
    gone = _expired(queue, log_min_offset)
    if not gone and not _may_move(state, log_min_offset):
        return gone, state
    left = replace(queue, files=MappedFiles(queue.files.files[len(gone) :]))
    reported = moved_range(left, state.range, log_min_offset, version)
    return gone, QueueAfterRun(left, reported, max(_first_alive(reported), state.first_alive))


def expired_index_files(files: Sequence[IndexFile], log_min_offset: int) -> list[IndexFile]:
    """The leading index files whose last message is gone; the last file stays."""
    gone = []
    for file in files[:-1]:
        if file.end_physical_offset >= log_min_offset:
            break
        gone.append(file)
    return gone


def newest_offset_in(queue: Queue, file: MappedFile) -> int:
    """The physical offset in the last unit of a file, written or not, by which the broker judges the file."""
    return _offset_at(file, queue.files.file_size - queue.unit_size)


def _expired(queue: Queue, log_min_offset: int) -> list[MappedFile]:
    gone = []
    for file in queue.files.files[:-1]:
        if newest_offset_in(queue, file) >= log_min_offset:
            break
        gone.append(file)
    return gone


def _offset_at(file: MappedFile, position: int) -> int:
    with InputFile(file.path) as opened:
        data = opened.read(position, consume_queue.UNIT_SIZE).ljust(consume_queue.UNIT_SIZE, b"\0")
    return integer_at(consume_queue.UNIT_DTYPE, "physical_offset", data)  # all units begin with it


def _may_move(state: QueueAfterRun, log_min_offset: int) -> bool:
    """Whether the first message that is alive may lie below the log's new minimum; without units nothing moves."""
    queue, alive = state.queue, state.first_alive
    if not queue.files.files or alive >= state.range.max_offset:
        return False
    if queue.kind == "batch":
        return True
    first = queue.files.files[0]
    position = alive * consume_queue.UNIT_SIZE - first.start_offset
    return not 0 <= position < first.size or _offset_at(first, position) < log_min_offset


def _first_alive(reported: QueueRange) -> int:
    return reported.max_offset if reported.expired else max(reported.min_offset, 0)
