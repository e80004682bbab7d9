"""Small runs of records joined into one: columns of few records take as long to make as those of some hundred.

Such runs are those of log files with little in them, and those between damaged records.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmqtool.scan.block import PADDING, Block, Positions, block_size
from rmqtool.scan.frames import RecordRun, sound_prefix

_SHARE = 4  # joined runs have a quarter of a block, and a small run has up to a quarter of that, and of the records


class JoinedRuns:
    """Holds copies of small runs, in their order, until `take` gives them as one run of at most `usual_records`."""

    def __init__(self, usual_records: int) -> None:
        self._usual_records = usual_records
        self._size = block_size() // _SHARE
        self._block: _JoinedBlock | None = None
        self._positions: list[Positions] = []
        self._records = 0
        self._end = 0  # physical offset after the last run

    def is_small(self, run: RecordRun) -> bool:
        """Whether a run is worth a copy."""
        return len(run) * _SHARE <= self._usual_records and run.size * _SHARE <= self._size

    def has_room(self, run: RecordRun) -> bool:
        """Whether a small run can be added: it fits, and stands after the others, as where no files overlap."""
        if self._block is None or not self._records:
            return True
        is_behind = run.physical_offset >= self._end
        fits = self._block.length + run.size <= self._size and self._records + len(run) <= self._usual_records
        return is_behind and fits

    def add(self, run: RecordRun) -> None:
        """Copy a run that `has_room`; its own block may be filled again then."""
        if self._block is None:
            self._block = _JoinedBlock(self._size)
        begin = int(run.positions[0])
        position = self._block.append(run.block.view[begin : begin + run.size], run.physical_offset)
        self._positions.append(run.positions + (position - begin))
        self._records += len(run)
        self._end = run.physical_offset + run.size

    def take(self) -> RecordRun | None:
        """Remove and return all that was added, to be used before the next `add`; None when that is nothing."""
        if self._block is None or not self._records:
            return None
        run = sound_prefix(self._block.completed(), np.concatenate(self._positions))
        self._positions, self._records = [], 0
        return run


class _JoinedBlock(Block):
    """Stretches of a log one after the other."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._is_complete = True
        self._begins: list[int] = []
        self._shifts: list[int] = []

    def append(self, data: memoryview, physical_offset: int) -> int:
        """Copy `data`, which stands at a physical offset, after the others; the first again after `completed`."""
        if self._is_complete:
            self._is_complete, self.length, self._begins, self._shifts = False, 0, [], []
        position, self.length = self.length, self.length + len(data)
        self.view[position : self.length] = data
        self._begins.append(position)
        self._shifts.append(physical_offset - position)
        return position

    def completed(self) -> Block:
        """The block with zeros after its data."""
        self._is_complete = True
        self.view[self.length : self.length + PADDING] = bytes(PADDING)
        return self

    def physical_offsets(self, positions: Positions) -> NDArray[np.int64]:
        """Where in the commit log the bytes at `positions` stand, by the stretch that each is in."""
        shifts: NDArray[np.int64] = np.array(self._shifts)[np.searchsorted(self._begins, positions, side="right") - 1]
        return positions + shifts
