"""The interfaces to which units and index files are written, and the files that units belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName

Units = NDArray[Any]
"""Consecutive stored units of one queue, one element each."""

Timestamps = NDArray[Any]
"""The store timestamp of each unit's message, epoch ms."""


class Piece(NamedTuple):
    """Units ``low:high`` of those that are put, which belong at byte `position` of the file that starts at `start`."""

    start: int
    position: int
    low: int
    high: int


@dataclass(frozen=True)
class FileGrid:
    """Files of `file_size` bytes, filled with as many units of `unit_size` bytes as fit as a whole."""

    file_size: int
    unit_size: int

    @property
    def units_per_file(self) -> int:
        """How many units a file holds."""
        return self.file_size // self.unit_size

    def start_of(self, unit_number: int) -> int:
        """Where the file of unit `unit_number` starts in the queue, bytes."""
        return unit_number // self.units_per_file * self.file_size

    def first_unit(self, start: int) -> int:
        """Number of the first unit of the file that starts at `start`."""
        return start // self.file_size * self.units_per_file

    def pieces(self, unit_number: int, count: int) -> Iterator[Piece]:
        """The parts of `count` units from unit `unit_number` on that lie in one file each."""
        done = 0
        while done < count:
            in_file = (unit_number + done) % self.units_per_file
            high = min(count, done + self.units_per_file - in_file)
            yield Piece(self.start_of(unit_number + done), in_file * self.unit_size, done, high)
            done = high


class UnitSink(Protocol):
    """Takes the units of all queues of one kind."""

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Put units of one queue from unit `unit_number` on; they replace units that were put there before."""

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """End the queue before unit `unit_number`: units that were put from there on are dropped."""


class IndexWriter(Protocol):
    """Writes index files, one after the other."""

    def begin(self, name: str) -> None:
        """Create a file."""

    def put(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes of the file; bytes that are never put are zero."""

    def finish(self, timestamp: int) -> None:
        """Complete the file; `timestamp` is that of its last put, epoch ms."""
