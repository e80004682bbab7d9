"""Databases of RocksDB, written again: queues without rows that go, and committed offsets that are lowered."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.files import list_directory
from rmqtool.base.new_files import copy_file
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_rows import config_entry, config_offset_row
from rmqtool.rebuild.existing import StoredRows
from rmqtool.rebuild.staged import DatabaseWriter, RowChange, change_rows, stage_database, write_database
from rmqtool.repair.change import Change
from rmqtool.store.config_tables import CONSUMER_OFFSET, DEFAULT_FAMILY, SECOND, TABLES
from rmqtool.store.config_text import entries_of, value_of, with_values
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.rocksdb_queues import LastUnit, QueueDatabase
from rmqtool.store.store import CONFIG
from rmqtool.transaction.transaction import Transaction

_LOCK = "LOCK"
_ROWS_AT_ONCE = 1 << 16

GroupQueue = tuple[str, str, int]
"""Group, topic and queue."""


@dataclass(frozen=True, kw_only=True)
class _NewDatabase(Change):
    """A database that is written again."""

    directory: Path

    @property
    def size(self) -> int:
        """About what it takes, bytes."""
        return sum(entry.stat().st_size for entry in list_directory(self.directory) if entry.is_file())

    def _put(self, transaction: Transaction, name: str, staged: Collection[str]) -> None:
        """Put its directory; only its files where queues have files in directories beside them."""
        there = list_directory(self.directory)
        if not any(entry.is_dir() for entry in there):
            transaction.put(name)
            return
        for entry in there:
            if entry.is_file() and f"{name}/{entry.name}" not in staged:
                transaction.remove(f"{name}/{entry.name}")
        for each in staged:
            transaction.put(each)


@dataclass(frozen=True, kw_only=True)
class NewRows(_NewDatabase):
    """The database of the queues without the rows of `stops` and after; `end` is that of the log."""

    database: QueueDatabase
    stops: Mapping[QueueName, int]
    end: int

    def stage(self, transaction: Transaction) -> None:
        """Write it, and put its files in place of those that are there."""
        stored = StoredRows(self.directory, self.database)
        stored.require_whole()
        with transaction.scratch() as scratch:
            writer = DatabaseWriter(scratch)
            for name, last in stored.lasts.items():
                self._write(writer, stored, name, last)
            writer.finish(min(stored.dispatched_end, self.end))
            names = stage_database(transaction, scratch, self.directory.name)
        self._put(transaction, self.directory.name, names)

    def _write(self, writer: DatabaseWriter, stored: StoredRows, name: QueueName, last: LastUnit) -> None:
        """Write what is left of a queue; one without messages is left out."""
        stop = self.stops.get(name, last.queue_offset + 1)
        first = self.database.first_live((name.topic, name.queue_id), 0)
        while first < stop:
            rows = stored.rows(name, first, min(first + _ROWS_AT_ONCE, stop))
            if len(rows.offsets):
                writer.put(name, rows)
            first += _ROWS_AT_ONCE
        if name not in self.stops:
            writer.end(name, last)


@dataclass(frozen=True, kw_only=True)
class NewSideRows(_NewDatabase):
    """A database of timers, half messages and the like with changed rows."""

    rows: tuple[RowChange, ...]

    def stage(self, transaction: Transaction) -> None:
        """Write its files with these changes, and put them in place of those that are there."""
        name = self.directory.name
        with transaction.scratch() as scratch:
            for entry in list_directory(self.directory):
                if entry.is_file() and entry.name != _LOCK:
                    copy_file(self.directory / entry.name, scratch / entry.name)
            change_rows(scratch, self.rows)
            (scratch / _LOCK).unlink(missing_ok=True)  # the store keeps its own
            names = stage_database(transaction, scratch, name)
        for entry in list_directory(self.directory):
            if entry.is_file() and entry.name != _LOCK and f"{name}/{entry.name}" not in names:
                transaction.remove(f"{name}/{entry.name}")
        for each in names:
            transaction.put(each)


def row_stops(database: QueueDatabase, offset: int) -> dict[QueueName, int]:
    """The queues with rows of messages at an offset or after it, and the queue offset of the first of these."""
    stops = {}
    for name, last in database.lasts.items():
        stop = database.first_live(name, offset)
        if stop <= last.queue_offset:
            stops[QueueName(*name)] = stop
    return stops


@dataclass(frozen=True, kw_only=True)
class NewOffsets(_NewDatabase):
    """A database of `config/` with committed offsets that are lowered."""

    offsets: Mapping[GroupQueue, int]

    def stage(self, transaction: Transaction) -> None:
        """Write it, and put its directory."""
        name = f"{CONFIG}/{self.directory.name}"
        with RocksDb(self.directory) as database:
            families = {family: dict(self._rows(database, family)) for family in database.families}
        with transaction.scratch() as scratch:
            write_database(scratch, families)
            staged = stage_database(transaction, scratch, name)
        self._put(transaction, name, staged)

    def _rows(self, database: RocksDb, family: str) -> Iterator[tuple[bytes, bytes]]:
        own = TABLES[CONSUMER_OFFSET].families(self.directory.name)[0]
        for key, value in database.rows(family):
            if self.directory.name == SECOND and family == DEFAULT_FAMILY:
                yield from self._second(key, value)
            elif family == own:
                yield key, self._first(key, value)
            else:
                yield key, value

    def _first(self, key: bytes, value: bytes) -> bytes:
        """The JSON of a topic and a group."""
        topic, _, group = key.decode("utf-8", "surrogateescape").partition("@")
        text, lower = value.decode("utf-8", "surrogateescape"), []
        for member in entries_of(text, TABLES[CONSUMER_OFFSET].name):
            wanted = self.offsets.get((group, topic, int(member.name))) if member.name.isdecimal() else None
            if wanted is not None and value_of(text, member) > wanted:
                lower.append((member, wanted if wanted >= 0 else None))
        return with_values(text, lower).encode("utf-8", "surrogateescape")

    def _second(self, key: bytes, value: bytes) -> Iterator[tuple[bytes, bytes]]:
        """A row of version 2, if it stays."""
        with suppress(FormatError):
            row = config_entry(key, value)
            if row.kind == "committed-offset":
                queue = row.key["group"], row.key["topic"], row.key["queue_id"]
                wanted = self.offsets.get(queue)
                if wanted is not None and row.fields["offset"] > wanted:
                    key, value = config_offset_row(*queue, wanted)
                    if wanted < 0:
                        return
        yield key, value
