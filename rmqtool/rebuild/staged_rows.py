"""A queue database written anew, and put in the place of the one that is there (`RocksDBConsumeQueueStore`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqtool.base.errors import UnreadableError, UnwritableError
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.rocksdb_rows import bound_key, bound_value, dispatched_row
from rmqtool.rebuild.row_diff import RowRules
from rmqtool.rebuild.rows import (
    ENDS,
    MAX_OFFSET,
    UNITS,
    StoredRows,
    encoded,
    name_prefix,
    rows_of,
)
from rmqtool.rebuild.sinks import Timestamps, Units
from rmqtool.store.consume_queues import Kind
from rmqtool.store.rocksdb import RocksDb, without_library
from rmqtool.store.rocksdb_queues import LastUnit, Rows
from rmqtool.transaction import Transaction

_TABLE_FORMAT = 5  # of the RocksDB 8.4 in brokers; the library's own default is unreadable for them
_BUFFER = 32 << 20  # bytes of rows that are held before they are written
_PIECE = 1 << 16  # rows that are carried over at once
_MARK = "CURRENT"
_OF_THE_LIBRARY = ("rocksdict-config.json", "LOG")


class DatabaseWriter:
    """Writes a new queue database into the empty `directory`; raises UnwritableError."""

    def __init__(self, directory: Path) -> None:
        """Raise UnsupportedError without the library."""
        self.directory = directory
        self._lasts: dict[QueueName, LastUnit] = {}
        self._dispatched_end = 0
        try:
            import rocksdict
        except ImportError as error:
            raise without_library(directory) from error
        self._library = rocksdict
        with self._reported():
            self._units = rocksdict.Rdict(str(directory), self._options())
            self._family = self._units.create_column_family(ENDS, self._options())
        self._unlogged = rocksdict.WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[assignment, method-assign]

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
        with self._reported():
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
        with self._reported():
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

    def finish(self, dispatched_end: int | None) -> None:
        """Complete the database; `dispatched_end` is the end of all units where it is None."""
        with self._reported():
            for name, last in self._lasts.items():
                self._family.put(
                    bound_key(encoded(name), name.queue_id), bound_value(last.physical_offset, last.queue_offset)
                )
            self._family.put(*dispatched_row(self._dispatched_end if dispatched_end is None else dispatched_end))
            self._units.flush(True)
            self._family.flush(True)
            self._family.close()
            self._units.close()
        for file in os.listdir(self.directory):
            if file.startswith(_OF_THE_LIBRARY):
                os.unlink(self.directory / file)

    def _options(self) -> Any:
        library = self._library
        tables, options = library.BlockBasedOptions(), library.Options(raw_mode=True)
        tables.set_format_version(_TABLE_FORMAT)
        options.set_block_based_table_factory(tables)
        options.set_compaction_style(library.DBCompactionStyle.universal())
        options.set_compression_type(library.DBCompressionType.lz4())
        options.set_write_buffer_size(_BUFFER)
        return options

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise UnwritableError(f"cannot write the queue database: {error}", file=self.directory) from error


def complete(
    writer: DatabaseWriter, stored: StoredRows, keeps: Callable[[QueueName], bool], *, is_all: bool, is_whole: bool
) -> None:
    """Add the queues that were not written and that stay as they are, and finish.

    Unless `is_all`, they were not asked for: raises UnreadableError where not all of them can be read. With `is_whole`
    all that the log gives was dispatched.
    """
    if not is_all:
        stored.require_whole()
    for name in stored.lasts:
        if name not in writer.names and keeps(name):
            writer.carry_over(name, stored)
    writer.finish(None if is_whole else stored.dispatched_end)


def stage_database(transaction: Transaction, source: Path, directory: str) -> list[str]:
    """Stage the files of the finished database at `source` for `directory`; their names in the store."""
    names = sorted(os.listdir(source))
    for name in names:
        check = _check if name == _MARK else None
        transaction.file(f"{directory}/{name}", check=check).copy(source / name)
        os.unlink(source / name)
    return [f"{directory}/{name}" for name in names]


def _check(path: Path) -> None:
    """Read a staged database back; raise UnwritableError."""
    try:
        with RocksDb(path.parent) as database:
            for family in (UNITS, ENDS):
                for _ in database.rows(family):
                    pass
    except UnreadableError as error:
        raise UnwritableError("what was written is not what is read back", file=path.parent) from error


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
