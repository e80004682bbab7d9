"""What a start does with consume queues in RocksDB (`RocksDBConsumeQueueStore#recover`).

Rows live in memory until a flush, and a kill takes those that were not flushed. A start makes them again from the log
file on that holds the end of what was dispatched; since 5.4.0 it looks at the last files only, and what lies between
gets no row ever again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.prediction import Mode, QueueChange, StartRefusal
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import ROWS_KEPT_PAST_LOG
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.consume_queues import queue_in
from rmqtool.store.queue_minimum import rows_min_offset
from rmqtool.store.queue_range import QueueRange, queue_range
from rmqtool.store.rocksdb_queues import NO_UNIT, LastUnit, QueueDatabase
from rmqtool.store.snapshot import Snapshot


@dataclass
class _NewRows:
    """The records of one queue after its last row: those that get none, and those that do, by queue offset.

    `last_offset` is the physical offset of the last one, `of_batches` are the queue offsets of rows that leave gaps.
    """

    lost: int = 0
    made: int = 0
    first: int = -1
    last: int = -1
    last_offset: int = -1
    of_batches: list[NDArray[np.int64]] = field(default_factory=list)


@dataclass(frozen=True)
class RocksDbRecovery:
    """Predicts what a start by some rules does with the queues of a database."""

    snapshot: Snapshot
    database: QueueDatabase
    rules: RecoveryRules

    @property
    def dispatched_end(self) -> int:
        """Physical offset after the last record that was dispatched."""
        return self.database.dispatched_end or 0

    def changes(
        self, files: Sequence[MappedFile], first_made: int, log_end: int, *, cut: int | None = None
    ) -> Iterator[QueueChange]:
        """The queues that a start changes which ends the log at `log_end`, and makes rows from `first_made` on.

        `cut` is where rows are cut, when that is not the end of the log.
        """
        new = self._new_rows(files, first_made, log_end)
        for name in sorted(new.keys() | {QueueName(*key) for key in self.database.lasts}):
            change = self._change(name, new.get(name, _NewRows()), log_end if cut is None else cut)
            if change.lost or change.dispatched or change.truncated:
                yield change

    def unchanged(self, name: QueueName) -> QueueChange:
        """A queue that a start leaves as it is."""
        return self._change(name, _NewRows(), MAX_OFFSET)

    def dispatched_from(self, mode: Mode, base: int) -> int:
        """Where the first record begins that gets its row; a clean start takes only those past the end."""
        if mode == "abnormal":
            return base
        return max(base, self.dispatched_end + 1) if self.rules.dispatches_when_clean else MAX_OFFSET

    def _new_rows(self, files: Sequence[MappedFile], first_made: int, log_end: int) -> dict[QueueName, _NewRows]:
        snapshot, found = self.snapshot, dict[QueueName, _NewRows]()
        dispatcher = Dispatcher(
            DispatchRules.of_snapshot(snapshot).for_release(self.rules.version), snapshot.topics.with_batch_queues
        )
        for event in scan_files(files, self.dispatched_end, log_end, snapshot.reading):
            if isinstance(event, RecordRun):
                for queue_number, units in dispatcher.dispatch(event).units.by_queue():
                    name = dispatcher.queues[queue_number]
                    self._add(found.setdefault(name, _NewRows()), name, units, first_made)
        return found

    def _add(self, rows: _NewRows, name: QueueName, units: QueueUnits, first_made: int) -> None:
        behind = units[units.queue_offsets > self.database.lasts.get(name, NO_UNIT).queue_offset]
        made = behind[behind.physical_offsets >= first_made]
        rows.lost += len(behind) - len(made)
        if len(made):
            rows.first = int(made.queue_offsets[0]) if rows.first < 0 else rows.first
            rows.last, rows.last_offset = int(made.queue_offsets[-1]), int(made.physical_offsets[-1])
            rows.made += len(made)
            if name.topic in (self.snapshot.topics.with_batch_queues or ()):
                rows.of_batches.append(made.queue_offsets.copy())

    def _change(self, name: QueueName, new: _NewRows, log_end: int) -> QueueChange:
        before = QueueRange(0, 0)
        if name in self.database.lasts:
            queue = queue_in(self.database, *name)
            before = queue_range(queue, self.snapshot.log_min_offset, self.rules.version)
        end = live_end = before.max_offset
        if (before.last_physical_offset or 0) >= log_end:
            live_end = self.database.first_live(name, log_end)
            end = self._cut_end(name, before, log_end)
        return QueueChange(
            "simple",
            *name,
            before.min_offset,
            before.max_offset,
            self._min_offset(name, new) if new.made else before.min_offset,
            max(end, new.last + 1),
            before.max_offset - min(live_end, end),
            new.made,
            new.lost,
            in_rocksdb=True,
        )

    def refusal(self, log_end: int) -> StartRefusal | None:
        """What a broker that cuts the log fails at before 5.3.2: a queue all of whose rows are past the end."""
        if self.rules.version >= ROWS_KEPT_PAST_LOG or log_end >= self.dispatched_end:
            return None
        topics = self.snapshot.topics.by_name
        for name, last in sorted(self.database.lasts.items()):
            topic, queue_id = name
            is_known = topic in topics and queue_id < topics[topic].write_queues
            if is_known and last.physical_offset >= log_end and self._lowest(QueueName(*name)) > log_end:
                why = "all its rows lead past the end of the log (RocksDBException: correctMaxCqOffset error)"
                return StartRefusal("queue-end", f"{topic} {queue_id}: {why}", None, topic, queue_id)
        return None

    def _lowest(self, name: QueueName) -> int:
        """The physical offset of a queue's first unit as a broker takes it, which trusts the `min` row."""
        stored = self.database.first_of(name)
        if stored is not None and stored.physical_offset >= self.snapshot.log_min_offset:
            return stored.physical_offset
        before = queue_range(queue_in(self.database, *name), self.snapshot.log_min_offset, self.rules.version)
        known = self.database.physical_offset(name, before.min_offset)
        return MAX_OFFSET if known is None else known

    def _cut_end(self, name: QueueName, before: QueueRange, log_end: int) -> int:
        """Where a queue ends whose last rows lead past the end of the log (`RocksDBConsumeQueueOffsetTable`).

        Rows stay, only the `max` row is changed: to the last row that is found by halves before the log's end, or to
        the first one where none is found. It stays where the first row is past the end, too (`#correctMaxCqOffset`).
        """
        if self._lowest(name) > log_end:
            return before.max_offset
        low, high, found = before.min_offset, before.max_offset - 1, before.min_offset
        while low <= high:
            middle = (low + high) // 2
            physical_offset = self.database.physical_offset(name, middle)
            if physical_offset == log_end:
                break
            if physical_offset is None or physical_offset < log_end:
                low = middle + 1
                found = middle if physical_offset is not None else found
            else:
                high = middle - 1
        return found + 1

    def _min_offset(self, name: QueueName, new: _NewRows) -> int:
        """The minimum of a queue that has got `new` rows."""
        of_batches = np.concatenate(new.of_batches) if new.of_batches else None

        def physical_offset_at(queue_offset: int) -> int | None:
            stored = self.database.physical_offset(name, queue_offset)
            is_made = new.first <= queue_offset <= new.last and (of_batches is None or queue_offset in of_batches)
            return new.last_offset if stored is None and is_made else stored

        last = LastUnit(new.last, new.last_offset)
        return rows_min_offset(self.database.first_of(name), last, self.snapshot.log_min_offset, physical_offset_at)
