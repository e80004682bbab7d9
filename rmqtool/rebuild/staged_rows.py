"""A queue database written again, and put in the place of the one that is there (`RocksDBConsumeQueueStore`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.rocksdb_rows import bound_key, bound_value, dispatched_row
from rmqtool.rebuild.new_database import drop_traces, library_for, options_of, reported
from rmqtool.rebuild.row_diff import RowRules
from rmqtool.rebuild.rows import (
    ENDS,
    MAX_OFFSET,
    StoredRows,
    encoded,
    name_prefix,
    rows_of,
)
from rmqtool.rebuild.sinks import Timestamps, Units
from rmqtool.store.consume_queues import Kind
from rmqtool.store.rocksdb_queues import LastUnit, Rows

_PIECE = 1 << 16  # rows that are carried over at once


class DatabaseWriter:
    """Writes a new queue database into the empty `directory`; raises UnwritableError."""

    def __init__(self, directory: Path) -> None:
        """Raise UnsupportedError without the library."""
        self.directory = directory
        self._lasts: dict[QueueName, LastUnit] = {}
        self._dispatched_end = 0
        self._library = library_for(directory)
        with reported(directory):
            self._units = self._library.Rdict(str(directory), options_of(self._library, universal=True))
            self._family = self._units.create_column_family(ENDS, options_of(self._library, universal=True))
        self._unlogged = self._library.WriteOptions()
        self._unlogged.disable_wal = True

    def put(self, name: QueueName, rows: Rows) -> None:
        """Write rows of a queue; the last of them is the queue's last one."""
        for first in range(0, len(rows.offsets), _PIECE):
            piece = slice(first, first + _PIECE)
            self._put(name, Rows(rows.offsets[piece], rows.values[piece]))

    def _put(self, name: QueueName, rows: Rows) -> None:
        prefix, keys, values = name_prefix(name), rows.offsets.astype(">i8").tobytes(), rows.values.tobytes()
        size = rows.values.dtype.itemsize
        batch = self._library.WriteBatch(raw_mode=True)
        for row in range(len(rows.offsets)):
            batch.put(prefix + keys[8 * row : 8 * row + 8], values[size * row : size * row + size])
        with reported(self.directory):
            self._units.write(batch, self._unlogged)
        self._lasts[name] = LastUnit(int(rows.offsets[-1]), int(rows.values["physical_offset"][-1]))
        ends = rows.values["physical_offset"] + rows.values["message_size"]
        self._dispatched_end = max(self._dispatched_end, int(ends.max()))

    @property
    def names(self) -> Collection[QueueName]:
        """The queues that have rows."""
        return self._lasts.keys()

    def cut(self, name: QueueName, queue_offset: int) -> None:
        """Take rows of a queue from `queue_offset` on out again."""
        prefix = name_prefix(name)
        begin, end = (prefix + offset.to_bytes(8, "big") for offset in (queue_offset, MAX_OFFSET))
        with reported(self.directory):
            self._units.delete_range(begin, end, self._unlogged)

    def leave_out(self, name: QueueName) -> None:
        """Take a queue out again."""
        self.cut(name, 0)
        self._lasts.pop(name, None)

    def carry_over(self, name: QueueName, stored: StoredRows) -> None:
        """Copy the rows of a queue that the log does not give."""
        first, last, end = 0, stored.lasts[name], self._dispatched_end
        while first <= last.queue_offset:
            self.put(name, stored.rows(name, first, min(first + _PIECE, last.queue_offset + 1)))
            first += _PIECE
        self._lasts[name], self._dispatched_end = last, end

    def end(self, name: QueueName, last: LastUnit) -> None:
        """Have a queue end after a unit that has no row."""
        self._lasts[name] = last

    def finish(self, dispatched_end: int | None) -> None:
        """Complete the database; `dispatched_end` is the end of all units where it is None."""
        with reported(self.directory):
            for name, last in self._lasts.items():
                self._family.put(
                    bound_key(encoded(name), name.queue_id), bound_value(last.physical_offset, last.queue_offset)
                )
            self._family.put(*dispatched_row(self._dispatched_end if dispatched_end is None else dispatched_end))
            self._units.flush(True)
            self._family.flush(True)
            self._family.close()
            self._units.close()
        drop_traces(self.directory)


def complete(
    writer: DatabaseWriter,
    stored: StoredRows,
    keeps: Callable[[QueueName], bool],
    *,
    is_all: bool,
    is_whole: bool,
    ends: Iterable[tuple[QueueName, LastUnit]] = (),
) -> None:
    """Add the queues that were not written and that stay as they are, the `ends` of queues without rows, and finish.

    Unless `is_all`, they were not asked for: raises UnreadableError where not all of them can be read. With `is_whole`
    all that the log gives was dispatched.
    """
    if not is_all:
        stored.require_whole()
    for name in stored.lasts:
        if name not in writer.names and keeps(name):
            writer.carry_over(name, stored)
    for name, last in ends:
        writer.end(name, last)
    writer.finish(None if is_whole else stored.dispatched_end)


class RowSink:
    """Hands the units of one kind to a writer."""

    def __init__(
        self, writer: DatabaseWriter, kind: Kind, rules: RowRules, wanted: Collection[QueueName] | None
    ) -> None:
        """`wanted` are the queues to write, None for all."""
        self._writer = writer
        self._kind = kind
        self._rules = rules
        self._wanted = wanted

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Write units."""
        if self._takes(queue):
            self._writer.put(queue, rows_of(self._kind, unit_number, units, timestamps, self._rules.log_min_offset))

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Take units from `unit_number` on out again."""
        if self._takes(queue):
            self._writer.cut(queue, unit_number)

    def _takes(self, queue: QueueName) -> bool:
        return self._rules.takes(queue) and (self._wanted is None or queue in self._wanted)
