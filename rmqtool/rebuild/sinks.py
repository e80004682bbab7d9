"""What takes the units of queues once their place is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName

Units = NDArray[Any]
"""Stored units of one queue, one behind the other, one element each."""

Timestamps = NDArray[Any]
"""The store timestamp of each unit's message, epoch ms."""


class Piece(NamedTuple):
    """Units ``low:high`` of those that were put, which go to byte `position` of the file that starts at `start`."""

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

    def start_of(self, number: int) -> int:
        """Where the file of unit `number` starts in the queue, bytes."""
        return number // self.units_per_file * self.file_size

    def first_unit(self, start: int) -> int:
        """Number of the first unit of the file that starts at `start`."""
        return start // self.file_size * self.units_per_file

    def pieces(self, number: int, count: int) -> Iterator[Piece]:
        """The parts of `count` units from unit `number` on that lie in one file each."""
        done = 0
        while done < count:
            in_file = (number + done) % self.units_per_file
            high = min(count, done + self.units_per_file - in_file)
            yield Piece(self.start_of(number + done), in_file * self.unit_size, done, high)
            done = high


class UnitSink(Protocol):
    """Takes the units of all queues of one kind."""

    def put(self, queue: QueueName, number: int, units: Units, timestamps: Timestamps) -> None:
        """Units of one queue from unit `number` on; what was put there before gives way."""

    def cut(self, queue: QueueName, number: int) -> None:
        """The queue ends before unit `number`: what was put from there on counts no more."""


class IndexWriter(Protocol):
    """Writes index files, one after the other."""

    def begin(self, name: str) -> None:
        """Create a file."""

    def put(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes of the file; what is never put is zero."""

    def finish(self, timestamp: int) -> None:
        """Complete the file; `timestamp` is that of its last put, epoch ms."""
