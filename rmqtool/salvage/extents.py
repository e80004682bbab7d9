"""Extents: unbroken rows of proven records in one file, as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

EXTENT_DTYPE = np.dtype(
    [
        ("physical_offset", "i8"),  # where it belongs in the log, bytes
        ("size", "i8"),  # bytes; of a blank up to the end of its log file
        ("input", "i4"),  # number of the file
        ("position", "i8"),  # in that file, bytes
        ("records", "i8"),  # BLANK for a blank, INERT for a record that a repair put in place of a lost one
        ("first_time", "i8"),  # store times of the first and the last record, epoch ms
        ("last_time", "i8"),
        ("last_size", "i4"),  # size of the last record, bytes
        ("is_odd", "?"),  # whether all of them are odd (odd_records.py)
        ("header_size", "i4"),  # of DLedger's header before each record, which is part of the extent, or 0, bytes
        ("term", "i8"),  # Raft term of all of them; NO_TERM where no header says it
        ("first_index", "i8"),  # Raft index of the first record, or -1
    ]
)

BLANK, INERT = 0, -1
NO_TERM = -1

Extents = NDArray[np.void]
"""Rows of EXTENT_DTYPE."""


class Entry(NamedTuple):
    """What DLedger's header says of a record; its size is 0 where there is none."""

    header_size: int = 0
    term: int = NO_TERM
    raft_index: int = -1


NO_ENTRY = Entry()

NO_EXTENTS: Extents = np.empty(0, EXTENT_DTYPE)


class ExtentBuilder:
    """Collects extents of one file in the order of their positions; rows that follow on become one."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._rows = np.empty(16, EXTENT_DTYPE)
        self._count = 0

    def add_records(
        self,
        physical_offset: int,
        position: int,
        size: int,
        times: NDArray[Any],
        last_size: int,
        *,
        is_odd: bool,
        entry: Entry = NO_ENTRY,
    ) -> None:
        """Add records one after the other, `size` bytes in all with their headers; `times` are their store times.

        `entry` is that of the first one.
        """
        if self._count:
            last = self._rows[self._count - 1]
            follows = last["physical_offset"] + last["size"] == physical_offset
            follows = follows and last["position"] + last["size"] == position and last["is_odd"] == is_odd
            follows = follows and (last["header_size"], last["term"]) == (entry.header_size, entry.term)
            if entry.header_size:
                follows = follows and last["first_index"] + last["records"] == entry.raft_index
            if last["records"] > 0 and follows:
                last["size"] += size
                last["records"] += len(times)
                last["last_time"], last["last_size"] = times[-1], last_size
                return
        self._append(physical_offset, size, position, len(times), times[0], times[-1], last_size, is_odd, *entry)

    def add_blank(self, physical_offset: int, position: int, size: int) -> None:
        """Add a blank that reaches `size` bytes to the end of its log file."""
        self._append(physical_offset, size, position, BLANK, 0, 0, 0, False, *NO_ENTRY)

    def add_inert(self, physical_offset: int, position: int, size: int) -> None:
        """Add a dummy record."""
        self._append(physical_offset, size, position, INERT, 0, 0, 0, False, *NO_ENTRY)

    def extents(self) -> Extents:
        """All that was added."""
        return self._rows[: self._count].copy()

    def _append(self, physical_offset: int, size: int, position: int, *rest: Any) -> None:
        if self._count == len(self._rows):
            self._rows = np.resize(self._rows, 2 * self._count)
        self._rows[self._count] = (physical_offset, size, self._number, position, *rest)
        self._count += 1


def of_records(extents: Extents) -> Extents:
    """Those of records that were stored, not of blanks and dummy ones."""
    return extents[extents["records"] > 0]


def message_bytes(extents: Extents) -> int:
    """Bytes of the records, without headers before them."""
    return int((extents["size"] - np.maximum(extents["records"], 0) * extents["header_size"]).sum())


def ends(extents: Extents) -> NDArray[np.int64]:
    """Physical offsets after the extents, bytes."""
    behind: NDArray[np.int64] = extents["physical_offset"] + extents["size"]
    return behind


def shifts(extents: Extents) -> NDArray[np.int64]:
    """Physical offsets less positions: where their files begin in the log, if all of a file is in its place, bytes."""
    distances: NDArray[np.int64] = extents["physical_offset"] - extents["position"]
    return distances


def joined(*parts: Extents) -> Extents:
    """All extents by physical offset."""
    together = np.concatenate([NO_EXTENTS, *parts])
    return together[np.argsort(together["physical_offset"], kind="stable")]
