"""Checks of the log: single records, with checksums, flags, times and properties; damage, and the ends of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at, read_at
from rmqtool.broker.destinations import Undeliverable, undeliverable
from rmqtool.broker.dispatcher import Dispatched
from rmqtool.findings.report import Report
from rmqtool.formats.dledger import MAGIC_BLANK, MAGIC_ENTRY, DLedgerBlank
from rmqtool.formats.layout import parse
from rmqtool.formats.message import (
    BLANK_SIZE,
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    HEADER_DTYPES,
    HOST_BITS,
    INNER_BATCH,
    MAGIC_CODE_BLANK,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MIN_MESSAGE_SIZE,
    MULTI_TAGS,
    NEED_UNWRAP,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    compression,
)
from rmqtool.formats.message import Blank as BlankUnit
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.rules.versions import MAGIC_CODE_V2_SINCE, NEGATIVE_SIZES_KNOWN, SIZE_COMPARED_FIRST, Version
from rmqtool.scan.block import Blank, Damage, Positions
from rmqtool.scan.bodies import BodyError, begins_as_flagged, compressed_but_not_flagged, decompress, may_be_of
from rmqtool.scan.frames import RecordRun, crcs_of, wrong_property_crcs
from rmqtool.scan.inert_records import inert_rows
from rmqtool.store.store import Store
from rmqtool.verify.bad_extents import Extents

_KNOWN_FLAGS = 0x7FF
_LAST_COMPRESSION_TYPE = 0x300  # 0 to 3 are zlib, lz4, zstd, zlib; Java refuses 4 to 7
_HARMLESS = COMPRESSED | _LAST_COMPRESSION_TYPE | MULTI_TAGS | TRANSACTION_COMMIT | HOST_BITS | NEED_UNWRAP
"""Flags that are valid in all combinations."""

_COMPRESSION_TYPES = (0x000, 0x100, 0x200)  # zlib, lz4, zstd
_MAX_UNFLAGGED = 64
_MAX_UNDELIVERABLE = 10_000  # that are remembered one by one
_CLOCK_STEP = 60_000  # clocks are often set back by less, ms


class Unflagged(NamedTuple):
    """A body that is compressed as `expected_flag` says, while its sys flag calls it plain."""

    physical_offset: int
    topic: str
    sys_flag: int
    expected_flag: int


class HeldFinding(NamedTuple):
    """A finding of the last record, which is dropped when that record was not written to its end."""

    code: str
    facts: Mapping[str, Any]
    physical_offset: int
    size: int


@dataclass
class RecordTotals:
    """Counts and times of the records of a part of the log; times are epoch ms."""

    messages: int = 0
    bytes: int = 0
    without_body: int = 0
    without_property_crc: int = 0
    last_timestamp: int = 0
    latest: int = 0  # the largest store timestamp
    latest_offset: int = 0
    largest_step: int = 0  # by which a store timestamp lies before the largest one, ms
    step_offset: int = 0
    earliest: int = 0  # the smallest store timestamp
    earliest_offset: int = 0
    unwritten_end: int | None = None  # where the last record begins, when its properties end in zero bytes
    compressing: set[str] = field(default_factory=set)  # topics with compressed bodies
    unflagged: list[Unflagged] = field(default_factory=list)
    held: list[HeldFinding] = field(default_factory=list)  # findings of that record, unless the log ends there
    undeliverable: list[Undeliverable] = field(default_factory=list)

    def extend(self, other: RecordTotals) -> None:
        """Add those of the next part of the log."""
        if not other.messages:
            return
        if self.messages:
            self._step(self.latest - other.earliest, other.earliest_offset)
        self._step(other.largest_step, other.step_offset)
        if not self.messages or other.earliest < self.earliest:
            self.earliest, self.earliest_offset = other.earliest, other.earliest_offset
        for name in ("messages", "bytes", "without_body", "without_property_crc"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.last_timestamp, self.unwritten_end, self.held = other.last_timestamp, other.unwritten_end, other.held
        self.compressing |= other.compressing
        self.unflagged.extend(other.unflagged[: _MAX_UNFLAGGED - len(self.unflagged)])
        self.undeliverable += other.undeliverable[: _MAX_UNDELIVERABLE - len(self.undeliverable)]
        if other.latest > self.latest:
            self.latest, self.latest_offset = other.latest, other.latest_offset

    def _step(self, step: int, offset: int) -> None:
        if step > self.largest_step:
            self.largest_step, self.step_offset = step, offset


@dataclass
class RecordChecks:
    """Checks runs of records in log order; findings go to `report`, damaged records to `extents`."""

    report: Report
    extents: Extents
    version: Version | None
    bodies: bool = True
    totals: RecordTotals = field(default_factory=RecordTotals)
    undecodable: list[int] = field(default_factory=list)
    """Rows of the last run that a broker serves, and that no client decodes."""

    def add(self, frames: RecordRun, dispatched: Dispatched) -> Positions:
        """Check a run; returns the rows that a broker takes for damaged, because of their body or properties."""
        self.totals.messages += len(frames)
        self.totals.bytes += frames.record_bytes
        settle_held(self.totals, self.report, self.extents)
        self.totals.unwritten_end = _unwritten_end(frames)
        bad = self._check_bodies(frames) if self.bodies else {}
        if self.bodies:
            self._check_compression(frames, dispatched, bad)
        self._check_property_crcs(frames, bad)
        self._check_flags(frames)
        self._check_times(frames)
        self._check_version(frames)
        self._check_properties(frames, dispatched, bad)
        self._check_destinations(frames, dispatched)
        for row in inert_rows(frames):
            offset = _offset(frames, row)
            self.extents.inert.append(offset)
            size = {"bytes": int(frames.message_sizes[row])}
            self.report.add("commitlog.neutralised", offset=offset, details=size)
        rows = sorted(bad)
        held = {each.physical_offset for each in self.totals.held}
        for row in rows:
            if bad[row] == "body-crc" or _offset(frames, row) not in held:
                self.extents.add(_offset(frames, row), int(frames.message_sizes[row]), bad[row])
        return np.array([row for row in rows if bad[row] != "property-crc"], dtype=np.intp)

    def _check_bodies(self, frames: RecordRun) -> dict[int, str]:
        with_body = int(np.count_nonzero(frames.body_sizes))
        self.totals.without_body += len(frames) - with_body
        self.report.check("commitlog.body-crc", with_body)
        bad = np.flatnonzero(frames.wrong_bodies)
        computed = crcs_of(frames.block, frames.body_positions[bad], frames.body_sizes[bad])
        stored = frames.headers.field("body_crc")[bad].view(np.uint32)
        for row, actual, expected in zip(bad.tolist(), computed.tolist(), stored.tolist(), strict=True):
            facts = {"body_size": int(frames.body_sizes[row]), "found": actual, "expected": expected}
            self._report(frames, row, "commitlog.body-crc", facts)
        return dict.fromkeys(bad.tolist(), "body-crc")

    def _check_compression(self, frames: RecordRun, dispatched: Dispatched, bad: dict[int, str]) -> None:
        """Check that bodies are compressed as their flags say: a client ends a pull at one that is not.

        A body with the right CRC is what was stored, so that its head shows whether it decompresses.
        """
        flags = frames.headers.field("sys_flag")
        flagged = np.flatnonzero((flags & COMPRESSED != 0) & (frames.body_sizes > 0))
        self.report.check("commitlog.body-compression", len(flagged))
        topics = set(dispatched.topics_of(flagged)) if len(flagged) else set()
        self.totals.compressing.update(topics)
        self.undecodable = []
        for row in np.flatnonzero(~begins_as_flagged(frames)).tolist():
            problem = None if row in bad else _decompression_error(frames, row)
            if problem is not None:
                self.undecodable.append(row)
                self._report_compression(frames, dispatched, row, problem)
        self._note_unflagged(frames, dispatched)

    def _report_compression(self, frames: RecordRun, dispatched: Dispatched, row: int, problem: str) -> None:
        flag, size = int(frames.headers.field("sys_flag")[row]), int(frames.body_sizes[row])
        fits = _fitting_flag(_body(frames, row), flag)
        is_plain = fits is not None and not fits & COMPRESSED
        found = None if is_plain or fits is None else compression(fits)
        details = {"problem": "other" if found else "plain", "sys_flag": flag, "compression": compression(flag),
                   "expected_sys_flag": fits, "found": found, "body_size": size, "why": problem}  # fmt: skip
        if fits is not None and (flag ^ fits).bit_count() == 1 and not _is_covered(frames, row):
            details["cause"] = "flag"
        self.report.add("commitlog.body-compression", offset=_offset(frames, row),
                        topic=dispatched.topics_of(np.array([row]))[0], details=details)  # fmt: skip

    def _note_unflagged(self, frames: RecordRun, dispatched: Dispatched) -> None:
        """Keep some bodies that are compressed and not flagged so, until it is known what their producers do."""
        if len(self.totals.unflagged) >= _MAX_UNFLAGGED:
            return
        for row in compressed_but_not_flagged(frames)[:_MAX_UNFLAGGED].tolist():
            flag = int(frames.headers.field("sys_flag")[row])
            fits = _fitting_flag(_body(frames, row), flag)
            if fits is not None and fits != flag:
                topic = dispatched.topics_of(np.array([row]))[0]
                self.totals.unflagged.append(Unflagged(_offset(frames, row), topic, flag, fits))

    def _check_property_crcs(self, frames: RecordRun, bad: dict[int, str]) -> None:
        """Check `__CRC32#`, which covers all of the record before it."""
        count = len(frames.property_crcs.rows)
        self.totals.without_property_crc += len(frames) - count
        if not self.bodies or not self.report.selection.wants("commitlog.property-crc") or not count:
            return
        self.report.check("commitlog.property-crc", count)
        for row, wrong in wrong_property_crcs(frames):
            problem = "unreadable" if wrong.stored is None else "other"
            facts = {"problem": problem, "message_size": int(frames.message_sizes[row]),
                     "computed": wrong.computed, "stored": wrong.stored}  # fmt: skip
            self._hold(frames, row, "commitlog.property-crc", facts)
            bad.setdefault(row, "property-crc")

    def _check_flags(self, frames: RecordRun) -> None:
        flags = frames.headers.field("sys_flag")
        self.report.check("commitlog.sys-flag", len(frames))
        used = int(np.bitwise_or.reduce(flags))
        if not used & ~_HARMLESS:
            return
        prepared_offsets = (flags & TRANSACTION_PREPARED) != 0
        if prepared_offsets.any():
            prepared_offsets &= frames.headers.field("queue_offset") != 0
        distinct = np.unique(flags).tolist()
        wrong = np.isin(flags, [flag for flag in distinct if wrong_flag(flag)]) | prepared_offsets
        for row in np.flatnonzero(wrong).tolist():
            why = wrong_flag(int(flags[row])) or "prepared or rolled back, but with a queue offset"
            self._report(frames, row, "commitlog.sys-flag", {"sys_flag": int(flags[row]), "why": why})

    def _check_times(self, frames: RecordRun) -> None:
        times = frames.headers.field("store_timestamp")
        totals = self.totals
        self.report.check("commitlog.time-order", len(frames))
        self.report.check("commitlog.future-timestamp", len(frames))
        row = int(np.argmin(times))
        if totals.messages == len(frames) or int(times[row]) < totals.earliest:
            totals.earliest, totals.earliest_offset = int(times[row]), _offset(frames, row)
        latest = np.maximum(np.maximum.accumulate(times), totals.latest)
        steps = latest - times
        row = int(np.argmax(steps))
        if int(steps[row]) > totals.largest_step:
            totals.largest_step, totals.step_offset = int(steps[row]), _offset(frames, row)
        if int(latest[-1]) > totals.latest:
            totals.latest, totals.latest_offset = int(latest[-1]), _offset(frames, int(np.argmax(times)))
        totals.last_timestamp = int(times[-1])

    def _check_version(self, frames: RecordRun) -> None:
        if self.version is None or self.version >= MAGIC_CODE_V2_SINCE:
            return
        self.report.check("commitlog.magic-code-v2", len(frames))
        for row in np.flatnonzero(frames.headers.field("magic_code") == MAGIC_CODE_V2).tolist():
            self._report(frames, row, "commitlog.magic-code-v2", {"version": str(self.version)})

    def _check_properties(self, frames: RecordRun, dispatched: Dispatched, bad: dict[int, str]) -> None:
        self.report.check("commitlog.properties", len(frames))
        for row in dispatched.refused_rows.tolist():
            self._hold(frames, row, "commitlog.properties", {})
            bad.setdefault(row, "properties")

    def _check_destinations(self, frames: RecordRun, dispatched: Dispatched) -> None:
        self.report.check("commitlog.destination", len(frames))
        for each in undeliverable(frames, dispatched):
            if len(self.totals.undeliverable) < _MAX_UNDELIVERABLE:
                self.totals.undeliverable.append(each)
            facts = {"problem": "timer" if each.queue.topic == TIMER_TOPIC else "level",
                     "queue_id": each.queue.queue_id, "queue_offset": each.queue_offset}  # fmt: skip
            self.report.add("commitlog.destination", offset=each.physical_offset, details=facts)

    def _hold(self, frames: RecordRun, row: int, code: str, facts: Mapping[str, Any]) -> None:
        """Report a finding, but hold it if the last record may not have been written to its end."""
        if _offset(frames, row) == self.totals.unwritten_end:
            self.totals.held.append(HeldFinding(code, facts, _offset(frames, row), int(frames.message_sizes[row])))
        else:
            self._report(frames, row, code, facts)

    def _report(self, frames: RecordRun, row: int, code: str, facts: Mapping[str, Any]) -> None:
        self.report.add(code, offset=_offset(frames, row), details=facts)


def finish_compression(totals: RecordTotals, report: Report) -> None:
    """Report compressed bodies without the flag, in topics whose producers compress: people may send what they like."""
    for each in totals.unflagged:
        if each.topic in totals.compressing:
            details = {"problem": "not-flagged", "sys_flag": each.sys_flag, "compression": "none",
                       "expected_sys_flag": each.expected_flag, "found": compression(each.expected_flag)}  # fmt: skip
            report.add("commitlog.body-compression", severity="info", offset=each.physical_offset,
                       topic=each.topic, effect="consumers get the compressed bytes", details=details)  # fmt: skip


def _body(frames: RecordRun, row: int) -> bytes:
    start = int(frames.body_positions[row])
    return bytes(frames.block.view[start : start + int(frames.body_sizes[row])])


def _decompression_error(frames: RecordRun, row: int) -> str | None:
    """Why a body does not decompress as its flags say; None where it does."""
    try:
        decompress(_body(frames, row), int(frames.headers.field("sys_flag")[row]))
    except BodyError as error:
        return str(error)
    return None


def _is_covered(frames: RecordRun, row: int) -> bool:
    """Whether a right `__CRC32#` proves that the record was stored with its flags."""
    wrong = dict(wrong_property_crcs(frames))
    return row in frames.property_crcs.rows and row not in wrong


def _fitting_flag(body: bytes, flag: int) -> int | None:
    """The sys flag with the compression that a body has; None where it is none of those."""
    rest = flag & ~(COMPRESSED | COMPRESSION_TYPE_MASK)
    for kind in _COMPRESSION_TYPES:
        if not may_be_of(body, kind):
            continue
        try:
            decompress(body, rest | COMPRESSED | kind)
        except BodyError:
            continue
        return rest | COMPRESSED | kind
    return rest if flag & COMPRESSED else None


def settle_held(totals: RecordTotals, report: Report, extents: Extents) -> None:
    """Report the held findings: the log goes on after the record, which is damaged."""
    for code, facts, offset, size in totals.held:
        report.add(code, offset=offset, details=facts)
        extents.add(offset, size, code.removeprefix("commitlog."))
    totals.held = []


def finish_times(totals: RecordTotals, report: Report, now: int) -> None:
    """Report wrong times in the whole log; `now` is the latest time of any clock, epoch ms."""
    if totals.largest_step > _CLOCK_STEP:
        seconds = {"seconds": totals.largest_step / 1000}
        report.add("commitlog.time-order", offset=totals.step_offset, details=seconds)
    if totals.latest > now:
        time = {"store_timestamp": totals.latest}
        report.add("commitlog.future-timestamp", offset=totals.latest_offset, details=time)


def finish_end(totals: RecordTotals, report: Report) -> None:
    """Report a last record that was not written to its end: its properties end in zeros."""
    if totals.unwritten_end is not None:
        report.add("commitlog.torn", offset=totals.unwritten_end, details={"problem": "properties"},
                   effect="the broker keeps the message, without what its last properties said")  # fmt: skip


def _unwritten_end(frames: RecordRun) -> int | None:
    last = len(frames) - 1
    end = int(frames.positions[last] + frames.message_sizes[last])
    return _offset(frames, last) if frames.properties_sizes[last] and not frames.block.data[end - 1] else None


def wrong_flag(flag: int) -> str | None:
    """Why a sys flag is invalid; None when it is valid."""
    if flag & ~_KNOWN_FLAGS:
        return "unknown bits"
    if flag & COMPRESSED and flag & COMPRESSION_TYPE_MASK > _LAST_COMPRESSION_TYPE:
        return "unknown compression type"
    if flag & INNER_BATCH and not flag & NEED_UNWRAP:
        return "an inner batch that need not be unwrapped"
    return None


def _offset(frames: RecordRun, row: int) -> int:
    return int(frames.positions[row]) + frames.block.start_offset


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
