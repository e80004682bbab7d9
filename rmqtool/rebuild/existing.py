"""The queues that are there: their files, and the units in them that a rebuild keeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import InitVar, dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile
from rmqtool.base.limits import open_files_at_once
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.rebuild.sinks import FileGrid, Units
from rmqtool.rebuild.stored_units import Prefix, pre_blank_units
from rmqtool.store.consume_queues import Kind, Queue

FORMATS = {"simple": consume_queue, "batch": batch_consume_queue}
_MAX_OPEN = 64
_MS = 1_000_000  # ns


@dataclass
class ExistingQueues:
    """The queues of one kind that are there, by name; a file whose size does not fit the grid counts as none."""

    kind: Kind
    grid: FileGrid
    log_min_offset: int  # the commit log's minimum, bytes; -1 without a file
    all_queues: InitVar[Iterable[Queue]]  # of any kind
    queues: dict[QueueName, Queue] = field(init=False)

    def __post_init__(self, all_queues: Iterable[Queue]) -> None:
        self.queues = {QueueName(queue.topic, queue.queue_id): queue for queue in all_queues if queue.kind == self.kind}
        self._open: OrderedDict[MappedFile, InputFile] = OrderedDict()
        self._most = open_files_at_once(_MAX_OPEN)

    def close(self) -> None:
        """Close the files that were read."""
        while self._open:
            self._open.popitem()[1].close()

    def file(self, name: QueueName, start: int) -> MappedFile | None:
        """The file of a queue that starts at a byte; None without one."""
        queue = self.queues.get(name)
        files = queue.files.files if queue else ()
        low, high = 0, len(files)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if files[middle].start_offset < start else (low, middle)
        found = files[low] if low < len(files) else None
        return found if found and found.start_offset == start and found.size == self.grid.file_size else None

    def read(self, file: MappedFile, position: int, size: int) -> bytes:
        """Bytes of a file, which stays open for a while."""
        return self._opened(file).read(position, size)

    def is_zero_from(self, file: MappedFile, position: int) -> bool:
        """Whether only zeros follow; holes are not read."""
        return self._opened(file).next_data(position, file.size) == file.size

    def _opened(self, file: MappedFile) -> InputFile:
        opened = self._open.get(file)
        if opened is None:
            if len(self._open) >= self._most:
                self._open.popitem(last=False)[1].close()
            opened = self._open[file] = InputFile(file.path)
        return opened

    def units(self, file: MappedFile, first: int = 0, count: int | None = None) -> NDArray[np.void]:
        """Units of a file from its unit `first` on."""
        size = self.grid.unit_size
        wanted = self.grid.units_per_file - first if count is None else count
        units: NDArray[np.void] = FORMATS[self.kind].decode_units(self.read(file, first * size, wanted * size))
        return units

    def unit_at(self, name: QueueName, number: int) -> np.void | None:
        """The written unit with a number; None where there is none."""
        start = self.grid.start_of(number)
        file = self.file(name, start)
        if file is None:
            return None
        units = self.units(file, number - self.grid.first_unit(start), 1)
        unit: np.void | None = units[0] if len(units) and FORMATS[self.kind].is_written(units)[0] else None
        return unit

    def units_before_log(self, name: QueueName, number: int, timestamp: int) -> Iterator[Prefix]:
        """What stands before the first unit of the log in a plain queue: units that point below the log stay."""
        first = self.grid.first_unit(self._first_kept_start(name, number))
        for piece in self.grid.pieces(first, number - first):
            file = self.file(name, piece.start)
            count = piece.high - piece.low
            units = self._kept_units(file, piece.position // self.grid.unit_size, count)
            times = np.full(count, _time_of(file) if file and piece.high < number - first else timestamp)
            yield Prefix(first + piece.low, units, times)

    def _first_kept_start(self, name: QueueName, number: int) -> int:
        """Start of the first file: of those that lead up to `number` without a gap the oldest one."""
        start = self.grid.start_of(number)
        while start > 0 and self.file(name, start - self.grid.file_size):
            start -= self.grid.file_size
        return start

    def _kept_units(self, file: MappedFile | None, first: int, count: int) -> Units:
        """Units of a file that point below the log; filler where there are none."""
        blank = pre_blank_units(count)
        if file is None:
            return blank
        stored = self.units(file, first, count)
        kept = consume_queue.is_written(stored) & (stored["physical_offset"] < self.log_min_offset)
        kept &= ~consume_queue.is_pre_blank(stored)
        raw = stored.view(blank.dtype)
        return raw if kept.all() else np.where(kept, raw, blank)

    def batch_units_before_log(self, name: QueueName) -> Prefix | None:
        """What stands before the first unit of the log in a batch queue: the units that point below the log."""
        found = self.queues.get(name)
        files = [file for file in found.files.files if file.size == self.grid.file_size] if found else []
        if not files or self.log_min_offset <= 0:
            return None  # of a log that is there from its beginning the queue is, too
        first = self.grid.first_unit(files[0].start_offset)
        kept: list[NDArray[np.void]] = []
        for file in files:
            units = self.units(file)
            below = batch_consume_queue.is_written(units) & (units["physical_offset"] < self.log_min_offset)
            count = len(units) if below.all() else int(np.argmin(below))
            kept.append(units[:count])
            if count < len(units):
                break
        # Raw bytes: what `concatenate` makes of numbers is in the machine's byte order.
        every = np.concatenate([units.view(f"V{self.grid.unit_size}") for units in kept])
        stored = every.view(batch_consume_queue.UNIT_DTYPE)
        return Prefix(first, every, stored["store_timestamp"].astype(np.int64))


def _time_of(file: MappedFile) -> int:
    return file.path.stat().st_mtime_ns // _MS
