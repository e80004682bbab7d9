"""Each index file by itself: its header, its hash slots and the chains that begin in them (`IndexFile`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.limits import sized
from rmqtool.broker.field_damage import MAX_DOUBTED
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.formats.index_file import (
    HEADER_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    UNIT_DTYPE,
    UNIT_SIZE,
    file_size,
    slot_position,
    unit_position,
)
from rmqtool.formats.layout import decode_units, position_of
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.lock import has_abort
from rmqtool.store.store import Store
from rmqtool.verify.disk_and_time_checks import latest_modification
from rmqtool.verify.index_sequence import FileUnits
from rmqtool.verify.queue_progress import MAX_LOOKUPS
from rmqtool.verify.task import StoreReader, VerifyTask

_CHUNK = 1 << 18  # units
_LEAST_CHUNK = 1 << 16
_HASH_BITS = 31
_MAX_INT = (1 << _HASH_BITS) - 1
_CLOCK_TOLERANCE = 86_400_000  # ms
_PIECE = 1 << 14  # units whose slots are read twice, which is fast while they are in the processor's cache


def check_headers(
    store: Store, files: Sequence[tuple[IndexFile, Geometry | None]], report: Report, *, live: bool
) -> None:
    """Check geometry and header of each index file."""
    report.check("index.geometry", len(files))
    report.check("index.header", len(files))
    for file, geometry in files:
        shown = store.relative(file.path)
        if geometry is None:
            if not file.keys and not live:
                _check_emptied(store, file, report)
            elif file.keys and live:
                changing = {"problem": "changing"}
                report.add("index.geometry", severity="info", effect="none", file=shown, details=changing)
            elif file.keys:
                report.add("index.geometry", file=shown, details={"problem": "no-slots", "keys": file.keys})
            continue
        if file.size != (expected := file_size(geometry.slots, geometry.units)):
            facts = {"problem": "size", "keys": file.keys, "size": file.size, "expected": expected}
            report.add("index.geometry", file=shown, details=facts | {"units": file.units(geometry)})
        for facts in _header_problems(file, geometry, live=live):
            report.add("index.header", file=shown, details=facts)
        if not file.keys and not live:
            _check_emptied(store, file, report)


def _check_emptied(store: Store, file: IndexFile, report: Report) -> None:
    """Report a file without a unit: a broker creates a file for a key that it puts at once (`IndexService#putKey`)."""
    with InputFile(file.path) as opened:
        end = opened.data_end()
    if not file.size:
        facts: dict[str, Any] = {"problem": "empty"}
    elif file.index_count < 0 or file.hash_slot_count < 0:
        facts = {"problem": "negative-counts", "index_count": file.index_count}
        facts["hash_slot_count"] = file.hash_slot_count
    elif end > HEADER_SIZE:
        facts = {"problem": "no-units"}
    else:
        return
    severity: Severity | None = "info" if has_abort(store.root) else None  # the trace of a power loss
    report.add("index.header", severity=severity, file=store.relative(file.path), details=facts)


def _header_problems(file: IndexFile, geometry: Geometry, *, live: bool) -> list[dict[str, Any]]:
    problems: list[dict[str, Any]] = []
    if file.keys >= geometry.units:
        problems.append({"problem": "too-many-units", "keys": file.keys, "room": geometry.units - 1})
    if file.keys and not live and file.end_timestamp < 0:
        problems.append({"problem": "end-timestamp", "found": file.end_timestamp})
    return problems


def check_timestamps(reader: StoreReader, report: Report) -> None:
    """Check that the header's timestamps are those of the messages at its physical offsets."""
    for index_file in reader.index.files:
        for name in ("begin", "end") if index_file.units else ():
            stored = getattr(index_file.file, f"{name}_timestamp")
            actual = reader.lookups.store_timestamp_at(getattr(index_file.file, f"{name}_physical_offset"))
            if actual is not None and actual != stored:
                facts = {"problem": "timestamp", "field": name, "found": stored, "expected": actual}
                report.add("index.header", details=facts, file=reader.store.relative(index_file.file.path),
                           offset=position_of(HEADER_DTYPE, f"{name}_timestamp"))  # fmt: skip


