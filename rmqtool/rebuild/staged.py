"""Files that are written into a transaction, only those that a plan names, each read back; or into another tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from rmqtool.base.errors import UnreadableError, UnwritableError
from rmqtool.base.files import Closing, InputFile
from rmqtool.base.times import file_time
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.index_file import file_size
from rmqtool.formats.rocksdb_rows import bound_key, bound_value, dispatched_row
from rmqtool.rebuild.existing import (
    ENDS,
    MAX_OFFSET,
    FileGrid,
    StoredRows,
    Timestamps,
    Units,
    encoded,
    name_prefix,
    rows_of,
)
from rmqtool.rebuild.options import queue_file_name
from rmqtool.rebuild.queue_diff import RowRules
from rmqtool.store.consume_queues import Kind
from rmqtool.store.index_files import Geometry
from rmqtool.store.rocksdb import RocksDb, without_library
from rmqtool.store.rocksdb_queues import LastUnit, Rows
from rmqtool.store.store import INDEX
from rmqtool.transaction.staging import Check, StagedFile, Staging
from rmqtool.transaction.system import SYSTEM
from rmqtool.transaction.transaction import Transaction

_PIECE = 4 << 20  # read back at once, bytes
_MAX_OPEN = 128  # files of a tree: a store may have 40,000 queues


@dataclass(slots=True)
class _Written:
    """The bytes ``start:end`` that were written to a staged file, and their CRC; None after a jump, or unasked."""

    start: int = 0
    end: int = 0
    crc: int | None = 0

    def add(self, data: bytes | memoryview, position: int) -> None:
        if self.end == 0:
            self.start = self.end = position
        if position != self.end:
            self.crc = None
        self.crc = None if self.crc is None else crc32(data, self.crc)
        self.end = max(self.end, position + len(data))

    def check(self, path: Path) -> None:
        """Compare with the bytes on the disk; raise UnwritableError."""
        if self.crc is None:
            return
        crc = 0
        with InputFile(path) as file:
            for position in range(self.start, self.end, _PIECE):
                crc = crc32(file.read(position, min(_PIECE, self.end - position)), crc)
            sound = crc == self.crc and file.next_data(self.end, file.size) == file.size
        if not sound:
            raise UnwritableError("the disk does not return the written bytes", file=path)


class Tree(Closing):
    """The files below the directory `root`, which are written as those that a transaction stages."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._staging = Staging(str(root), SYSTEM, _MAX_OPEN)

    def file(self, name: str, *, size: int, check: Check | None = None) -> StagedFile:
        """Begin a file of `size` zero bytes; it is written once, and nobody reads it back."""
        del check
        file = self._staging.add_file(name, None, None)
        file.set_size(size)
        return file

    def drop(self, file: StagedFile) -> None:
        """Take a file out again."""
        self._staging.drop(file)

    def close(self) -> None:
        """Close all files; each has the time that it was given."""
        self._staging.close()
        for file in self._staging.files.values():
            if file.mtime_ns is not None:
                SYSTEM.set_mtime(file.place, file.mtime_ns)
        self._staging.files.clear()


class StagedQueues:
    """Stages the queue files of one kind that are `wanted`, by queue, where in it they start, bytes; None for all."""

    def __init__(
        self,
        files: Transaction | Tree,
        kind: Kind,
        grid: FileGrid,
        wanted: Mapping[QueueName, frozenset[int]] | None = None,
    ) -> None:
        self._target = files
        self._kind = kind
        self._grid = grid
        self._wanted = wanted
        self._files: dict[QueueName, dict[int, tuple[StagedFile, _Written]]] = {}

    @property
    def names(self) -> list[str]:
        """The files that were staged."""
        return [file.name for of_queue in self._files.values() for file, _ in of_queue.values()]

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Stage units."""
        wanted = self._wanted.get(queue, ()) if self._wanted is not None else None
        if wanted is not None and not wanted:
            return
        data, size = units.view("u1").data, self._grid.unit_size
        for piece in self._grid.pieces(unit_number, len(units)):
            if wanted is None or piece.start in wanted:
                file, written = self._file(queue, piece.start)
                content = data[piece.low * size : piece.high * size]
                file.write(content, piece.position)
                written.add(content, piece.position)
                file.mtime_ns = file_time(int(timestamps[piece.high - 1]))

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Clear the staged units from `unit_number` on."""
        first, of_queue = self._grid.start_of(unit_number), self._files.get(queue, {})
        for start, (file, written) in [*of_queue.items()]:
            if start >= first:
                position = (unit_number - self._grid.first_unit(start)) * self._grid.unit_size if start == first else 0
                if not position and isinstance(self._target, Tree):
                    self._target.drop(file)
                    del of_queue[start]
                    continue
                file.set_size(position)
                file.set_size(self._grid.file_size)
                written.crc = None  # later bytes do not follow the written ones

    def _file(self, queue: QueueName, start: int) -> tuple[StagedFile, _Written]:
        of_queue = self._files.setdefault(queue, {})
        staged = of_queue.get(start)
        if staged is None:
            written = _Written(crc=None if isinstance(self._target, Tree) else 0)
            name = queue_file_name(queue, self._kind, start)
            file = self._target.file(name, size=self._grid.file_size, check=written.check)
            staged = of_queue[start] = (file, written)
        return staged


