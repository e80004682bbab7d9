"""Which of the saved messages the new store gets, where not all of them are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from rmqtool.base.errors import ChangedError
from rmqtool.base.files import UNLIMITED, InputFile, Progress, ReadPolicy, no_progress
from rmqtool.broker.dispatched_units import QueueName, group
from rmqtool.broker.queue_numbers import QueueNumbers, TopicNumbers
from rmqtool.formats.message import INNER_BATCH, TRANSACTION_PREPARED
from rmqtool.formats.properties import TIMER_DUE
from rmqtool.rules.system_topics import HALF_TOPIC, OP_TOPIC, REVIVE_PREFIX, ROCKSDB_HALF_TOPIC, TIMER_TOPIC
from rmqtool.salvage.carve import Extents, Sources
from rmqtool.salvage.layout import MOST_LISTED
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.salvage.write_log import Placement, Taken, write_moved
from rmqtool.scan.block import BLOCK_SIZE, Block, chain
from rmqtool.scan.columns import PROPERTY_COLUMN, record_batches
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun, sound_prefix

QueueOffsets = Literal["keep", "new"]


@dataclass(frozen=True)
class Selection:
    """The filters, and whether the messages keep their queue offsets or are counted again."""

    filters: Filters
    queue_offsets: QueueOffsets

    @cached_property
    def effective_filters(self) -> Filters:
        """The filters, without what offsets that change make wrong: records of POP name queue offsets of others."""
        if self.queue_offsets == "keep":
            return self.filters
        excluded = (*self.filters.excluded_topics, f"{REVIVE_PREFIX}*")
        return replace(self.filters, excluded_topics=excluded)


class Piece(NamedTuple):
    """Records one after the other, no more than a block: the number of their extent, and a position in its file."""

    extent: int
    position: int
    size: int


@dataclass
class Chosen:
    """What is chosen of a log: messages, bytes, store times, and the pieces of the sources that have any of it.

    The new log is as long as their `placement`.
    """

    placement: Placement
    messages: int = 0
    size: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    pieces: list[Piece] = field(default_factory=list)

    def add(self, piece: Piece, frames: RecordRun) -> None:
        """Count chosen records of a piece."""
        times = frames.headers.field("store_timestamp")
        self.placement.place(frames.message_sizes)
        self.messages += len(frames)
        self.size += frames.record_bytes
        self.first_timestamp = int(times[0]) if self.first_timestamp is None else self.first_timestamp
        self.last_timestamp = int(times[-1])
        self.pieces.append(piece)


def _chosen_in(
    copies: Extents, piece: Piece, selection: Selection, sources: Sources
) -> Iterator[tuple[Piece, RecordRun]]:
    filters = selection.effective_filters
    for part, run in runs_of(copies, piece, sources):
        low, high = np.searchsorted(run.physical_offsets, (filters.start, filters.stop))
        frames = filters.select(run[int(low) : int(high)]) if high > low else None
        if frames is not None:
            yield part, frames


def runs_of(copies: Extents, piece: Piece, sources: Sources) -> Iterator[tuple[Piece, RecordRun]]:
    """The records of a piece, in parts of a block; raises ChangedError where they are not there any more."""
    extent = copies[piece.extent]
    file, block = sources.file(int(extent["input"])), sources.block
    shift, header_size = int(extent["physical_offset"] - extent["position"]), int(extent["header_size"])
    position, end = piece.position, piece.position + piece.size
    while position < end:
        size = min(BLOCK_SIZE, end - position)
        frames = _frames(block, file, position, size, shift, header_size)
        if frames is None:  # a record that is larger than a block
            size = sources.record_size(extent, position + shift)
            is_there = 0 < size <= end - position
            frames = _frames(block, file, position, size, shift, header_size) if is_there else None
        if frames is None:
            raise ChangedError("the file has changed while it was read", file=file.path, offset=position)
        read = frames.size + header_size
        yield Piece(piece.extent, position, read), frames
        position += read


def _frames(block: Block, file: InputFile, position: int, size: int, shift: int, header_size: int) -> RecordRun | None:
    block.fill(file, position, size, position + shift)
    positions = chain(block, 0, header_size=header_size)
    frames = sound_prefix(block, positions) if len(positions) else None
    return frames or None


_KEPT = frozenset({HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC})
_ROWS_AT_ONCE = 1 << 16

Offsets = NDArray[np.int64]


class Renumbered(NamedTuple):
    """Messages of a queue whose offsets followed each other before, and do now."""

    queue: QueueName
    old_offset: int
    new_offset: int
    messages: int


class OffsetMap:
    """The map from old to new queue offsets, written to a file of comma-separated values row by row."""

    COLUMNS = ("topic", "queue_id", "old_queue_offset", "new_queue_offset", "messages")

    def __init__(self, path: Path) -> None:
        """Create the file; raises OSError."""
        self.listed: list[Renumbered] = []
        self.count = 0
        self._rows: list[tuple[QueueName, Offsets]] = []
        self._held = 0
        types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64())
        self._schema = pa.schema(list(zip(self.COLUMNS, types, strict=True)))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = pa_csv.CSVWriter(
            str(path), self._schema, write_options=pa_csv.WriteOptions(quoting_style="needed")
        )

    def add(self, queue: QueueName, rows: Offsets) -> None:
        """Add rows of one queue: old offset, new offset, messages; shape ``(n, 3)``."""
        self.listed += [Renumbered(queue, *row) for row in rows[: MOST_LISTED - len(self.listed)].tolist()]
        self.count += len(rows)
        self._rows.append((queue, rows))
        self._held += len(rows)
        if self._held >= _ROWS_AT_ONCE:
            self._write()

    def close(self) -> None:
        """Write what is held, and close the file."""
        self._write()
        self._file.close()

    def _write(self) -> None:
        if self._rows:
            counts = [len(rows) for _, rows in self._rows]
            queues = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            names = pa.array([queue.topic.encode("utf-8", "replace").decode() for queue, _ in self._rows])
            ids = np.array([queue.queue_id for queue, _ in self._rows], dtype=np.int32)[queues]
            offsets = np.concatenate([rows for _, rows in self._rows])
            columns = [names.take(pa.array(queues)), pa.array(ids), *(pa.array(column) for column in offsets.T)]
            self._file.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows, self._held = [], 0


@dataclass
class _Queue:
    """A queue that is counted again; of `committed` offsets it counts the messages in front of each."""

    committed: Offsets
    before: Offsets = field(init=False)
    next_offset: int = 0
    pending: tuple[int, int, int] | None = None  # the last row of its map, which may go on

    def __post_init__(self) -> None:
        self.before = np.zeros(len(self.committed) + 1, dtype=np.int64)

    def take(self, old: Offsets) -> Offsets:
        """Count messages; the rows of the map that are complete, shape ``(n, 3)``."""
        if len(self.committed):
            behind = np.searchsorted(self.committed, old, "right")
            self.before += np.bincount(behind, minlength=len(self.before))
        breaks = np.flatnonzero(np.diff(old) != 1) + 1
        firsts = np.concatenate([[0], breaks])
        counts = np.diff(np.append(firsts, len(old)))
        rows = np.stack([old[firsts], self.next_offset + firsts, counts], axis=1).astype(np.int64)
        if self.pending:
            first_old, first_new, count = self.pending
            if first_old + count == old[0]:
                rows[0] = (first_old, first_new, count + rows[0, 2])
            else:
                rows = np.concatenate([np.array([self.pending], np.int64), rows])
        self.pending = (int(rows[-1, 0]), int(rows[-1, 1]), int(rows[-1, 2]))
        self.next_offset += len(old)
        return rows[:-1]

    def moved(self, offset: int) -> int:
        """The messages in front of a committed offset."""
        return int(self.before[: int(np.searchsorted(self.committed, offset)) + 1].sum())


class Numbering:
    """Counts messages by queue, in the order of the log; `committed` are the offsets to be moved, by queue."""

    def __init__(self, committed: Mapping[QueueName, Sequence[int]], offset_map: OffsetMap) -> None:
        self.map = offset_map
        self._committed = committed
        self._topics = TopicNumbers()
        self._queues = QueueNumbers()
        self._counted: dict[QueueName, _Queue] = {}

    def __enter__(self) -> Numbering:
        return self

    def __exit__(self, *_: object) -> None:
        for name, queue in self._counted.items():
            if queue.pending:
                self.map.add(name, np.array([queue.pending], np.int64))
        self.map.close()

    def offsets(self, frames: RecordRun) -> Offsets:
        """The new queue offsets of the records of a run."""
        field_of = frames.headers.field
        topics = self._topics.of(frames)
        queues = self._queues.of(topics, field_of("queue_id"), self._topics.topics)
        offsets: Offsets = field_of("queue_offset").copy()
        kept = np.array([topic in _KEPT for topic in self._topics.topics])[topics]
        rows = np.flatnonzero(~kept & ((field_of("sys_flag") & (TRANSACTION_PREPARED | INNER_BATCH)) == 0))
        if not len(rows):
            return offsets
        order, bounds = group(queues[rows])
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            of_queue = rows[order[low:high]]
            name = self._queues.queues[int(queues[of_queue[0]])]
            queue = self._queue(name)
            first = queue.next_offset
            complete = queue.take(offsets[of_queue])
            offsets[of_queue] = np.arange(first, queue.next_offset)
            if len(complete):
                self.map.add(name, complete)
        return offsets

    def moved(self, name: QueueName, offset: int) -> int:
        """What a committed offset of a queue becomes; it stays in a queue that is not counted again."""
        queue = self._counted.get(name)
        return queue.moved(offset) if queue else offset

    def _queue(self, name: QueueName) -> _Queue:
        queue = self._counted.get(name)
        if queue is None:
            committed = np.array(sorted(set(self._committed.get(name, ()))), dtype=np.int64)
            queue = self._counted[name] = _Queue(committed)
        return queue


_TIMERS = Filters(topics=(TIMER_TOPIC,))
_DUE = f"{PROPERTY_COLUMN}{TIMER_DUE}"
_ROW_SIZE = 60  # units of queue and index for a message, bytes
_MAP_SIZE = 60  # a row of the map, bytes
_RESERVE = 1 << 20


@dataclass
class SelectedLog:
    """What was written: the map of queue offsets where they are counted again, and the first timer that still waits."""

    numbering: Numbering | None = None
    first_timer: int | None = None

    @property
    def renumbered(self) -> Sequence[Renumbered]:
        """The first rows of the map."""
        return self.numbering.map.listed if self.numbering else ()

    @property
    def map_rows(self) -> int:
        """All rows of the map."""
        return self.numbering.map.count if self.numbering else 0

    def moved(self, name: QueueName, offset: int) -> int:
        """What a committed offset becomes, however long the queue is."""
        return self.numbering.moved(name, offset) if self.numbering else offset


def find_chosen(
    plan: SalvagePlan, selection: Selection, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> Chosen:
    """Read the saved messages and count those that pass; `progress` gets the bytes that are done in all.

    Raises UnreadableError, ChangedError.
    """
    copies, file_size, done = plan.layout.copies, plan.layout.file_size, 0
    chosen = Chosen(Placement(_begin_of(plan), file_size))
    with Sources(plan.inputs.files, file_size, reading) as sources:
        for number in range(len(copies)):
            start, size = int(copies[number]["position"]), int(copies[number]["size"])
            for piece, frames in _chosen_in(copies, Piece(number, start, size), selection, sources):
                chosen.add(piece, frames)
                progress(done + piece.position + piece.size - start)
            done += size
            progress(done)
    return chosen


def _begin_of(plan: SalvagePlan) -> int:
    """Where the new log begins, bytes: with the first file after all that the sources have."""
    size = plan.layout.file_size
    last = max([file.start_offset for file in plan.layout.files], default=-size)
    named = (file.start_offset for file in plan.inputs.files if file.start_offset is not None)
    return (max([last, *named]) // size + 1) * size


def needed_bytes(chosen: Chosen, selection: Selection) -> int:
    """About how many bytes a store of chosen messages takes."""
    of_map = _MAP_SIZE if selection.queue_offsets == "new" else 0
    return chosen.size + chosen.messages * (_ROW_SIZE + of_map) + _RESERVE


def write_selected(
    plan: SalvagePlan,
    chosen: Chosen,
    selection: Selection,
    directory: Path,
    map_file: Path,
    committed: Mapping[QueueName, Sequence[int]],
    timers_read_until: int | None = None,
    reading: ReadPolicy = UNLIMITED,
    progress: Progress = no_progress,
) -> SelectedLog:
    """Write the log into `directory`, and the map into `map_file` where queue offsets are counted again.

    `committed` are the offsets that `SelectedLog.moved` can be asked for. Raises OSError, ChangedError.
    """
    written, start, size = SelectedLog(), chosen.placement.start, plan.layout.file_size

    def pieces(sources: Sources) -> Iterator[Taken]:
        placement, copies, done = Placement(start, size), plan.layout.copies, 0
        found = (found for piece in chosen.pieces for found in _chosen_in(copies, piece, selection, sources))
        for _, frames in found:
            offsets = written.numbering.offsets(frames) if written.numbering else None
            if timers_read_until is not None and written.first_timer is None:
                written.first_timer = _first_waiting(frames, offsets, timers_read_until)
            yield Taken(frames, placement.place(frames.message_sizes), offsets)
            done += frames.record_bytes
            progress(done)

    with ExitStack() as stack:
        if selection.queue_offsets == "new":
            written.numbering = stack.enter_context(Numbering(committed, OffsetMap(map_file)))
        write_moved(pieces(stack.enter_context(Sources(plan.inputs.files, size, reading))), directory, start, size)
    return written


def _first_waiting(frames: RecordRun, offsets: NDArray[np.int64] | None, read_until: int) -> int | None:
    """The queue offset of the first timer message that is due later than `read_until`, epoch ms."""
    timers = _TIMERS.select(frames)
    if timers is None:
        return None
    places = np.searchsorted(frames.positions, timers.positions)
    stored = timers.headers.field("queue_offset") if offsets is None else offsets[places]
    [batch] = record_batches(timers, (_DUE,))
    for offset, due in zip(stored.tolist(), batch.column(0).to_pylist(), strict=True):
        if due is not None and due.isdecimal() and int(due) > read_until:
            return int(offset)
    return None
