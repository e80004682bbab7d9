"""Consume queue units as rows of the queue database (`RocksDBConsumeQueueTable`), and the rows that are there.

A row stands at its queue offset, that of a batch at its first one. There is no filler, and nothing is kept of what lies
below the log: a broker never serves it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.base.files import list_directory
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.consume_queue import is_pre_blank
from rmqtool.formats.rocksdb_rows import QUEUE_UNIT_DTYPE, queue_prefix
from rmqtool.rebuild.existing import ExistingQueues
from rmqtool.rebuild.sinks import FileGrid, Timestamps, Units
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.rocksdb_queues import LastUnit, QueueDatabase, Rows

UNITS, ENDS = "default", "offset"  # the column families
MAX_OFFSET = (1 << 63) - 1
_NO_ROWS = Rows(np.empty(0, np.int64), np.empty(0, QUEUE_UNIT_DTYPE))


def rows_of(kind: Kind, unit_number: int, units: Units, timestamps: Timestamps, log_min_offset: int) -> Rows:
    """The rows of consecutive stored units, of which unit `unit_number` is the first."""
    stored = units.view(UNIT_FORMATS[kind].dtype)
    values = np.empty(len(stored), QUEUE_UNIT_DTYPE)
    for field in ("physical_offset", "message_size", "tags_code"):
        values[field] = stored[field]
    values["store_timestamp"] = timestamps
    kept = stored["physical_offset"] >= log_min_offset
    if kind == "batch":
        offsets = stored["base_queue_offset"].astype(np.int64)
    else:
        offsets = np.arange(unit_number, unit_number + len(stored), dtype=np.int64)
        kept &= ~is_pre_blank(stored)
    return Rows(offsets, values) if kept.all() else Rows(offsets[kept], values[kept])


def name_prefix(name: QueueName) -> bytes:
    """What the keys of a queue's units begin with."""
    return queue_prefix(encoded(name), name.queue_id)


def encoded(name: QueueName) -> bytes:
    """A queue's topic as Java writes it."""
    return name.topic.encode("utf-8", "replace")


class StoredRows:
    """The rows of the database that is at `path`, or may be; `problem` says why not all of them can be read.

    What cannot be read counts as missing.
    """

    def __init__(self, path: Path, database: QueueDatabase | None) -> None:
        """`database` is None where there is none that can be opened."""
        self.path = path
        self.problem: str | None = None
        self._database = database

    @cached_property
    def lasts(self) -> Mapping[QueueName, LastUnit]:
        """The last unit of each queue."""
        try:
            return {QueueName(*queue): last for queue, last in self._database.lasts.items()} if self._database else {}
        except DamagedDatabaseError as error:
            self._note(error)
            return {}

    def begins_behind(self, name: QueueName, queue_offset: int, log_min_offset: int) -> bool:
        """Whether the min row, as long as a broker trusts it, has a queue begin after a queue offset."""
        try:
            first = self._database.first_of(name) if self._database else None
        except DamagedDatabaseError as error:
            self._note(error)
            return False
        return first is not None and first.begins_behind(queue_offset, log_min_offset)

    @property
    def dispatched_end(self) -> int:
        """The physical offset after the last record that was dispatched; 0 where it is not known."""
        try:
            return (self._database.dispatched_end or 0) if self._database else 0
        except DamagedDatabaseError as error:
            self._note(error)
            return 0

    def rows(self, name: QueueName, first: int, end: int = MAX_OFFSET) -> Rows:
        """The rows of a queue from queue offset `first` to before `end`."""
        try:
            return self._database.units(name, first, end) if self._database else _NO_ROWS
        except DamagedDatabaseError as error:
            self._note(error)
            return _NO_ROWS

    def foreign(self, derived: Collection[QueueName]) -> int:
        """How many rows are neither a unit nor an end of a queue; each queue counts as one that only has rows.

        It has no end, and is none of those that are `derived` from the log. Bad rows between units are known once
        these were read.
        """
        if self._database is None:
            return 0
        try:
            bad = {row.key for row in self._database.bad_rows()} | self._database.bad_units
            endless = {QueueName(*queue) for queue in self._database.with_rows()} - self.lasts.keys()
        except DamagedDatabaseError as error:
            self._note(error)
            return 0
        return len(bad) + len(endless.difference(derived))

    def require_whole(self) -> None:
        """Raise UnreadableError unless every row can be read."""
        if self._database:
            for family in (UNITS, ENDS):
                deque(self._database.rows.rows(family), 0)

    def files(self) -> list[tuple[str, int]]:
        """Its files, each with its size, bytes; directories of file queues beside them are none."""
        entries = list_directory(self.path)
        return [(entry.name, entry.stat().st_size) for entry in entries if entry.is_file(follow_symlinks=False)]

    def close(self) -> None:
        """Close it; it is opened again when it is asked."""
        if self._database:
            self._database.close()

    def _note(self, error: DamagedDatabaseError) -> None:
        self.problem = self.problem or error.message


@dataclass(frozen=True)
class ExistingRows(ExistingQueues):
    """The queues of a store that has them in RocksDB and no files of them: none has a unit below the log."""

    rows: StoredRows

    def unit_at(self, name: QueueName, unit_number: int) -> Any:
        """The value of the row at a queue offset, None without one."""
        found = self.rows.rows(name, unit_number, unit_number + 1).values
        return found[0] if len(found) else None


def grid_of(kind: Kind) -> FileGrid:
    """A grid on which no filler stands before the first unit, for each has a place of its own."""
    size = UNIT_FORMATS[kind].dtype.itemsize
    return FileGrid(size, size)