class StagedIndex:
    """Stages index files."""

    def __init__(self, files: Transaction | Tree, geometry: Geometry) -> None:
        self.names: list[str] = []
        self._target = files
        self._size = file_size(geometry.slots, geometry.units)
        self._file: StagedFile | None = None

    def begin(self, name: str) -> None:
        """Stage a file."""
        self.names.append(f"{INDEX}/{name}")
        self._file = self._target.file(self.names[-1], size=self._size)

    def put(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes."""
        if self._file:
            self._file.write(data, position)

    def finish(self, timestamp: int) -> None:
        """Complete a file."""
        if self._file:
            self._file.mtime_ns = file_time(timestamp)


DEFAULT = "default"
"""The column family that every database has."""

_TABLE_FORMAT = 5  # of the RocksDB 8.4 in brokers; the library's own default is unreadable for them
_BUFFER = 32 << 20  # bytes of rows that are held before they are written
_MARK = "CURRENT"
_OF_THE_LIBRARY = ("rocksdict-config.json", "LOG")


def library_for(directory: Path) -> Any:
    """The library that writes a database; raises UnsupportedError where it is not installed."""
    try:
        import rocksdict
    except ImportError as error:
        raise without_library(directory) from error
    return rocksdict


def options_of(library: Any, *, universal: bool = False) -> Any:
    """The options of a column family; `universal` compaction is that of consume queues."""
    tables, options = library.BlockBasedOptions(), library.Options(raw_mode=True)
    tables.set_format_version(_TABLE_FORMAT)
    options.set_block_based_table_factory(tables)
    if universal:
        options.set_compaction_style(library.DBCompactionStyle.universal())
        options.set_compression_type(library.DBCompressionType.lz4())
    options.set_write_buffer_size(_BUFFER)
    return options


@contextmanager
def reported(directory: Path) -> Iterator[None]:
    """Errors of the library as UnwritableError."""
    try:
        yield
    except Exception as error:
        raise UnwritableError(f"cannot write the database: {error}", file=directory) from error


def drop_traces(directory: Path) -> None:
    """Remove what the library, and no broker, leaves in a database."""
    for file in os.listdir(directory):
        if file.startswith(_OF_THE_LIBRARY):
            os.unlink(directory / file)


def write_database(directory: Path, families: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """Write a whole database into the empty `directory`: rows by column family; raises UnwritableError."""
    library = library_for(directory)
    with reported(directory):
        database = library.Rdict(str(directory), options_of(library))
        opened = {DEFAULT: database}
        for name in families:
            if name != DEFAULT:
                opened[name] = database.create_column_family(name, options_of(library))
        for name, rows in families.items():
            for key, value in rows.items():
                opened[name].put(key, value)
            opened[name].flush(True)
        for family in reversed(opened.values()):
            family.close()
    drop_traces(directory)


class RowChange(NamedTuple):
    """What changes in a column family: rows from a key on that go, and rows that are written then."""

    family: str
    start: bytes
    is_gone: Callable[[bytes, bytes], bool]
    rows: Mapping[bytes, bytes]


def change_rows(directory: Path, changes: Sequence[RowChange]) -> None:
    """Change rows of a database in place; raises UnwritableError."""
    library = library_for(directory)
    with reported(directory):
        families = library.Rdict.list_cf(str(directory), options_of(library))
        options = {name: options_of(library) for name in families}
        database = library.Rdict(str(directory), options_of(library), column_families=options)
        for change in changes:
            family = database.get_column_family(change.family)
            for key, value in family.items(from_key=change.start):
                if change.is_gone(key, value):
                    family.delete(key)
            for key, value in change.rows.items():
                family.put(key, value)
            family.flush(True)
            family.close()
        database.close()
    drop_traces(directory)


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
            for family in database.families:
                for _ in database.rows(family):
                    pass
    except UnreadableError as error:
        raise UnwritableError("the bytes read back differ from those written", file=path.parent) from error


_ROWS_AT_ONCE = 1 << 16  # rows that are carried over at once


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
        for first in range(0, len(rows.offsets), _ROWS_AT_ONCE):
            piece = slice(first, first + _ROWS_AT_ONCE)
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
            self.put(name, stored.rows(name, first, min(first + _ROWS_AT_ONCE, last.queue_offset + 1)))
            first += _ROWS_AT_ONCE
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
