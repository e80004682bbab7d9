"""The headers of DLedger's entries, held against their messages, the entries before them, and their units in the index.

A start reads those of the last three files at least (`DLedgerMmapFileStore#recover`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from rmqtool.findings.report import Report
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.scan.frames import RecordRun, entry_headers
from rmqtool.verify.entry_index_check import UnreadUnits

_CODE = "commitlog.entry-header"
_UNIT_CODE = "store.dledger-index"


class EntryChecks:
    """Checks the entries of one part of the log after the other; plain records have none."""

    def __init__(self, report: Report, units: UnreadUnits | None = None) -> None:
        """`units` are those that the next start leaves as they are."""
        self._report = report
        self._units = units
        self._end = -1  # physical offset after the last entry
        self._last: NDArray[np.void] | None = None  # its header

    def add(self, frames: RecordRun) -> None:
        """Check the headers of a run. Raises UnreadableError where units cannot be read, and then reads none."""
        if not frames.header_size:
            return
        headers = entry_headers(frames)
        self._report.check(_CODE, len(headers))
        joined = self._last is not None and frames.begin == self._end
        self._check_places(frames, headers)
        self._check_order(frames, np.concatenate([self._last, headers]) if joined else headers)
        self._last, self._end = headers[-1:].copy(), frames.begin + frames.header_size + frames.size
        units, self._units = self._units, None
        if units is not None and frames.begin < units.stop:
            self._check_units(units, frames, headers)
        self._units = units

    def _check_places(self, frames: RecordRun, headers: NDArray[np.void]) -> None:
        places = frames.physical_offsets - ENTRY_HEADER_SIZE
        for row in np.flatnonzero(headers["position"] != places).tolist():
            self._add(frames, row, "position", found=headers["position"][row], expected=places[row])
        for row in np.flatnonzero(headers["body_size"] != frames.message_sizes).tolist():
            self._add(frames, row, "size", found=headers["body_size"][row], expected=frames.message_sizes[row])

    def _check_order(self, frames: RecordRun, headers: NDArray[np.void]) -> None:
        """Check that Raft indexes are one after the other, and terms never less; the first entry may be known."""
        known = len(headers) - len(frames)
        indexes = headers["index"].astype(np.int64)
        for row in _breaks(indexes - np.arange(len(headers))):
            self._add(frames, max(row - known, 0), "index", found=indexes[row], before=indexes[row - 1])
        terms = headers["term"].astype(np.int64)
        for row in (np.flatnonzero(np.diff(terms) < 0) + 1).tolist():
            self._add(frames, max(row - known, 0), "term", found=terms[row], before=terms[row - 1])

    def _check_units(self, units: UnreadUnits, frames: RecordRun, headers: NDArray[np.void]) -> None:
        """Check that units lead to the entries of a run, where these are one after the other."""
        indexes = headers["index"].astype(np.int64)
        if indexes[0] < 0 or np.any(np.diff(indexes) != 1):
            return
        self._report.check(_UNIT_CODE, len(headers))
        found = units.read(int(indexes[0]), len(headers))
        wrong = np.flatnonzero((found["position"] != headers["position"]) | (found["size"] != headers["size"]))
        if len(wrong):
            row = int(wrong[0])
            self._report.add(
                _UNIT_CODE,
                details={"problem": "unit", "index": int(indexes[row])},
                count=len(wrong),
                severity="error",
                effect="no start makes it again; as leader the node cannot send this entry to another node, and one "
                "that is new or behind never gets past it",
                remedy=units.moving_away,
                offset=int(frames.physical_offsets[row]),
            )

    def _add(self, frames: RecordRun, row: int, problem: str, **numbers: SupportsInt) -> None:
        facts: dict[str, Any] = {"problem": problem, **{name: int(number) for name, number in numbers.items()}}
        self._report.add(_CODE, offset=int(frames.physical_offsets[row]), details=facts)


def _breaks(levels: NDArray[np.int64]) -> Iterator[int]:
    """Where values change, without the way back after a single other one."""
    before = None
    for row in (np.flatnonzero(np.diff(levels)) + 1).tolist():
        if levels[row] != before:
            yield row
        before = levels[row - 1]
