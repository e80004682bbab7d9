"""Faults in extents of the log without records, and at the ends of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at, read_at
from rmqtool.findings.report import Report
from rmqtool.formats.dledger import MAGIC_BLANK, MAGIC_ENTRY, DLedgerBlank
from rmqtool.formats.layout import parse
from rmqtool.formats.message import BLANK_SIZE, HEADER_DTYPES, MAGIC_CODE_BLANK, MAGIC_CODE_V1, MIN_MESSAGE_SIZE
from rmqtool.formats.message import Blank as BlankUnit
from rmqtool.rules.versions import NEGATIVE_SIZES_KNOWN, SIZE_COMPARED_FIRST, Version
from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.store.store import Store
from rmqtool.verify.bad_extents import Extents

_HEADER = HEADER_DTYPES[0]  # the fields that are read precede all hosts, and are the same in all formats
_MAGIC_CODE = MAGIC_CODE_V1.to_bytes(4, "big", signed=True)
_PAGE_SIZE = 4096
_MAGIC_CODE_OF = {MAGIC_BLANK: MAGIC_CODE_BLANK, MAGIC_ENTRY: MAGIC_CODE_V1}  # of entries that of their messages


class DamageChecks:
    """Takes the events of a scan in order; damage waits until the next event decides which fault it is."""

    def __init__(
        self, store: Store, files: Sequence[MappedFile], report: Report, extents: Extents, version: Version | None
    ) -> None:
        """`files` are those of the log; findings go to `report`, damage to `extents`; `version` may be unknown."""
        self._store = store
        self._files = files
        self._report = report
        self._extents = extents
        self._version = version
        self._waiting: Damage | None = None

    def frames(self, frames: RecordRun) -> None:
        """Check that records do not fill their file to the last byte, so that no blank ends it."""
        end = frames.physical_offset + frames.size
        file = file_at(self._files, frames.physical_offset)
        if file is not None and end == file.end_offset and file is not self._files[-1]:
            shown = self._store.relative(file.path)
            self._report.add("commitlog.blank", file=shown, offset=end, details={"problem": "none"})

    def blank(self, blank: Blank) -> None:
        """Check that the size of a blank leads to the end of its file."""
        self._report.check("commitlog.blank")
        size, _ = self._head(blank.physical_offset)
        if size == blank.size:
            return
        since = NEGATIVE_SIZES_KNOWN if size < 0 else SIZE_COMPARED_FIRST
        refused = (size < 0 or size > blank.size) and (self._version is None or self._version >= since)
        given = self._named(blank.physical_offset)
        if not refused:
            given.update(severity="info", effect="none: the size of a blank is not used")
        facts = {"problem": "size", "found": size, "left": blank.size}
        self._report.add("commitlog.blank", offset=blank.physical_offset, details=facts, **given)

    def damage(self, damage: Damage) -> None:
        """Something else."""
        self._waiting = damage

    def may_end_the_log(self) -> bool:
        """Whether damage waits that may be the log's end, with stale records after it."""
        waiting = self._waiting
        if waiting is None or waiting.tail:
            return False
        file = file_at(self._files, waiting.physical_offset)
        return file is not None and self._is_last(file)

    def are_stale_records(self, frames: RecordRun, last_timestamp: int) -> bool:
        """Whether records after damage in the last file are older than those before it.

        A start cuts the log without erasing the bytes behind; new records overwrite these from the front.
        """
        waiting, file = self._waiting, file_at(self._files, frames.physical_offset)
        if waiting is None or file is None or waiting.physical_offset < file.start_offset:
            return False
        return self._is_last(file) and int(frames.headers.field("store_timestamp")[0]) < last_timestamp

    def report_stale_records(self, physical_offset: int) -> int:
        """Report that stale records begin here; returns where the log ends, a physical offset."""
        waiting, self._waiting = self._waiting, None
        start = waiting.physical_offset if waiting else physical_offset
        self._report.add("commitlog.stale-records", offset=start, **self._named(start))
        return start

    def settle(self) -> None:
        """Report the waiting damage: the log goes on after it, or the scan has ended."""
        damage, self._waiting = self._waiting, None
        if damage is None:
            return
        code, facts = self._code_of(damage)
        if code != "commitlog.stale-bytes":
            self._extents.add(damage.physical_offset, damage.size, code.removeprefix("commitlog."))
        if code != "commitlog.gap":  # reported by the names of the files
            self._report.add(code, offset=damage.physical_offset, details={"bytes": damage.size, **facts},
                             **self._named(damage.physical_offset))  # fmt: skip

    def _code_of(self, damage: Damage) -> tuple[str, dict[str, Any]]:
        """The code of the fault, and what its finding says beside the size of the damage."""
        reason = damage.reason
        if reason == "missing":
            return "commitlog.gap", {}
        if reason == "leftover" and not self._is_begun(damage):
            return "commitlog.stale-bytes", {}
        if reason == "physical-offset" and damage.tail and self._is_old(damage):
            return "commitlog.stale-bytes", {}
        if damage.tail and reason != "physical-offset":
            return "commitlog.torn", {"problem": "record"}
        file = file_at(self._files, damage.physical_offset)
        size, magic_code = self._head(damage.physical_offset)
        if magic_code == MAGIC_CODE_BLANK:
            return "commitlog.blank", {"problem": "inside"}
        if file is not None and damage.physical_offset + damage.size == file.end_offset and reason == "zeroed":
            return "commitlog.blank", {"problem": "zeros"}
        if reason in ("lengths", "truncated") and file is not None and damage.physical_offset + size > file.end_offset:
            return "commitlog.huge-size", {"claimed": size}
        return f"commitlog.{reason}", {}

    def _is_old(self, damage: Damage) -> bool:
        """Whether it is at most a page, and begins with a copy of an earlier record.

        A broker that writes without mmap fills pages with the former content of its buffer (`DefaultMappedFile`).
        """
        start, file = damage.physical_offset, file_at(self._files, damage.physical_offset)
        if file is None or damage.size > (file.start_offset - start) % _PAGE_SIZE:
            return False
        head = np.frombuffer(read_at(self._files, start, _HEADER.itemsize), _HEADER)[0]
        size, stored_offset = int(head["message_size"]), int(head["physical_offset"])
        return stored_offset < start and read_at(self._files, start, size) == read_at(self._files, stored_offset, size)

    def _is_begun(self, damage: Damage) -> bool:
        """Whether the few bytes at the log's end are the first ones of a record."""
        size, magic_code = self._head(damage.physical_offset)
        begun = magic_code.to_bytes(4, "big", signed=True).rstrip(b"\0")
        return damage.size <= BLANK_SIZE and size >= MIN_MESSAGE_SIZE and _MAGIC_CODE.startswith(begun)

    def _head(self, physical_offset: int) -> tuple[int, int]:
        """The first two numbers at a physical offset: a size and a magic code."""
        data = read_at(self._files, physical_offset, BLANK_SIZE)
        if len(data) < BLANK_SIZE:
            return 0, 0
        file = file_at(self._files, physical_offset)
        if file is not None and file.header_size:
            head = parse(DLedgerBlank, data)
            return int(head.size), _MAGIC_CODE_OF.get(head.magic, 0)
        unit = parse(BlankUnit, data)
        return int(unit.size), int(unit.magic_code)

    def _named(self, physical_offset: int) -> dict[str, Any]:
        file = file_at(self._files, physical_offset)
        return {"file": self._store.relative(file.path)} if file else {}

    def _is_last(self, file: MappedFile) -> bool:
        """Whether all later files hold only zeros."""
        return all(other is file or self._is_empty(other) for other in self._files[self._files.index(file) :])

    def _is_empty(self, file: MappedFile) -> bool:
        """Whether a file holds only zeros, or cannot be read."""
        try:
            with InputFile(file.path) as opened:
                return opened.next_data(0, opened.size) == opened.size
        except UnreadableError:
            return True
