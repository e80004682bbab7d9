"""The log against the queues: each record that the broker dispatches has its unit at its queue offset.

Runs of expected units are compared as bytes with those in the queue, and unit by unit only where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.limits import sized
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.dispatched_units import QueueName, QueueUnits, WaitingUnits
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.field_damage import SuspectUnit, suspect_of
from rmqtool.findings.finding import Severity
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS, UNIT_SIZE, is_pre_blank
from rmqtool.rules.system_topics import LITE_PREFIX, LMQ_PREFIX, SCHEDULE_TOPIC
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind, Queue, queue_in
from rmqtool.store.delays_seen import SeenDelays
from rmqtool.store.queue_units import reads_ext_units, with_ext_codes
from rmqtool.store.unit_files import RocksDbUnits, UnitFiles, count_leading
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.queue_leftovers import report_bad_units
from rmqtool.verify.queue_progress import MAX_EXAMPLES, MAX_LOOKUPS, QueueProgress, report_jump
from rmqtool.verify.task import StoreReader


class UnitDifference(NamedTuple):
    """The fault of the unit in one row; `severity` is None for the usual one of the code."""

    row: int
    code: str
    facts: Mapping[str, Any]
    severity: Severity | None = None
    effect: str | None = None


def differences(
    units: QueueUnits, stored: NDArray[np.void], in_ext: NDArray[np.bool_], *, reads_ext: bool = True
) -> Iterator[UnitDifference]:
    """Compare the expected `units` with the `stored` ones, of which those `in_ext` have the codes of ext units.

    Where no broker `reads_ext` units the message of a unit without one is sent for any tag, now and later.
    """
    is_size_equal = stored["message_size"] == units.message_sizes
    is_code_equal = stored["tags_code"] == units.tags_codes
    for row in np.flatnonzero(stored["tags_code"] <= MAX_EXT_ADDRESS).tolist():
        address = {"found": int(stored["tags_code"][row])}
        yield UnitDifference(row, "consumequeue.ext-address", address, None if reads_ext else "info")
    other_codes = ~is_code_equal & (stored["tags_code"] > MAX_EXT_ADDRESS)
    for row in np.flatnonzero(other_codes).tolist():
        yield _of_code(row, int(stored["tags_code"][row]), units, is_in_ext=bool(in_ext[row]))
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


def _of_code(row: int, tags_code: int, units: QueueUnits, *, is_in_ext: bool) -> UnitDifference:
    codes = {"found": tags_code, "expected": int(units.tags_codes[row])}
    if tags_code == int(units.tags_hashes[row]):
        return UnitDifference(row, "consumequeue.tags-code", {"problem": "recovered-as-tags", **codes}, "info")
    is_hash = int(units.tags_codes[row]) == int(units.tags_hashes[row])
    if is_hash and not is_in_ext and (tags_code ^ codes["expected"]) & _COMPARED == 0:
        return UnitDifference(row, "consumequeue.tags-code", {"problem": "high-bits", **codes}, "info", _GIVEN)
    return UnitDifference(row, "consumequeue.tags-code", {"problem": "ext-unit" if is_in_ext else "other", **codes})


_GIVEN = "nothing: consumers that filter by tag get the message all the same"
_COMPARED = 0xFFFFFFFF  # of a tags code, by brokers of all releases: `Long#intValue` (`DefaultMessageFilter`)


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

    def after(self, count: int) -> UnitRun:
        """Those after the first `count` units of a simple queue."""
        start = self.start + count
        physical_offset = int(self.piece.physical_offsets[start]) if start < self.stop else self.last_physical_offset
        return self._replace(start=start, expected=self.expected[count * UNIT_SIZE :], physical_offset=physical_offset,
                             queue_offset=self.queue_offset + count)  # fmt: skip


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
        is_simple = files is not None and files.queue.kind == "simple" and not isinstance(files, RocksDbUnits)
        self._simple = files if is_simple else None

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its state is needed for the units that follow."""
        return not (self._shift or self._lookups_made) and (self._files is None or self._files.queue.kind == "simple")

    def compare(self, run: UnitRun) -> None:
        """Compare a run of units."""
        files, begin = self._simple, run.queue_offset + self._shift
        is_equal = files is not None and files.read(begin, run.stop - run.start) == run.expected
        if not is_equal and self._files is files and self.state.name.topic.startswith(LMQ_PREFIX):
            for each in self._as_appended(run):
                self._compare(each, is_equal=False)
        else:
            self._compare(run, is_equal=is_equal)

    def _compare(self, run: UnitRun, *, is_equal: bool) -> None:
        state, files = self.state, self._files
        piece, start, stop, expected, offset, next_offset, physical_offset, last_physical_offset = run
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
        state.past_unit = int(piece.message_counts[stop - 1] - piece.batch_sizes[stop - 1])
        if files is None:
            self._add_missing("consumequeue.missing-queue", run.units[:MAX_EXAMPLES], count)
        elif isinstance(files, RocksDbUnits):
            self._compare_rows(files, run.units)
        elif files.queue.kind == "batch":
            batches = run.units
            self._compare_run(files, batches, batches.as_batch_consume_queue().tobytes())
        elif is_equal:
            self._prove(offset + self._shift, offset + self._shift + count)
        else:
            self._compare_run(files, run.units, expected)

    def _as_appended(self, run: UnitRun) -> Iterator[UnitRun]:
        """A run of a light queue by the numbers of its units, where its offsets begin again at a start.

        4.9.3, 4.9.4 and 5.0.0 forget them (`DefaultMessageStore#recoverTopicQueueTable`). A queue takes offset 0 at its
        end, and drops those before that (`ConsumeQueue#putMessagePositionInfo`).
        """
        state, files = self.state, self._simple
        number = self._number_at_end(run.physical_offset) if run.queue_offset == 0 else 0
        if number:
            first = replace(run.piece[run.start : run.start + 1], queue_offsets=np.array([number]))
            unit = SuspectUnit(state.name, number, int(first.message_sizes[0]), int(first.tags_codes[0]))
            state.begin_again(run.physical_offset, unit)
            yield UnitRun(first, 0, 1, run.expected[:UNIT_SIZE], number, number + 1, *(2 * (run.physical_offset,)))
            run = run.after(1)
        if run.start == run.stop:
            return
        end = state.next_offset
        if not state.records and files:
            end = files.bisect(run.physical_offset)
            own = run.expected[:UNIT_SIZE]
            is_taken = files.have_expired(run.queue_offset, end, self._reader.log_start, own)
            if not is_taken and not self._is_own(files, run.queue_offset, run.physical_offset):
                end = 0
        elif not (state.begun or state.repeated):
            end = 0
        if run.queue_offset < end and not (files and files.find(run.physical_offset)):
            dropped = min(run.stop - run.start, end - run.queue_offset)
            state.repeat(run.queue_offset, run.physical_offset, dropped)
            run = run.after(dropped)
        if run.start < run.stop:
            yield run

    def _number_at_end(self, physical_offset: int) -> int:
        """The number of the unit of a message with queue offset 0 at the end of a light queue, 0 where it begins one.

        The queue of a lite topic expires, and begins again unless the unit shows that it went on.
        """
        state, files = self.state, self._simple
        number = files.find(physical_offset) if files else None
        if number is not None:
            return number
        if state.records:
            return 0 if state.name.topic.startswith(LITE_PREFIX) else state.next_offset
        is_behind = files is not None and self._is_own(files, files.data_end - 1, physical_offset)
        return files.data_end if files and is_behind else 0

    def _is_own(self, files: UnitFiles, number: int, physical_offset: int) -> bool:
        """Whether the unit with a number is right, and that of a message before the one at an offset."""
        if number < files.start or not files.is_written(unit := files.units(number, 1))[0]:
            return False
        target = int(unit["physical_offset"][0])
        owners = self._lookups.queues_of(target) if target < physical_offset else None
        return owners is not None and owners.get(self.state.name) in (0, number)

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
            count = count_leading(wrong)  # whose records are not read: all units of another store are wrong
            self._report.count("consumequeue.wrong-record", count, self.state.name.topic)
            self.state.prove(unit_number, unit_number + count, is_bad=True)
            self._next = unit_number + count
            return count
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

    def _differ(self, units: QueueUnits, stored: NDArray[np.void], unit_number: int) -> None:
        """Report units that point to the right record but differ in other fields; one of another size serves no one."""
        is_bad = stored["message_size"] != units.message_sizes
        edges = [0, *(np.flatnonzero(is_bad[1:] != is_bad[:-1]) + 1).tolist(), len(units)]
        for start, stop in pairwise(edges):
            self.state.prove(unit_number + start, unit_number + stop, is_bad=bool(is_bad[start]))
        with_codes = with_ext_codes(self._store, self._files.queue, stored) if self._files else stored
        stored, is_in_ext = with_codes, with_codes["tags_code"] != stored["tags_code"]
        if self.state.name.topic == SCHEDULE_TOPIC:
            stored = self._with_known_times(units, stored, unit_number)
        reads_ext = reads_ext_units(self._store)
        for row, code, facts, severity, effect in differences(units, stored, is_in_ext, reads_ext=reads_ext):
            stored_code = int(stored["tags_code"][row])
            if code == "consumequeue.tags-code" and self._lookups.has_older_tags_code(
                int(units.physical_offsets[row]), stored_code
            ):
                continue
            if code == "consumequeue.tags-code" and (reads_ext or not is_in_ext[row]):
                self.state.note_tag(units, stored, row, unit_number + row)
            if code in ("consumequeue.tags-code", "consumequeue.batch-unit"):
                self._suspect(stored[row : row + 1], unit_number + row)
            self._add(code, facts, units, row, unit_number + row, severity=severity, effect=effect)

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


