"""The store's queues: their files, and the units in them that a rebuild keeps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats import consume_queue
from rmqtool.rebuild.sinks import FileGrid, Piece
from rmqtool.rebuild.stored_units import Prefix, pre_blank_units
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind, UnitFormat
from rmqtool.store.unit_files import UnitFiles, count_leading

_MS = 1_000_000  # ns


@dataclass(frozen=True)
class ExistingQueues:
    """The queues of one kind in the store, by name; files whose size does not fit the grid are ignored."""

    kind: Kind
    grid: FileGrid
    log_min_offset: int  # the commit log's minimum, bytes; -1 without a file
    queues: Mapping[QueueName, UnitFiles]

    @property
    def format(self) -> UnitFormat:
        """How units of this kind are stored."""
        return UNIT_FORMATS[self.kind]

    def file(self, name: QueueName, start: int) -> MappedFile | None:
        """The file of a queue with a start offset, None without one."""
        units = self.queues.get(name)
        files = units.files if units else ()
        index = bisect_left(files, start, key=lambda file: file.start_offset)
        file = files[index] if index < len(files) else None
        return file if file and file.start_offset == start and file.size == self.grid.file_size else None

    def unit_at(self, name: QueueName, unit_number: int) -> np.void | None:
        """The unit with a number, None where none is written."""
        start = self.grid.start_of(unit_number)
        file = self.file(name, start)
        if file is None:
            return None
        units = self.queues[name].units_in(file, unit_number - self.grid.first_unit(start), 1)
        unit: np.void | None = units[0] if self.format.is_written(units).any() else None
        return unit

    def units_before_log(
        self, name: QueueName, unit_number: int, timestamp: int, *, all_files: bool
    ) -> Iterator[Prefix]:
        """The units before the first one of the log in a simple queue: those that point below the log, behind filler.

        Filler stands at the beginning of a queue alone: of the units before a gap none is kept, nor are their files.
        Without `all_files` they are those of its own file.
        """
        start = self._first_kept_start(name, unit_number) if all_files else self.grid.start_of(unit_number)
        first = self.grid.first_unit(start)
        pieces = [*self.grid.pieces(first, unit_number - first)]
        has_gap = (len(self._kept(name, piece)) < piece.high - piece.low for piece in reversed(pieces))
        behind = next((count for count, found in enumerate(has_gap, 1) if found), len(pieces))
        for piece in pieces[len(pieces) - behind :]:
            file, kept, count = self.file(name, piece.start), self._kept(name, piece), piece.high - piece.low
            units = pre_blank_units(count)
            units[count - len(kept) :] = kept.view(units.dtype)
            times = np.full(count, _time_of(file) if file and piece.high < unit_number - first else timestamp)
            yield Prefix(first + piece.low, units, times)

    def _first_kept_start(self, name: QueueName, unit_number: int) -> int:
        """Start of the oldest file from which files lead up to `unit_number` without a gap."""
        start = self.grid.start_of(unit_number)
        while start > 0 and self.file(name, start - self.grid.file_size):
            start -= self.grid.file_size
        return start

    def _kept(self, name: QueueName, piece: Piece) -> NDArray[np.void]:
        """The last units of a piece that point below the log, one after the other."""
        file = self.file(name, piece.start)
        if file is None:
            return np.empty(0, consume_queue.UNIT_DTYPE)
        stored = self.queues[name].units_in(file, piece.position // self.grid.unit_size, piece.high - piece.low)
        others = ~consume_queue.is_written(stored) | (stored["physical_offset"] >= self.log_min_offset)
        others |= consume_queue.is_pre_blank(stored)
        return stored[np.flatnonzero(others)[-1] + 1 :] if others.any() else stored

    def batch_units_before_log(self, name: QueueName) -> Prefix | None:
        """The units before the first one of the log in a batch queue: those that point below the log."""
        queue = self.queues.get(name)
        files = [file for file in queue.files if file.size == self.grid.file_size] if queue else []
        if not queue or not files or self.log_min_offset <= 0:
            return None  # with a log from offset 0 the whole queue is derived
        first = self.grid.first_unit(files[0].start_offset)
        kept: list[NDArray[np.void]] = []
        for file in files:
            units = queue.units_in(file, 0, queue.room_of(file))
            below = self.format.is_written(units) & (units["physical_offset"] < self.log_min_offset)
            count = count_leading(below)
            kept.append(units[:count])
            if count < len(units):
                break
        # Raw bytes, since `concatenate` converts numbers to the machine's byte order.
        joined = np.concatenate([units.view(f"V{self.grid.unit_size}") for units in kept])
        stored = joined.view(self.format.dtype)
        return Prefix(first, joined, stored["store_timestamp"].astype(np.int64))


def _time_of(file: MappedFile) -> int:
    return file.path.stat().st_mtime_ns // _MS
