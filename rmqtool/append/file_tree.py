"""Files for the units of queues: whole length from the start, holes where nothing was put."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from rmqtool.append.sinks import Timestamps, Units

_MAX_OPEN = 128  # a store may have 40,000 queues
_MAX_SECONDS = 1 << 33  # later times no file system keeps

PathOf = Callable[[int, int], Path | None]
"""Path of the file of a queue that starts at a byte; None when that file is not to be written."""


class FileTree:
    """A sink that writes files of `file_size` bytes; each one's modification time is its last message's store time.

    Raises OSError. Units that do not fit into a file as a whole leave its end empty.
    """

    def __init__(self, path_of: PathOf, file_size: int, unit_size: int) -> None:
        self._path_of = path_of
        self._file_size = file_size
        self._unit_size = unit_size
        self._per_file = file_size // unit_size
        self._open: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._ends: dict[int, int] = {}  # number of the unit behind the last of each queue

    def __enter__(self) -> FileTree:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def put(self, queue: int, position: int, units: Units, timestamps: Timestamps) -> None:
        """Write units, in as many files as they need."""
        number, done = position // self._unit_size, 0
        while done < len(units):
            in_file = (number + done) % self._per_file
            count = min(len(units) - done, self._per_file - in_file)
            start = (number + done - in_file) // self._per_file * self._file_size
            part, timestamp = units[done : done + count], int(timestamps[done + count - 1])
            self._write(queue, start, in_file * self._unit_size, part, timestamp)
            done += count
        self._ends[queue] = max(self._ends.get(queue, 0), number + done)

    def cut(self, queue: int, position: int) -> None:
        """Clear the queue from `position` on."""
        first, end = position // self._unit_size, self._ends.get(queue, 0)
        for number in range(first // self._per_file, -(-end // self._per_file)):
            self._clear(queue, number * self._file_size, max(0, first - number * self._per_file) * self._unit_size)
        self._ends[queue] = first

    def close(self) -> None:
        """Complete all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _clear(self, queue: int, start: int, position: int) -> None:
        path = self._path_of(queue, start)
        if path is None:
            return
        descriptor = self._open.pop((queue, start), None)
        if descriptor is not None:
            os.close(descriptor)
        if position == 0:
            path.unlink(missing_ok=True)
        else:
            os.truncate(path, position)
            os.truncate(path, self._file_size)

    def _write(self, queue: int, start: int, position: int, units: Units, timestamp: int) -> None:
        descriptor = self._descriptor(queue, start)
        if descriptor is None:
            return
        write_all(descriptor, memoryview(units).cast("B"), position)
        set_time(descriptor, timestamp)

    def _descriptor(self, queue: int, start: int) -> int | None:
        descriptor = self._open.get((queue, start))
        if descriptor is not None:
            return descriptor
        path = self._path_of(queue, start)
        if path is None:
            return None
        if len(self._open) >= _MAX_OPEN:
            os.close(self._open.popitem(last=False)[1])
        descriptor = self._open[queue, start] = create_file(path, self._file_size)
        return descriptor


def create_file(path: Path, size: int) -> int:
    """Open a file for writing, made with its directories and at its whole length when it is not there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o644)
    if os.fstat(descriptor).st_size != size:
        os.ftruncate(descriptor, size)
    return descriptor


def write_all(descriptor: int, data: memoryview | bytes, position: int) -> None:
    """Write all of `data` at `position`; the system may take less at once."""
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, position)
        view, position = view[done:], position + done


def set_time(descriptor: int, timestamp: int) -> None:
    """Set access and modification time, epoch ms."""
    nanoseconds = min(max(timestamp, 0), _MAX_SECONDS * 1000) * 1_000_000
    os.utime(descriptor, ns=(nanoseconds, nanoseconds))