class ChainCheck:
    """Walks through all units of one file in the order of the puts, with the hash slots as they were then.

    Units that another check reads in this order may be added; `run` reads the others.
    """

    def __init__(self, task: VerifyTask, index_file: FileUnits, now: int) -> None:
        """Queries ask for messages up to `now`, epoch ms."""
        self.report = task.report()
        self._index_file = index_file
        self._shown = task.store.relative(index_file.file.path)
        self._live = task.live
        self._slots = np.zeros(index_file.geometry.slots, dtype=np.int32)
        self._next = 1  # number of the first unit that was not added yet
        self._waiting: list[NDArray[np.void]] = []  # checked many at once, while the slots are in the processor's cache
        self._waiting_count = 0  # units
        self._used = 0
        self._chunk = sized(_CHUNK, _LEAST_CHUNK)
        self._broken = np.zeros(index_file.geometry.slots, dtype=np.bool_)  # hash slots whose heads or links are wrong
        self._untimely = np.zeros_like(self._broken)  # those with units of a time for which no query asks
        begin = index_file.file.begin_timestamp
        self._most_seconds = max(-1, min((now - begin) // 1000, _MAX_INT)) if begin >= 0 else -1
        self._heads: list[int] = []  # units to which wrong hash slots lead
        self.doubted: set[int] = set()  # physical offsets in units whose hashes may be damaged
        self.unreached: list[tuple[int, int]] = []  # physical offset and key hash of units that no chain leads to
        self.unreached_step = 1  # of how many of these one is listed

    def add(self, first: int, units: NDArray[np.void]) -> None:
        """Check units from number `first` of the file on; those that do not go on where the last ones ended are not."""
        if first <= self._next < first + len(units):
            self._waiting.append(units[self._next - first :])
            self._waiting_count += len(self._waiting[-1])
            self._next = first + len(units)
            is_done = self._live and self._next > self._index_file.units
            if is_done or self._waiting_count >= self._chunk:
                self._check_waiting()
            if is_done:  # a part of a log that grows may have any number of index files
                self._slots = self._broken = self._untimely = np.empty(0, np.int32)

    def _check_waiting(self) -> None:
        if self._waiting:
            units = np.concatenate(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
            self._waiting, self._waiting_count = [], 0
            self._used += self._check_units(units, self._next - len(units))

    def run(self, reading: ReadPolicy, report: Report) -> Iterator[int]:
        """Check the rest of the file, and report all to `report`.

        Yields how many more bytes are done, those of slots and unused room last.
        """
        report.merge(self.report)
        self.report, index_file, left = report, self._index_file, self._index_file.file.size
        self.report.check("index.slot", index_file.units)
        self.report.check("index.chain", index_file.units)
        with InputFile(index_file.file.path, reading, index_file.file.size) as file:
            for first in range(self._next, index_file.units + 1, self._chunk):
                count = min(self._chunk, index_file.units + 1 - first)
                data = file.read(unit_position(index_file.geometry.slots, first), count * UNIT_SIZE)
                self.add(first, decode_units(UNIT_DTYPE, data))
                yield count * UNIT_SIZE
                left -= count * UNIT_SIZE
            self._check_waiting()
            yield left
            if self._live:
                return  # header and slots are newer than the checked units
            self._check_ends(file)
            has_wrong_links = self._broken.copy()
            self._broken |= self._untimely
            self._check_slots(file)
            if self._broken.any():
                self._find_unreached(file, has_wrong_links)
        self._check_slot_count()

    def _check_slot_count(self) -> None:
        """Check the number of used hash slots, which no broker reads, so that no query misses a message by it.

        Before 4.7.1 each put was counted, later each slot that is newly used: in one file both may stand.
        """
        stored, used, keys = self._index_file.file.hash_slot_count, self._used, self._index_file.file.keys
        if self._index_file.units and not used <= stored <= keys:
            self.report.add(
                "index.header", severity="info", effect="none: no broker reads this number",
                file=self._shown, offset=position_of(HEADER_DTYPE, "hash_slot_count"),
                details={"problem": "used-slots", "field": "hash_slot_count", "found": stored, "least": used,
                         "most": keys},
            )  # fmt: skip

    def _check_units(self, units: NDArray[np.void], first: int) -> int:
        """Check the links of units from number `first` on, and enter them into the slots; returns newly used slots."""
        unit_numbers = np.arange(first, first + len(units), dtype=np.int32)
        hashes = units["key_hash"].astype(np.int32)
        previous = units["previous"].astype(np.int32)
        expected = np.empty(len(units), dtype=np.int32)
        at = _slots_of(hashes, len(self._slots))
        for low in range(0, len(units), _PIECE):
            piece = slice(low, low + _PIECE)
            expected[piece] = previous_units(at[piece], unit_numbers[piece], self._slots)
        wrong = previous != expected
        wrong |= hashes < 0
        for row in np.flatnonzero(wrong).tolist():
            code, facts = "index.slot", {"problem": "link", "found": int(previous[row]), "expected": int(expected[row])}
            if hashes[row] < 0:
                code, facts = "index.unit", {"problem": "negative-hash", "found": int(hashes[row])}
            elif previous[row] >= unit_numbers[row]:
                code, facts = "index.chain", {"found": int(previous[row])}
            unit_number = int(unit_numbers[row])
            self._broken[at[row]] = True
            self._add(code, {"unit": unit_number, **facts}, unit_position(len(self._slots), unit_number))
        is_timely = self._are_timely(units)
        if not is_timely.all():
            self._untimely[at[~is_timely]] = True
        return int(np.count_nonzero(expected == 0))

    def _are_timely(self, units: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which units have a time that queries ask for, from 1970 until now."""
        seconds = units["seconds_since_begin"].astype(np.int32).view(np.uint32)  # negative ones are too large then
        timely: NDArray[np.bool_] = seconds < self._most_seconds + 1
        return timely

    def _check_slots(self, file: InputFile) -> None:
        for first in range(0, len(self._slots), self._chunk):
            count = min(self._chunk, len(self._slots) - first)
            stored = np.frombuffer(file.read(slot_position(first), SLOT_DTYPE.itemsize * count), SLOT_DTYPE)
            wanted = self._slots[first : first + len(stored)]
            for row in np.flatnonzero(stored != wanted).tolist():
                self._broken[first + row] = True
                if 0 < int(stored[row]) <= self._index_file.units:
                    self._heads.append(int(stored[row]))
                if self._index_file.units < int(stored[row]) <= self._index_file.file.keys:
                    continue  # to a unit that was cut off with the end of the file
                facts = {"problem": "slot", "slot": first + row}
                facts |= {"found": int(stored[row]), "expected": int(wanted[row])}
                self._add("index.slot", facts, slot_position(first + row))

    def _find_unreached(self, file: InputFile, has_wrong_links: NDArray[np.bool_]) -> None:
        """Walk the broken chains as a query does (`IndexFile#selectPhyOffset`), and note the units that it misses.

        The hash of a unit is doubted where links of its chain are wrong, or the slot of another hash leads to it.
        """
        slots, total = len(self._slots), self._index_file.units
        reached = np.zeros(total + 1, dtype=np.bool_)
        for slot in np.flatnonzero(self._broken).tolist():
            for unit_number in self._walk(file, slot):
                reached[unit_number] = True
        seen = 0
        for first in range(1, total + 1, self._chunk):
            count = min(self._chunk, total + 1 - first)
            units = decode_units(UNIT_DTYPE, file.read(unit_position(slots, first), count * UNIT_SIZE))
            hashes = units["key_hash"].astype(np.int32)
            of_slots = _slots_of(hashes, slots)
            is_reached = reached[first : first + len(units)]
            missed = self._broken[of_slots] & (hashes >= 0) & ~is_reached
            keys = (units["physical_offset"].astype(np.int64) << _HASH_BITS) + hashes
            rows = np.flatnonzero(missed & ~np.isin(keys, keys[is_reached]))  # some are there twice
            listed = rows[-seen % self.unreached_step :: self.unreached_step]
            seen += len(rows)
            self.unreached += zip(units["physical_offset"][listed].tolist(), hashes[listed].tolist(), strict=True)
            while len(self.unreached) > MAX_LOOKUPS:
                self.unreached, self.unreached_step = self.unreached[::2], 2 * self.unreached_step
            doubted = has_wrong_links[of_slots] | np.isin(np.arange(first, first + len(units)), self._heads)
            if len(self.doubted) < MAX_DOUBTED:
                self.doubted.update(units["physical_offset"][doubted].tolist())

    def _walk(self, file: InputFile, slot: int) -> Iterator[int]:
        """The numbers of the units of a hash slot that a query reaches, the newest first."""
        slots, units = len(self._slots), self._index_file.units
        unit_number = int(np.frombuffer(file.read(slot_position(slot), SLOT_DTYPE.itemsize), SLOT_DTYPE)[0])
        before = units + 1
        while 0 < unit_number < before:  # a link to a newer unit would never end
            unit = decode_units(UNIT_DTYPE, file.read(unit_position(slots, unit_number), UNIT_SIZE))[0]
            if int(unit["seconds_since_begin"]) < 0:
                return
            if int(unit["key_hash"]) % slots == slot and int(unit["seconds_since_begin"]) <= self._most_seconds:
                yield unit_number
            before, unit_number = unit_number, int(unit["previous"])

    def _check_ends(self, file: InputFile) -> None:
        """Check that the header's physical offsets are those of the first and the last unit."""
        index_file = self._index_file
        ends = {"begin": 1, "end": index_file.file.keys}  # of a file that is cut the last unit is not there
        for name, unit_number in ends.items():
            if not 0 < unit_number <= index_file.units:
                continue
            unit = decode_units(
                UNIT_DTYPE, file.read(unit_position(index_file.geometry.slots, unit_number), UNIT_SIZE)
            )[0]
            stored = getattr(index_file.file, f"{name}_physical_offset")
            actual = int(unit["physical_offset"])
            if actual != stored:
                facts = {"problem": "physical-offset", "field": name, "found": stored, "expected": actual}
                facts["unit"] = unit_number
                self._add("index.header", facts, position_of(HEADER_DTYPE, f"{name}_physical_offset"))

    def _add(self, code: str, facts: Mapping[str, Any], offset: int) -> None:
        self.report.add(code, file=self._shown, offset=offset, details=facts)


class ChainChecks:
    """The checks of the files of one process, fed with units that are read anyway."""

    def __init__(self, task: VerifyTask) -> None:
        self._task = task
        self._now = max(int(time.time() * 1000), latest_modification(task.files)) + _CLOCK_TOLERANCE
        self._checks: dict[str, ChainCheck | None] = {}  # by the file's path; None once taken

    def add(self, index_file: FileUnits, first: int, units: NDArray[np.void]) -> None:
        """Check units of a file that were read, from number `first` among all units on."""
        name, start = str(index_file.file.path), index_file.start
        if start == first and len(units) and name not in self._checks:
            self._checks[name] = ChainCheck(self._task, index_file, self._now)
        check = self._checks.get(name)
        if check is not None:
            check.add(first - start + 1, units)

    def take(self, index_file: FileUnits) -> ChainCheck:
        """The check of a file, with what is done of it."""
        name = str(index_file.file.path)
        check = self._checks.get(name) or ChainCheck(self._task, index_file, self._now)
        self._checks[name] = None
        return check


def _slots_of(hashes: NDArray[np.int32], slots: int) -> NDArray[np.intp]:
    """The remainder of each hash's absolute value; NumPy divides by one number much faster than it takes remainders."""
    values = np.abs(hashes).view(np.uint32)
    values -= values // np.uint32(slots) * np.uint32(slots)
    return values.astype(np.intp)


def previous_units(
    slot_indices: NDArray[np.intp], unit_numbers: NDArray[np.int32], slots: NDArray[np.int32]
) -> NDArray[np.int32]:
    """The number of the unit before each new one in its slot; `slots` are updated to the newest units."""
    expected = slots.take(slot_indices)  # faster than an index
    slots[slot_indices] = unit_numbers
    latest = slots.take(slot_indices)
    shares_slot = latest != unit_numbers  # with a later one of these units
    if shares_slot.any():
        shares_slot[latest[shares_slot] - unit_numbers[0]] = True
        rows = np.flatnonzero(shares_slot)
        order = rows[np.argsort(slot_indices[rows], kind="stable")]
        repeated = np.flatnonzero(slot_indices[order[1:]] == slot_indices[order[:-1]])
        expected[order[repeated + 1]] = unit_numbers[order[repeated]]
    return expected
