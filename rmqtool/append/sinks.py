"""What takes the units of queues once their place is known."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

Units = NDArray[Any]
"""Stored units of one queue, one behind the other, one element each."""

Timestamps = NDArray[Any]
"""The store timestamp of each unit's message, epoch ms."""


class UnitSink(Protocol):
    """Takes the units of all queues of one kind; positions are in the queue, bytes."""

    def put(self, queue: int, position: int, units: Units, timestamps: Timestamps) -> None:
        """Units of one queue from `position` on; what was put there before gives way."""

    def cut(self, queue: int, position: int) -> None:
        """The queue ends at `position`: what was put from there on counts no more."""


class IndexSink(Protocol):
    """Takes the bytes of index files, which are numbered from 0 on in the order of their creation."""

    def begin(self, number: int, name: str) -> None:
        """A file is created."""

    def put(self, number: int, position: int, data: bytes | memoryview) -> None:
        """Bytes of a file; what is never put is zero."""

    def finish(self, number: int, timestamp: int) -> None:
        """Nothing more of this file follows; `timestamp` is that of its last put, epoch ms."""
