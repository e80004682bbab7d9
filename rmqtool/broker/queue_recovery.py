"""A consume queue as a start finds it: its last files up to the first unit that is none (`ConsumeQueue#recover`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.store.consume_queues import Queue

_FORMATS = {"simple": consume_queue, "batch": batch_consume_queue}
_RECOVERED_FILES = 3
_FIRST_PIECE_UNITS = 1 << 8  # most files are written at their head only
_PIECE_UNITS = 1 << 15


@dataclass(frozen=True)
class RecoveredQueue:
    """A queue after its own recovery.

    `files` are those that are kept, `deleted` those behind the end; `written` is the number of units in the last one.
    `last` is its last written unit, None when no unit of the last three files is; `highest` the greatest physical
    offset in its last file, -1 without a unit.
    """

    queue: Queue
    files: tuple[MappedFile, ...]
    deleted: tuple[MappedFile, ...]
    written: int
    last: np.void | None
    highest: int

    @property
    def file_units(self) -> int:
        """Units that a file has room for."""
        return self.files[-1].size // self.queue.unit_size if self.files else 0


def recover_queue(queue: Queue, reading: ReadPolicy = UNLIMITED) -> RecoveredQueue:
    """Find the end of a queue as the broker does, from its third last file on."""
    files = queue.files.files
    if not files:
        return RecoveredQueue(queue, (), (), 0, None, -1)
    number, last = max(0, len(files) - _RECOVERED_FILES), None
    while True:
        written, end, highest = _written_units(queue, files[number], reading)
        last = end if end is not None else last
        if written < files[number].size // queue.unit_size or number + 1 == len(files):
            return RecoveredQueue(queue, files[: number + 1], files[number + 1 :], written, last, highest)
        number += 1


def read_units(
    queue: Queue, mapped: MappedFile, first: int, count: int, reading: ReadPolicy = UNLIMITED
) -> NDArray[np.void]:
    """Up to `count` units of one file from unit `first` on, as stored."""
    with InputFile(mapped.path, reading) as file:
        data = file.read(first * queue.unit_size, count * queue.unit_size)
    units: NDArray[np.void] = _FORMATS[queue.kind].decode_units(data)
    return units


def no_units(queue: Queue, count: int) -> NDArray[np.void]:
    """`count` units of zeros."""
    return np.zeros(count, _FORMATS[queue.kind].UNIT_DTYPE)


def are_written(queue: Queue, units: NDArray[np.void]) -> NDArray[np.bool_]:
    """The broker's own test of a unit, per unit."""
    written: NDArray[np.bool_] = _FORMATS[queue.kind].is_written(units)
    return written


def _written_units(queue: Queue, mapped: MappedFile, reading: ReadPolicy) -> tuple[int, np.void | None, int]:
    """Units before the first that is none, the last of them, and their greatest physical offset."""
    written, last, highest, piece = 0, None, -1, _FIRST_PIECE_UNITS
    with InputFile(mapped.path, reading) as file:
        while True:
            data = file.read(written * queue.unit_size, piece * queue.unit_size)
            units = _FORMATS[queue.kind].decode_units(data)
            sound = are_written(queue, units)
            count = len(sound) if sound.all() else int(np.argmin(sound))
            if count:
                last = units[count - 1].copy()
                highest = max(highest, int(units["physical_offset"][:count].max()))
            written += count
            if count < piece:
                return written, last, highest
            piece = min(4 * piece, _PIECE_UNITS)
