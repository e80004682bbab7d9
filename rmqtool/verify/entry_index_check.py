"""The index of a DLedger node's entries, held against the first entry of each data file and the last one.

A start reads these units, and makes the index anew from the data where one does not lead to its entry
(`DLedgerMmapFileStore#recover`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at, list_mapped_files
from rmqtool.base.shell import quote
from rmqtool.findings.report import Report
from rmqtool.formats.dledger import ENTRY_DTYPE, INDEX_DTYPE, INDEX_UNIT_SIZE, MAGIC_ENTRY
from rmqtool.scan.record_at import record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import DLEDGER_INDEX

_CODE = "store.dledger-index"
_FIELDS = ("position", "size", "index", "term")


def check_entry_index(snapshot: Snapshot, report: Report) -> None:
    """Check the index of the entries of a stopped node."""
    node, entries = snapshot.store.dledger_directory, snapshot.current_log.files
    if node is None or not entries or snapshot.holder is not None:
        return
    directory = node / DLEDGER_INDEX
    shown = snapshot.store.relative(directory)
    report.check(_CODE)
    index = list_mapped_files(directory)
    if gaps := [after for before, after in pairwise(index.files) if before.end_offset != after.start_offset]:
        message = f"the file before {gaps[0].path.name} is missing, or has another size"
        effect = "the node does not start: `check index file order failed before recovery`"
        remedy = f"mv {quote(str(directory))} {quote(f'{directory}.old')}"
        report.add(_CODE, message, severity="error", effect=effect, remedy=remedy, file=shown)
        return
    if not any(file.size for file in index.files):
        report.add(_CODE, "there is no file of the index", file=shown)
        return
    led = [_leads_to(index, header) for header in _headers(snapshot, entries)]
    if not all(led):
        report.add(_CODE, f"no unit leads to {led.count(False)} of {len(led)} entries that are looked up", file=shown)


def _headers(snapshot: Snapshot, files: tuple[MappedFile, ...]) -> Iterator[np.void]:
    """The headers of the first entry of each file and of the last one; damaged ones are left out."""
    last = snapshot.log_range.last_record_offset
    offsets = [file.start_offset + file.header_size for file in files]
    for offset in (*offsets, *([last] if last is not None else [])):
        file = file_at(files, offset)
        try:
            record = record_at(files, offset)
            if file is None or record is None:
                continue
            with InputFile(file.path) as opened:
                data = opened.read(offset - file.start_offset - file.header_size, ENTRY_DTYPE.itemsize)
        except RmqtoolError:  # the scan meets it again
            continue
        yield np.frombuffer(data, ENTRY_DTYPE)[0]


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
