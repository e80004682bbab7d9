"""The units of one consume queue in RocksDB, read as those of a queue in files.

Where a queue has no row its unit is zeros, as in a file. Each read takes one seek, however many units it is of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from rmqtool.base.files import UNLIMITED, OpenFiles, ReadPolicy
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.rocksdb_rows import QUEUE_UNIT_DTYPE
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_units import LoadedQueue, QueueFile, Unit
from rmqtool.store.rocksdb_queues import NO_UNIT, QueueDatabase, Rows
from rmqtool.store.unit_files import UnitFiles

_STRETCH = 1 << 16  # units


class RocksDbUnits(UnitFiles):
    """Reads units by their number in the queue, which is their queue offset; each also has the store timestamp.

    `start` is the number of the first unit of a message at or after `log_min_offset`: a compaction takes away the
    rows before it. `data_end` is where the `max` row ends the queue; rows after it are not part of it.
    """

    def __init__(self, queue: Queue, database: QueueDatabase, open_files: OpenFiles, log_min_offset: int = 0) -> None:
        """`database` holds the rows of the queue."""
        super().__init__(queue, open_files)
        self.dtype = QUEUE_UNIT_DTYPE
        self.size = QUEUE_UNIT_DTYPE.itemsize
        self.last = database.last_of((queue.topic, queue.queue_id)) or NO_UNIT
        self.start = database.first_live((queue.topic, queue.queue_id), log_min_offset)
        self._database = database

    def rows(self, first: int, stop: int, most: int = MAX_OFFSET) -> Rows:
        """At most `most` rows of the units from `first` to before `stop`."""
        return self._database.units((self.queue.topic, self.queue.queue_id), first, stop, most)

    def read(self, first: int, count: int) -> bytes:
        """Units `first` to before ``first + count``; zeros where there is no row."""
        rows = self.rows(first, first + count)
        if len(rows.offsets) == count:
            return rows.values.tobytes()
        units = np.zeros(count, self.dtype)
        units[rows.offsets - first] = rows.values
        return units.tobytes()

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int, bool]]:
        """Units from `first` to before `stop` as ranges (begin, end, whether the first of them has a row)."""
        while first < stop:
            offsets = self.rows(first, stop, most=1).offsets
            begin = int(offsets[0]) if len(offsets) else stop
            if first < begin:
                yield first, begin, False
            first = min(begin + _STRETCH, stop)
            if begin < first:
                yield begin, first, True

    @cached_property
    def data_end(self) -> int:
        """Number after the last unit."""
        return self.last.queue_offset + 1

    def location_of(self, number: int) -> tuple[Path | None, int]:  # noqa: ARG002
        """The database, and no position: a unit has a key instead."""
        return self._database.path, 0


@contextmanager
def open_any_units(queue: Queue, reading: ReadPolicy = UNLIMITED) -> Iterator[UnitFiles]:
    """The units of a queue, wherever they are; files are closed in the end."""
    with closing(OpenFiles(reading)) as open_files:
        yield units_of(queue, open_files)


def units_of(queue: Queue, open_files: OpenFiles, log_min_offset: int = 0, *, live: bool = False) -> UnitFiles:
    """The units of a queue, wherever they are; with `live` a broker writes to the queue."""
    if queue.database:
        return RocksDbUnits(queue, queue.database, open_files, log_min_offset)
    return UnitFiles(queue, open_files, live=live)


_READ_ROWS = 800  # as many as a pull reads by default


class LoadedRows(LoadedQueue):
    """A queue in RocksDB with its range; a unit is only at the queue offset of its row, also that of a batch."""

    @property
    def files(self) -> list[QueueFile]:
        """None: it has rows."""
        return []

    @cached_property
    def _units(self) -> RocksDbUnits:
        if self.queue.database is None:
            raise ValueError("a queue in files")
        return RocksDbUnits(self.queue, self.queue.database, OpenFiles(UNLIMITED))

    def units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        """The units from `queue_offset` to before the first without a row; None where that is the first."""
        units = self._rows_from(max(0, queue_offset), self.range.max_offset, gaps=False)
        first = next(units, None)
        return None if first is None or first.queue_offset != queue_offset else chain([first], units)

    def find(self, physical_offset: int) -> Unit | None:
        """The unit that points at a physical offset; units are taken to ascend."""
        unit = next(self.units_behind(physical_offset - 1), None)
        return unit if unit is not None and unit.physical_offset == physical_offset else None

    def units_behind(self, physical_offset: int) -> Iterator[Unit]:
        """The units that point after a physical offset, to the end of the queue; they are taken to ascend."""
        end = self.range.max_offset
        first = bisect_left(range(end), True, key=lambda offset: self._is_behind(offset, physical_offset))
        yield from self._rows_from(first, end, gaps=True)

    def next_file(self, queue_offset: int) -> int:  # noqa: ARG002
        """The next offset of a pull that finds no unit (`RocksDBConsumeQueue#rollNextFile`)."""
        return 0

    def _is_behind(self, queue_offset: int, physical_offset: int) -> bool:
        values = self._units.rows(queue_offset, self.range.max_offset, most=1).values
        return not len(values) or int(values["physical_offset"][0]) > physical_offset

    def _rows_from(self, first: int, stop: int, *, gaps: bool) -> Iterator[Unit]:
        """The units from `first` to before `stop`, with `gaps` also those after the first that has no row."""
        path = self._units.location_of(first)[0]
        while first < stop and path:
            rows = self._units.rows(first, stop, most=_READ_ROWS)
            for offset, (physical_offset, size, tags_code, timestamp) in zip(
                rows.offsets.tolist(), rows.values.tolist(), strict=True
            ):
                if offset != first and not gaps:
                    return
                yield Unit(offset, physical_offset, size, tags_code, path, 0, store_timestamp=timestamp)
                first = offset + 1
            if len(rows.offsets) < _READ_ROWS:
                return
