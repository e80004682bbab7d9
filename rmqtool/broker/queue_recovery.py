"""The recovery of a consume queue: its last files up to the first unit that is not written (`ConsumeQueue#recover`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqtool.base.mapped_files import MappedFile
from rmqtool.store.consume_queues import Queue
from rmqtool.store.unit_files import HEAD_UNITS, RECOVERED_FILES, UnitFiles, count_leading, open_units

_PIECE_UNITS = 1 << 15


@dataclass(slots=True)
class RecoveredQueue:
    """A queue after its own recovery; never changed, but not frozen, as a `Queue`.

    `files` are kept, `deleted` lie past the end; `written` counts the units in the last kept file. `last_unit` is the
    last written unit as stored, None when the last three files hold none; `highest` is the greatest physical offset in
    the last kept file, -1 without a unit.
    """

    queue: Queue
    files: tuple[MappedFile, ...]
    deleted: tuple[MappedFile, ...]
    written: int
    last_unit: bytes | None
    highest: int

    @property
    def last(self) -> np.void | None:
        """The last written unit by its fields."""
        return None if self.last_unit is None else self.queue.format.decode(self.last_unit)[0]

    @property
    def file_units(self) -> int:
        """Units that a file has room for."""
        return self.files[-1].size // self.queue.unit_size if self.files else 0


def recover_queue(queue: Queue, opened: UnitFiles | None = None) -> RecoveredQueue:
    """Find the end of a queue as the broker does, from its third last file on; by its `opened` units, if given."""
    files = queue.files.files
    if not files:
        return RecoveredQueue(queue, (), (), 0, None, -1)
    file_index, last = max(0, len(files) - RECOVERED_FILES), None
    with open_units(queue, opened=opened) as units:
        while True:
            written, end, highest = _written_units(units, files[file_index])
            last = end if end is not None else last
            if written < units.room_of(files[file_index]) or file_index + 1 == len(files):
                return RecoveredQueue(queue, files[: file_index + 1], files[file_index + 1 :], written, last, highest)
            file_index += 1


def _written_units(files: UnitFiles, mapped: MappedFile) -> tuple[int, bytes | None, int]:
    """Count of the units before the first that is not written, the last of them, and their greatest physical offset.

    All are read, not searched as in `UnitFiles.recovered_end`: any of them may point farthest, or not be written.
    """
    head = files.head_of(mapped)
    if head.is_whole:
        return head.written, head.last, max(head.offsets, default=-1)
    written, last, highest, piece = 0, None, -1, HEAD_UNITS
    while True:
        units = files.units_in(mapped, written, piece)
        count = count_leading(files.is_written(units))
        if count:
            last = units[count - 1].tobytes()
            highest = max(highest, int(units["physical_offset"][:count].max()))
        written += count
        if count < piece:
            return written, last, highest
        piece = min(4 * piece, _PIECE_UNITS)
