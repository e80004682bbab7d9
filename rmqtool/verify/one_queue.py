"""The units of one queue against its records: equal, different, elsewhere, or missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.broker.field_damage import suspect_of
from rmqtool.findings.finding import Severity
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS, is_pre_blank
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.delays_seen import SeenDelays
from rmqtool.store.unit_files import RocksDbUnits, UnitFiles, count_leading
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.queue_progress import MAX_EXAMPLES, MAX_LOOKUPS, QueueProgress, report_jump
from rmqtool.verify.task import StoreReader


class UnitDifference(NamedTuple):
    """The fault of the unit in one row; `severity` is None for the usual one of the code."""

    row: int
    code: str
    facts: Mapping[str, Any]
    severity: Severity | None = None


def differences(units: QueueUnits, stored: NDArray[np.void], *, has_ext_units: bool) -> Iterator[UnitDifference]:
    """Compare the expected `units` with the `stored` ones."""
    is_size_equal = stored["message_size"] == units.message_sizes
    is_code_equal = stored["tags_code"] == units.tags_codes
    if not has_ext_units:
        yield from _of_ext_addresses(stored, ~is_code_equal)
    other_codes = ~is_code_equal & (stored["tags_code"] > MAX_EXT_ADDRESS)
    for row in np.flatnonzero(other_codes).tolist():
        yield _of_code(row, int(stored["tags_code"][row]), units)
    for row in np.flatnonzero(~is_size_equal).tolist():
        sizes = {"found": int(stored["message_size"][row]), "expected": int(units.message_sizes[row])}
        yield UnitDifference(row, "consumequeue.wrong-record", {"problem": "size", **sizes})
    if "batch_size" not in (stored.dtype.names or ()) and "store_timestamp" in (stored.dtype.names or ()):
        is_time_equal = stored["store_timestamp"] == units.store_timestamps
        for row in np.flatnonzero(~is_time_equal).tolist():
            times = {"found": int(stored["store_timestamp"][row]), "expected": int(units.store_timestamps[row])}
            yield UnitDifference(row, "consumequeue.store-timestamp", times)
    if "batch_size" in (stored.dtype.names or ()):
        for row in np.flatnonzero(is_size_equal & is_code_equal).tolist():
            yield UnitDifference(row, "consumequeue.batch-unit", {"problem": "other-fields"})


def _of_ext_addresses(stored: NDArray[np.void], rows: NDArray[np.bool_]) -> Iterator[UnitDifference]:
    for row in np.flatnonzero(rows & (stored["tags_code"] <= MAX_EXT_ADDRESS)).tolist():
        yield UnitDifference(row, "consumequeue.ext-address", {"found": int(stored["tags_code"][row])})


def _of_code(row: int, tags_code: int, units: QueueUnits) -> UnitDifference:
    codes = {"found": tags_code, "expected": int(units.tags_codes[row])}
    if tags_code == int(units.tags_hashes[row]):
        return UnitDifference(row, "consumequeue.tags-code", {"problem": "recovered-as-tags", **codes}, "info")
    return UnitDifference(row, "consumequeue.tags-code", {"problem": "other", **codes})


_FEW = 16  # units


class UnitRun(NamedTuple):
    """Units of one queue with consecutive queue offsets: rows `start` to before `stop` of a `piece`.

    `expected` are their bytes in a simple queue; queue and physical offsets are those of the first and behind, or of,
    the last one.
    """

    piece: QueueUnits
    start: int
    stop: int
    expected: bytes
    queue_offset: int
    next_offset: int
    physical_offset: int
    last_physical_offset: int

    @property
    def units(self) -> QueueUnits:
        """The units by their fields."""
        return self.piece[self.start : self.stop]


class OneQueue:
    """Compares the units of one queue with its records."""

    def __init__(self, reader: StoreReader, result: PartResult, state: QueueProgress, files: UnitFiles | None) -> None:
        """Findings go to `result`, proven and missing units to `state`; `files` is None when the queue has none."""
        self.state = state
        self._files = files
        self._store = reader.store
        self._reader = reader
        self._lookups = reader.lookups
        self._report = result.report
        self._extents = result.extents
        self._suspects = result.suspects
        self._shift = 0  # unit number minus queue offset, where units were found so far
        self._lookups_made = 0
        self._next: int | None = None  # of a batch queue: number of the next unit

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its state is needed for the units that follow."""
        return not (self._shift or self._lookups_made) and (self._files is None or self._files.queue.kind == "simple")

    def compare(self, run: UnitRun) -> None:
        """Compare a run of units."""
        state, files = self.state, self._files
        _, start, stop, expected, offset, next_offset, physical_offset, last_physical_offset = run
        count = stop - start
        if not state.records:
            state.first_offset = state.next_offset = offset
            state.first_physical_offset = physical_offset
        state.records += count
        if offset != state.next_offset:  # units of what could not be read may lie between
            self._next = None
            report_jump(state, offset, physical_offset, self._report, self._extents)
        state.had += next_offset - offset
        state.next_offset, state.last_physical_offset = next_offset, last_physical_offset
        if files is None:
            self._add_missing("consumequeue.missing-queue", run.units[:MAX_EXAMPLES], count)
        elif isinstance(files, RocksDbUnits):
            self._compare_rows(files, run.units)
        elif files.queue.kind == "batch":
            batches = run.units
            self._compare_run(files, batches, batches.as_batch_consume_queue().tobytes())
        elif files.read(offset + self._shift, count) == expected:
            self._prove(offset + self._shift, offset + self._shift + count)
        else:
            self._compare_run(files, run.units, expected)

    def _compare_rows(self, files: RocksDbUnits, run: QueueUnits) -> None:
        """Compare with the rows of a queue in RocksDB, where a batch has one, at its first queue offset."""
        expected, first = run.as_rocksdb(), int(run.queue_offsets[0])
        behind = run[run.queue_offsets >= files.data_end]
        if len(behind):
            self._check_behind_end(files, behind)
        if files.read(first, len(expected)) == expected.tobytes():
            self._prove(first, first + len(expected))
        elif len(expected) == len(run):
            self._compare_run(files, run, expected.tobytes())
        else:
            for row in range(len(run)):
                one = run[row : row + 1]
                self._compare_run(files, one, one.as_rocksdb()[:1].tobytes())

    def _check_behind_end(self, files: RocksDbUnits, units: QueueUnits) -> None:
        """Note records whose rows stand past the end that the `max` row gives the queue."""
        first, stop = int(units.queue_offsets[0]), int(units.queue_offsets[-1]) + 1
        rows = files.rows(first, stop)
        known = np.isin(
            units.queue_offsets, rows.offsets[np.isin(rows.values["physical_offset"], units.physical_offsets)]
        )
        if known.any():
            self._add_missing("consumequeue.wrong-end", units[known])

    def _compare_run(self, files: UnitFiles, units: QueueUnits, expected: bytes) -> None:
        done = 0
        while done < len(units):
            unit_number = self._unit_number_of(files, units, done)
            count, at = len(units) - done, done * files.size
            if files.read(unit_number, count) == expected[at:]:
                self._prove(unit_number, unit_number + count)
                return
            done += self._compare_units(files, units[done:], np.frombuffer(expected[at:], files.dtype), unit_number)

    def _unit_number_of(self, files: UnitFiles, units: QueueUnits, row: int) -> int:
        """The number that a record's unit should have; in a batch queue that after the record before."""
        if files.queue.kind == "simple":
            return int(units.queue_offsets[row]) + self._shift
        if self._next is None:
            self._next = files.bisect(int(units.physical_offsets[row]))
        return self._next

    def _prove(self, start: int, stop: int) -> None:
        self.state.prove(start, stop)
        self._next = stop
        if self._shift:
            side = "before" if self._shift < 0 else "behind"
            self._report.add("consumequeue.shifted", count=stop - start, topic=self.state.name.topic,
                             queue_id=self.state.name.queue_id, queue_offset=start,
                             details={"units": stop - start, "distance": abs(self._shift), "side": side})  # fmt: skip
            if self._files is not None and stop - start <= _FEW:  # it may be the stored queue offset that is damaged
                for number in range(start, stop):
                    self._suspect(self._files.units(number, 1), number)

    def _compare_units(self, files: UnitFiles, units: QueueUnits, expected: NDArray[np.void], unit_number: int) -> int:
        """Compare from unit `unit_number` on; returns how many records are done, 0 when their units are elsewhere."""
        _ = files.data_end  # before the units are read: what was written by then must be there
        stored = files.units(unit_number, len(units))
        width = f"V{files.size}"
        equal = stored.view(width) == expected.view(width)
        row = int(np.argmin(equal))
        if row:
            self._prove(unit_number, unit_number + row)
            return row
        same_record = (stored["physical_offset"] == expected["physical_offset"]) & (stored["message_size"] > 0)
        wrong = ~same_record & files.is_written(stored)
        if self._lookups_made >= MAX_LOOKUPS and wrong[0]:
            return self._give_up(count_leading(wrong), unit_number)
        if same_record[0]:
            stop = count_leading(same_record & ~equal)
            self._differ(units[:stop], stored[:stop], unit_number)
            self._next = unit_number + stop
            return stop
        moved = files.find(int(units.physical_offsets[0]))
        if moved is not None and moved != unit_number:
            # Batch units follow each other, whatever records between them cannot be read.
            self._shift = moved - int(units.queue_offsets[0]) if files.queue.kind == "simple" else 0
            self._next = moved
            return 0
        return self._absent(files, units, stored, unit_number)

    def _give_up(self, count: int, unit_number: int) -> int:
        """Count wrong units without reading their records: all units of another store are wrong."""
        self._report.count("consumequeue.wrong-record", count, self.state.name.topic)
        self.state.prove(unit_number, unit_number + count, is_bad=True)
        self._next = unit_number + count
        return count

    def _differ(self, units: QueueUnits, stored: NDArray[np.void], unit_number: int) -> None:
        """Report units that point to the right record but differ in other fields; one of another size serves no one."""
        is_bad = stored["message_size"] != units.message_sizes
        edges = [0, *(np.flatnonzero(is_bad[1:] != is_bad[:-1]) + 1).tolist(), len(units)]
        for start, stop in pairwise(edges):
            self.state.prove(unit_number + start, unit_number + stop, is_bad=bool(is_bad[start]))
        if self.state.name.topic == SCHEDULE_TOPIC:
            stored = self._with_known_times(units, stored, unit_number)
        for row, code, facts, severity in differences(units, stored, has_ext_units=self._store.has_ext_units):
            if code == "consumequeue.tags-code" and self._is_of_older_release(units, stored, row):
                continue
            if code in ("consumequeue.tags-code", "consumequeue.batch-unit"):
                self._suspect(stored[row : row + 1], unit_number + row)
            self._add(code, facts, units, row, unit_number + row, severity=severity)

    def _with_known_times(self, units: QueueUnits, stored: NDArray[np.void], unit_number: int) -> NDArray[np.void]:
        """The stored units of a delay level, with the expected delivery times where theirs are of another setting."""
        if self._files is None:
            return stored
        seen = SeenDelays(self._files, self._reader.task.rules.delay_levels, self._reader.files)
        is_sound = seen.are_sound(unit_number, stored, units.store_timestamps)
        stored = stored.copy()
        stored["tags_code"][is_sound] = units.tags_codes[is_sound]
        return stored

    def _suspect(self, stored: NDArray[np.void], unit_number: int) -> None:
        """Note a unit that differs from its record: a field of that may be damaged."""
        self._suspects.add_unit(int(stored["physical_offset"][0]), suspect_of(self.state.name, unit_number, stored[0]))

    def _is_of_older_release(self, units: QueueUnits, stored: NDArray[np.void], row: int) -> bool:
        """Whether an older release may have given the record the tags code that is stored."""
        return self._lookups.has_older_tags_code(int(units.physical_offsets[row]), int(stored["tags_code"][row]))

    def _absent(self, files: UnitFiles, units: QueueUnits, stored: NDArray[np.void], unit_number: int) -> int:
        """Note records whose unit is nowhere in the queue; returns how many of the first are missing alike."""
        unit_numbers = unit_number + np.arange(len(units))
        simple = files.queue.kind == "simple"
        blank = is_pre_blank(stored) if simple else np.zeros(len(stored), dtype=np.bool_)
        unwritten = ~files.is_written(stored)
        beyond = unit_numbers >= files.data_end
        hole = "consumequeue.missing-unit" if files.queue.database else "consumequeue.hole"
        for code, rows, is_hole in (
            ("consumequeue.behind", beyond, False),
            ("consumequeue.missing-unit", (unit_numbers < files.start) | blank, False),
            (hole, unwritten & ~beyond, True),
        ):
            if rows[0]:
                count = count_leading(rows)
                self._add_missing(code, units[:count])
                if is_hole:
                    self.state.prove(unit_number, unit_number + count, is_bad=True)
                return count
        if simple:
            self._mismatch(units, stored, unit_number)
        else:
            self._add_missing("consumequeue.missing-unit", units[:1])
        return 1

    def _mismatch(self, units: QueueUnits, stored: NDArray[np.void], unit_number: int) -> None:
        """Report a unit that points elsewhere instead of to its record."""
        self._lookups_made += 1
        target = int(stored["physical_offset"][0])
        owners = self._lookups.queues_of(target)
        if owners is None:
            return
        if self.state.name in owners:
            # Two records with this queue offset are reported as a restart; one of another has taken its place.
            if owners[self.state.name] != int(units.queue_offsets[0]):
                self._add_missing("consumequeue.missing-unit", units[:1])
            return
        facts = {"problem": "other-target", "found": target, "expected": int(units.physical_offsets[0])}
        self._add("consumequeue.wrong-record", facts, units, 0, unit_number)
        self.state.prove(unit_number, unit_number + 1, is_bad=True)

    def _add_missing(self, code: str, units: QueueUnits, count: int | None = None) -> None:
        offsets = zip(
            units.queue_offsets[:MAX_EXAMPLES].tolist(), units.physical_offsets[:MAX_EXAMPLES].tolist(), strict=True
        )
        self.state.add_missing(code, list(offsets), len(units) if count is None else count)

    def _add(
        self, code: str, facts: Mapping[str, Any], units: QueueUnits, row: int, unit_number: int, **given: Any
    ) -> None:
        name = self.state.name
        if not self._report.wants_example(code, name.topic) or self._files is None:
            self._report.count(code, 1, name.topic)
            return
        path, position = self._files.location_of(unit_number)
        file = None if path is None else self._store.relative(path)
        self._report.add(code, file=file, offset=position, topic=name.topic, queue_id=name.queue_id,
                         queue_offset=int(units.queue_offsets[row]), details=facts, **given)  # fmt: skip
