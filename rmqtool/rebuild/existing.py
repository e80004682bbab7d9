"""The queues that are there: their files, and the units in them that a rebuild keeps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats import consume_queue
from rmqtool.rebuild.sinks import FileGrid, Units
from rmqtool.rebuild.stored_units import Prefix, pre_blank_units
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind, UnitFormat
from rmqtool.store.unit_files import UnitFiles, count_leading

_MS = 1_000_000  # ns


@dataclass(frozen=True)
class ExistingQueues:
    """The queues of one kind that are there, by name; a file whose size does not fit the grid counts as none."""

    kind: Kind
    grid: FileGrid
    log_min_offset: int  # the commit log's minimum, bytes; -1 without a file
    queues: Mapping[QueueName, UnitFiles]

    @property
    def format(self) -> UnitFormat:
        """How units of this kind are stored."""
        return UNIT_FORMATS[self.kind]

    def file(self, name: QueueName, start: int) -> MappedFile | None:
        """The file of a queue that starts at a byte; None without one."""
        units = self.queues.get(name)
        files = units.files if units else ()
        number = bisect_left(files, start, key=lambda file: file.start_offset)
        found = files[number] if number < len(files) else None
        return found if found and found.start_offset == start and found.size == self.grid.file_size else None

    def unit_at(self, name: QueueName, number: int) -> np.void | None:
        """The written unit with a number; None where there is none."""
        start = self.grid.start_of(number)
        file = self.file(name, start)
        if file is None:
            return None
        units = self.queues[name].units_in(file, number - self.grid.first_unit(start), 1)
        unit: np.void | None = units[0] if self.format.is_written(units).any() else None
        return unit

    def units_before_log(self, name: QueueName, number: int, timestamp: int) -> Iterator[Prefix]:
        """What stands before the first unit of the log in a plain queue: units that point below the log stay."""
        first = self.grid.first_unit(self._first_kept_start(name, number))
        for piece in self.grid.pieces(first, number - first):
            file = self.file(name, piece.start)
            count = piece.high - piece.low
            units = pre_blank_units(count)
            if file is not None:
                self._keep(self.queues[name].units_in(file, piece.position // self.grid.unit_size, count), units)
            times = np.full(count, _time_of(file) if file and piece.high < number - first else timestamp)
            yield Prefix(first + piece.low, units, times)

    def _first_kept_start(self, name: QueueName, number: int) -> int:
        """Start of the first file: of those that lead up to `number` without a gap the oldest one."""
        start = self.grid.start_of(number)
        while start > 0 and self.file(name, start - self.grid.file_size):
            start -= self.grid.file_size
        return start

    def _keep(self, stored: NDArray[np.void], units: Units) -> None:
        """Put those of the `stored` units that point below the log into the place of filler."""
        kept = consume_queue.is_written(stored) & (stored["physical_offset"] < self.log_min_offset)
        kept &= ~consume_queue.is_pre_blank(stored)
        units[kept] = stored.view(units.dtype)[kept]

    def batch_units_before_log(self, name: QueueName) -> Prefix | None:
        """What stands before the first unit of the log in a batch queue: the units that point below the log."""
        found = self.queues.get(name)
        files = [file for file in found.files if file.size == self.grid.file_size] if found else []
        if not found or not files or self.log_min_offset <= 0:
            return None  # of a log that is there from its beginning the queue is, too
        first = self.grid.first_unit(files[0].start_offset)
        kept: list[NDArray[np.void]] = []
        for file in files:
            units = found.units_in(file, 0, found.room_of(file))
            below = self.format.is_written(units) & (units["physical_offset"] < self.log_min_offset)
            count = count_leading(below)
            kept.append(units[:count])
            if count < len(units):
                break
        # Raw bytes: what `concatenate` makes of numbers is in the machine's byte order.
        every = np.concatenate([units.view(f"V{self.grid.unit_size}") for units in kept])
        stored = every.view(self.format.dtype)
        return Prefix(first, every, stored["store_timestamp"].astype(np.int64))


def _time_of(file: MappedFile) -> int:
    return file.path.stat().st_mtime_ns // _MS
