"""Queue offsets that are counted again from 0, and what becomes of offsets that somebody has committed.

Kept as they are: those of batches, which properties repeat, of light queues, and of half and op messages, which name
each other by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName, group
from rmqtool.broker.queue_numbers import QueueNumbers, TopicNumbers
from rmqtool.formats.sys_flag import INNER_BATCH, TRANSACTION_PREPARED
from rmqtool.rules.system_topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC
from rmqtool.scan.frames import RecordRun

MAX_LISTED = 1000
"""Rows of the map that are listed one by one; all are in its file."""

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
        self.listed += [Renumbered(queue, *row) for row in rows[: MAX_LISTED - len(self.listed)].tolist()]
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