BATCH = 256 << 10
"""Units that are collected before they are compared: few enough for the cache, and enough for each of many queues."""

_UNITS_PER_QUEUE = 256
_MAX_BATCH = 1024 << 10
_LEAST_SHARE = 8  # where memory is limited: a batch is at least an eighth of these
_NAME_MAX = 255
_RUNS = 1 << 12  # that are looked at together


class QueueCheck:
    """Compares the units of one part of the log, in log order."""

    def __init__(self, reader: StoreReader, result: PartResult, dispatcher: Dispatcher) -> None:
        """`dispatcher` has derived the units, and numbers the queues; findings go to `result`."""
        self._reader = reader
        self._result = result
        self._dispatcher = dispatcher
        self._live = reader.task.live
        self._waiting = WaitingUnits()
        self._batch, self._max_batch = (sized(size, size // _LEAST_SHARE) for size in (BATCH, _MAX_BATCH))
        self._queues: dict[int, OneQueue] = {}

    def add(self, units: QueueUnits, optional: QueueUnits | None = None) -> None:
        """Add the units of a run of records, and those `optional` ones that the queues hold."""
        if optional is not None:
            units = self._with_stored(units, optional)
        self._waiting.add(units)
        if len(self._waiting) >= min(
            max(self._batch, _UNITS_PER_QUEUE * len(self._dispatcher.queues)), self._max_batch
        ):
            self.flush()

    def damage(self, units: QueueUnits) -> None:
        """Note the units of records that are not whole."""
        for queue_number, of_queue in units.by_queue():
            name = self._dispatcher.queues[queue_number]
            state = self._result.states.setdefault(name, QueueProgress(name))
            state.damage(of_queue.queue_offsets.tolist())

    def _with_stored(self, units: QueueUnits, optional: QueueUnits) -> QueueUnits:
        """`units` with those `optional` ones that the queues hold: units of older releases may be missing."""
        stored = optional.as_consume_queue().view("V20")
        held = np.zeros(len(optional), dtype=np.bool_)
        for row, (queue_number, offset) in enumerate(
            zip(optional.queues.tolist(), optional.queue_offsets.tolist(), strict=True)
        ):
            name = self._dispatcher.queues[queue_number]
            with self._result.read_errors.queue(name) if not self._live else nullcontext():
                files = self._files_of(name)
                held[row] = files is not None and files.read(offset, 1) == stored[row].tobytes()
            if not held[row]:
                self._result.states.setdefault(name, QueueProgress(name)).add_optional(offset)
        both = QueueUnits.concatenate([units, optional[held]])
        return both[np.argsort(both.rows, kind="stable")]

    def flush(self) -> None:
        """Compare the collected units."""
        if not len(self._waiting):
            return
        self._result.report.check("consumequeue.missing-unit", len(self._waiting))
        errors = self._result.read_errors
        runs_by_queue = chain.from_iterable(_runs_of(piece, bounds[:-1]) for piece, bounds in self._waiting.drain())
        for queue_number, runs in groupby(runs_by_queue, key=itemgetter(0)):
            name = self._dispatcher.queues[queue_number]
            if self._live:
                self._compare(queue_number, runs)
            elif name not in errors.queues:
                with errors.queue(name):
                    self._compare(queue_number, runs)
                if name in errors.queues:
                    self._result.states.pop(name, None)
        if self._reader.database:
            report_bad_units(self._reader.database, self._result.report)

    def _compare(self, queue_number: int, runs: Iterable[tuple[int, UnitRun]]) -> None:
        """Compare the units of one queue."""
        queue = self._queue(queue_number)
        for _, run in runs:
            queue.compare(run)
        if queue.is_plain:  # of many queues nearly all are; what is kept of them is in their states
            del self._queues[queue_number]

    def _queue(self, queue_number: int) -> OneQueue:
        queue = self._queues.get(queue_number)
        if queue is None:
            name = self._dispatcher.queues[queue_number]
            files, state = self._files_of(name), self._result.states.get(name)
            if state is None:
                state = self._result.states[name] = QueueProgress(name)
            may_be_rows = self._reader.database is not None and not self._reader.store.writes_queues_twice
            in_rows = isinstance(files, RocksDbUnits) or (files is None and may_be_rows)
            state.may_jump = in_rows and self._dispatcher.is_batch_topic(name.topic)
            queue = self._queues[queue_number] = OneQueue(self._reader, self._result, state, files)
        return queue

    def _files_of(self, name: QueueName) -> UnitFiles | None:
        reader = self._reader
        kind: Kind = "batch" if self._dispatcher.is_batch_topic(name.topic) else "simple"
        if reader.store.reads_only_rocksdb:
            return self._in_rocksdb(name)
        known = reader.task.listed.find(kind, *name) if reader.task.listed is not None else None
        if known is not None:
            return UnitFiles(known, reader.open_files)
        if (kind, name) not in reader.queues:
            reader.queues[kind, name] = self._in_files(name, kind) or self._in_rocksdb(name)
        return reader.queues[kind, name]

    def _in_files(self, name: QueueName, kind: Kind) -> UnitFiles | None:
        reader = self._reader
        if not is_directory_name(name.topic) or name.queue_id < 0:
            return None
        directory = reader.store.root / UNIT_FORMATS[kind].directory / name.topic / str(name.queue_id)
        files = list_mapped_files(directory, scope=skip_wrong_type)  # where no directory stands, units are missing
        queue = Queue(name.topic, name.queue_id, kind, files)
        return UnitFiles(queue, reader.open_files, live=self._live) if files.files else None

    def _in_rocksdb(self, name: QueueName) -> UnitFiles | None:
        """The units in RocksDB; of a running broker, which has not flushed all of them, also where there is none."""
        database = self._reader.database
        if self._reader.store.has_copy_of(name.topic):
            return None  # its files count
        if database is None or not (self._live or database.holds(name)):
            return None
        queue = queue_in(database, *name)
        return RocksDbUnits(queue, database, self._reader.open_files, self._reader.log_start)


def _runs_of(piece: QueueUnits, firsts: NDArray[np.intp]) -> Iterator[tuple[int, UnitRun]]:
    """The runs of consecutive queue offsets, each with the number of its queue; `firsts` are where queues begin."""
    stored, offsets = piece.as_consume_queue().tobytes(), piece.queue_offsets
    nexts = offsets + piece.message_counts
    follows = np.zeros(len(piece), dtype=np.bool_)
    follows[1:] = offsets[1:] == nexts[:-1]
    follows[firsts] = False
    starts = np.flatnonzero(~follows)
    stops = np.append(starts[1:], len(piece))
    columns = (piece.queues[starts], starts, stops, offsets[starts], nexts[stops - 1],
               piece.physical_offsets[starts], piece.physical_offsets[stops - 1])  # fmt: skip
    for low in range(0, len(starts), _RUNS):
        of_runs = (column[low : low + _RUNS].tolist() for column in columns)
        for number, start, stop, *ends in zip(*of_runs, strict=True):
            yield number, UnitRun(piece, start, stop, stored[start * UNIT_SIZE : stop * UNIT_SIZE], *ends)


def is_directory_name(topic: str) -> bool:
    """Whether a topic from the log can be the name of a directory: it must not lead out of the store."""
    usable = topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic
    return usable and len(topic.encode("utf-8", "replace")) <= _NAME_MAX
