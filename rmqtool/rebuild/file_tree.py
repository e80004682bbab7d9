"""Queue and index files below a directory: whole length from the start, holes where nothing was put."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from rmqtool.base.limits import open_files_at_once
from rmqtool.base.new_files import create_file, set_time, write_all
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.index_file import file_size
from rmqtool.rebuild.selection import queue_file_name
from rmqtool.rebuild.sinks import FileGrid, Timestamps, Units
from rmqtool.store.consume_queues import Kind
from rmqtool.store.index_files import Geometry
from rmqtool.store.store import INDEX

_MAX_OPEN = 128  # a store may have 40,000 queues


class QueueTree:
    """Writes queue files of one kind; their modification time is their last message's store time. Raises OSError."""

    def __init__(self, root: Path, kind: Kind, grid: FileGrid) -> None:
        self._root = root
        self._kind = kind
        self._grid = grid
        self._open: OrderedDict[tuple[QueueName, int], int] = OrderedDict()
        self._max_open = open_files_at_once(_MAX_OPEN)
        self._ends: dict[QueueName, int] = {}  # number of the unit after the last of each queue

    def close(self) -> None:
        """Close the files that are written."""
        while self._open:
            os.close(self._open.popitem()[1])

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Write units, in as many files as they need."""
        data, size = units.view("u1").data, self._grid.unit_size
        for piece in self._grid.pieces(unit_number, len(units)):
            descriptor = self._descriptor(queue, piece.start)
            write_all(descriptor, data[piece.low * size : piece.high * size], piece.position)
            set_time(descriptor, int(timestamps[piece.high - 1]))
        self._ends[queue] = max(self._ends.get(queue, 0), unit_number + len(units))

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Clear the queue from unit `unit_number` on."""
        for piece in self._grid.pieces(unit_number, self._ends.get(queue, 0) - unit_number):
            self._clear(queue, piece.start, piece.position)
        self._ends[queue] = unit_number

    def _path(self, queue: QueueName, start: int) -> Path:
        return self._root / queue_file_name(queue, self._kind, start)

    def _clear(self, queue: QueueName, start: int, position: int) -> None:
        descriptor = self._open.pop((queue, start), None)
        if descriptor is not None:
            os.close(descriptor)
        path = self._path(queue, start)
        if position == 0:
            path.unlink(missing_ok=True)
        elif path.exists():
            os.truncate(path, position)
            os.truncate(path, self._grid.file_size)

    def _descriptor(self, queue: QueueName, start: int) -> int:
        descriptor = self._open.get((queue, start))
        if descriptor is not None:
            return descriptor
        if len(self._open) >= self._max_open:
            os.close(self._open.popitem(last=False)[1])
        descriptor = self._open[queue, start] = create_file(self._path(queue, start), self._grid.file_size)
        return descriptor


class IndexTree:
    """Writes index files; their modification time is that of their last put. Raises OSError."""

    def __init__(self, root: Path, geometry: Geometry) -> None:
        self._root = root
        self._size = file_size(geometry.slots, geometry.units)
        self._descriptor = -1

    def begin(self, name: str) -> None:
        """Create a file."""
        self._descriptor = create_file(self._root / INDEX / name, self._size)

    def put(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes."""
        write_all(self._descriptor, data, position)

    def finish(self, timestamp: int) -> None:
        """Complete a file."""
        set_time(self._descriptor, timestamp)
        self.close()

    def close(self) -> None:
        """Close the file that is written."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
