"""Units of one consume queue in RocksDB by queue offset, as a broker sees them (`RocksDBConsumeQueue#iterateFrom`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import chain

from rmqtool.base.files import UNLIMITED
from rmqtool.base.open_files import OpenFiles
from rmqtool.store.queue_units import LoadedQueue, QueueFile, Unit
from rmqtool.store.rocksdb_units import RocksDbUnits

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
