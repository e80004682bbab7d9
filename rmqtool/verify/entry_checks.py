"""The headers of DLedger's entries, held against their messages, the entries before them, and their units in the index.

A start reads those of the last three files at least (`DLedgerMmapFileStore#recover`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at, list_mapped_files, read_at
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.base.visible import quote
from rmqtool.findings.report import Report
from rmqtool.formats.dledger import ENTRY_DTYPE, ENTRY_HEADER_SIZE, INDEX_DTYPE, INDEX_UNIT_SIZE, MAGIC_ENTRY
from rmqtool.formats.layout import decode_units
from rmqtool.scan.frames import RecordRun, entry_headers
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import DLEDGER_INDEX

_INDEX_CODE = "store.dledger-index"
_FIELDS = ("position", "size", "index", "term")
_READ_BY_A_START = 3  # data files at least


@dataclass(frozen=True)
class UnreadUnits:
    """The units of the entries before the data file from which a start reads entries and their units."""

    index: MappedFiles
    stop: int  # where that file begins, bytes
    moving_away: str

    def read(self, first: int, count: int) -> NDArray[np.void]:
        """The units from a Raft index on, shape ``(count,)``; zeros where there is no file. Raises UnreadableError."""
        data = bytearray(count * INDEX_UNIT_SIZE)
        start = first * INDEX_UNIT_SIZE
        for file in self.index.files:
            low, high = max(start, file.start_offset), min(start + len(data), file.end_offset)
            if low < high:
                with InputFile(file.path) as opened:
                    found = opened.read(low - file.start_offset, high - low)
                data[low - start : low - start + len(found)] = found
        return decode_units(INDEX_DTYPE, data)


def unread_units(snapshot: Snapshot) -> UnreadUnits | None:
    """The units that the next start of a stopped node leaves as they are; None where it reads all of them."""
    node, entries = snapshot.store.dledger_directory, snapshot.current_log.files
    if node is None or snapshot.holder is not None or len(entries) <= _READ_BY_A_START:
        return None
    with skip_unreadable():  # which `check_entry_index` reports
        index = list_mapped_files(node / DLEDGER_INDEX)
        if _gaps(index):
            return None  # no node starts with it
        for file in reversed(entries[: 1 - _READ_BY_A_START]):
            header = _header(entries, file.start_offset + file.header_size)
            if header is not None and _leads_to(index, header):
                return UnreadUnits(index, file.start_offset, _moving_away(node / DLEDGER_INDEX))
    return None


def check_entry_index(snapshot: Snapshot, report: Report) -> None:
    """Check the index of the entries of a stopped node."""
    node, entries = snapshot.store.dledger_directory, snapshot.current_log.files
    if node is None or not entries or snapshot.holder is not None:
        return
    directory = node / DLEDGER_INDEX
    shown = snapshot.store.relative(directory)
    report.check(_INDEX_CODE)
    index = list_mapped_files(directory)
    if gaps := _gaps(index):
        facts = {"problem": "gap", "name": gaps[0].path.name}
        effect = "the node does not start: `check index file order failed before recovery`"
        report.add(
            _INDEX_CODE, severity="error", effect=effect, remedy=_moving_away(directory), file=shown, details=facts
        )
        return
    if not any(file.size for file in index.files):
        report.add(_INDEX_CODE, file=shown, details={"problem": "none"})
        return
    unread = unread_units(snapshot)
    read = entries if unread is None else tuple(file for file in entries if file.start_offset >= unread.stop)
    led = [_leads_to(index, header) for header in _headers(snapshot, read)]
    if not all(led):
        lost = {"problem": "units", "missing": led.count(False), "entries": len(led)}
        report.add(_INDEX_CODE, file=shown, details=lost)


def _gaps(index: MappedFiles) -> list[MappedFile]:
    """The files after one that is missing, or has another size (`MmapFileList#checkSelf`)."""
    return [after for before, after in pairwise(index.files) if before.end_offset != after.start_offset]


def _moving_away(directory: Path) -> str:
    return f"mv {quote(str(directory))} {quote(f'{directory}.old')}"


def _headers(snapshot: Snapshot, files: tuple[MappedFile, ...]) -> Iterator[np.void]:
    """The headers of the first entry of each of these files and of the log's last one; damaged ones are left out."""
    last = snapshot.log_range.last_record_offset
    offsets = [file.start_offset + file.header_size for file in files]
    for offset in (*offsets, *([last] if last is not None else [])):
        header = _header(files, offset)
        if header is not None:
            yield header


def _header(files: tuple[MappedFile, ...], offset: int) -> np.void | None:
    """The header of the entry whose message is at a physical offset; None where it is damaged."""
    file = file_at(files, offset)
    try:
        if file is None or single_record_at(files, offset) is None:
            return None
        data = read_at([file], offset - file.header_size, ENTRY_DTYPE.itemsize)
    except RmqtoolError:  # the scan meets it again
        return None
    header: np.void = np.frombuffer(data, ENTRY_DTYPE)[0]
    return header


def _leads_to(index: MappedFiles, header: np.void) -> bool:
    """Whether the unit of an entry's Raft index leads to it."""
    try:
        data = read_at(index.files, int(header["index"]) * INDEX_UNIT_SIZE, INDEX_UNIT_SIZE)
    except RmqtoolError:
        return False
    if len(data) < INDEX_UNIT_SIZE:
        return False
    unit = np.frombuffer(data, INDEX_DTYPE)[0]
    return bool(unit["magic"] == MAGIC_ENTRY and all(unit[name] == header[name] for name in _FIELDS))


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
                effect="no start builds it again; as leader the node cannot send this log entry to another node, and "
                "a new or lagging node never gets past it",
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
