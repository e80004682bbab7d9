"""The index of a DLedger node's entries, held against the first entries of the data files that a start reads.

A start reads the units of the last files, and makes the index again from the data where one does not lead to its
entry (`DLedgerMmapFileStore#recover`). What it leaves as it is, the node as leader reads for those that are behind
(`DLedgerMmapFileStore#get`); consumers are served without it (`DLedgerCommitLog#getMessage`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at, list_mapped_files
from rmqtool.base.shell import quote
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.findings.report import Report
from rmqtool.formats.dledger import ENTRY_DTYPE, INDEX_DTYPE, INDEX_UNIT_SIZE, MAGIC_ENTRY, decode_index
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import DLEDGER_INDEX

_CODE = "store.dledger-index"
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
        return decode_index(data)


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
    report.check(_CODE)
    index = list_mapped_files(directory)
    if gaps := _gaps(index):
        facts = {"problem": "gap", "name": gaps[0].path.name}
        effect = "the node does not start: `check index file order failed before recovery`"
        report.add(_CODE, severity="error", effect=effect, remedy=_moving_away(directory), file=shown, details=facts)
        return
    if not any(file.size for file in index.files):
        report.add(_CODE, file=shown, details={"problem": "none"})
        return
    unread = unread_units(snapshot)
    read = entries if unread is None else tuple(file for file in entries if file.start_offset >= unread.stop)
    led = [_leads_to(index, header) for header in _headers(snapshot, read)]
    if not all(led):
        lost = {"problem": "units", "missing": led.count(False), "entries": len(led)}
        report.add(_CODE, file=shown, details=lost)


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
        with InputFile(file.path) as opened:
            data = opened.read(offset - file.start_offset - file.header_size, ENTRY_DTYPE.itemsize)
    except RmqtoolError:  # the scan meets it again
        return None
    header: np.void = np.frombuffer(data, ENTRY_DTYPE)[0]
    return header


def _leads_to(index: MappedFiles, header: np.void) -> bool:
    """Whether the unit of an entry's Raft index leads to it."""
    offset = int(header["index"]) * INDEX_UNIT_SIZE
    file = file_at(index.files, offset)
    if file is None:
        return False
    try:
        with InputFile(file.path) as opened:
            data = opened.read(offset - file.start_offset, INDEX_UNIT_SIZE)
    except RmqtoolError:
        return False
    if len(data) < INDEX_UNIT_SIZE:
        return False
    unit = np.frombuffer(data, INDEX_DTYPE)[0]
    return bool(unit["magic"] == MAGIC_ENTRY and all(unit[name] == header[name] for name in _FIELDS))
