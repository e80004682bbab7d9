"""The numbers of units in simple consume queues (`ConsumeQueue#putMessagePositionInfo`), and the times they keep."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import OpenFiles
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName, QueueUnits, group
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, UNIT_DTYPE, is_pre_blank
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.rebuild.existing import (
    ExistingQueues,
    StoredUnits,
    Timestamps,
    Units,
    UnitSink,
    physical_offsets,
    placeholder_units,
)
from rmqtool.rules.broker_conf import DelayLevels
from rmqtool.rules.system_topics import LITE_PREFIX, LMQ_PREFIX, SCHEDULE_TOPIC
from rmqtool.scan.block import Damage
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.consume_queues import Queue
from rmqtool.store.delays_seen import SeenDelays
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.unit_files import UnitFiles, units_of


class KeptTimes:
    """The delivery times that units of the store's delay queues have."""

    def __init__(
        self,
        queues: Callable[[], Sequence[Queue]],
        log: Sequence[MappedFile],
        levels: DelayLevels,
        files: OpenFiles,
        *,
        is_moved: bool = False,
    ) -> None:
        """`queues` gives the store's queues, `log` are the files to which these lead, `levels` those of its broker.

        With `is_moved` messages stand elsewhere in the log that is derived from.
        """
        self._list = queues
        self._log = log
        self._levels = levels
        self._open_files = files
        self.is_moved = is_moved

    @cached_property
    def _queues(self) -> dict[QueueName, UnitFiles]:
        """Those that have files count, where a queue has rows in RocksDB too; what cannot be read keeps nothing."""
        found: dict[QueueName, UnitFiles] = {}
        with suppress(DamagedDatabaseError):
            for queue in self._list():
                if queue.topic == SCHEDULE_TOPIC and queue.kind == "simple":
                    found.setdefault(QueueName(queue.topic, queue.queue_id), units_of(queue, self._open_files))
        return found

    def put_into(self, name: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> Units:
        """Consecutive units of a delay queue from `unit_number` on, with the times that the stored ones have.

        A stored one leads to the same record, and its time is sound.
        """
        stored_files = self._queues.get(name)
        if stored_files is None:
            return units
        with suppress(DamagedDatabaseError):
            return self._with_times(stored_files, unit_number, units, timestamps)
        return units

    def _with_times(self, stored_files: UnitFiles, unit_number: int, units: Units, timestamps: Timestamps) -> Units:
        stored, derived = stored_files.units(unit_number, len(units)), units.view(UNIT_DTYPE)
        field = "message_size" if self.is_moved else "physical_offset"
        rows = (stored[field] == derived[field]) & (stored["message_size"] > 0)
        rows &= stored["tags_code"] != derived["tags_code"]
        for row in np.flatnonzero(rows).tolist() if self.is_moved else ():
            record = single_record_at(self._log, int(stored["physical_offset"][row]))
            rows[row] = record is not None and record.number("store_timestamp") == timestamps[row]
        if not rows.any():
            return units
        seen = SeenDelays(stored_files, self._levels, self._log)
        rows &= seen.are_sound(unit_number, stored, np.asarray(timestamps, dtype=np.int64))
        kept = units.copy()
        kept.view(UNIT_DTYPE)["tags_code"][rows] = stored["tags_code"][rows]
        return kept


MAX_EXTENTS = 1000
"""Extents that are listed one by one; all are counted."""

MAX_KEPT = 100_000
"""Extents that are remembered with their reason, and can be neutralised."""

NEUTRALISED = "neutralised"
"""The reason of an extent that holds a dummy record of ours, which is not counted as a new loss."""

_MAX_STARTS = 1 << 20  # extents that `between` knows one by one; beyond that the last one grows


class Extent(NamedTuple):
    """Bytes of the log that hold no record; `timestamp` is the store time of the record before them, -1 without one.

    `topics` are those of the queues that had its message, where that is known of a record with a damaged body.
    """

    physical_offset: int
    size: int
    reason: str
    timestamp: int
    tail: bool = False
    topics: tuple[str, ...] = ()

    @property
    def is_harmless(self) -> bool:
        """Whether it lies past the last record, or in a dummy record of ours."""
        torn = self.tail and self.reason != "physical-offset"  # records of a file with another name are whole
        return torn or self.reason == NEUTRALISED


class Lost(NamedTuple):
    """The loss in a range of the log, bytes; `missing` is the physical offset of a byte that no file holds, or None."""

    size: int
    missing: int | None


class LostExtents:
    """Damaged and missing extents of a log, and records that a broker takes for damage."""

    def __init__(self) -> None:
        self.extents: list[Extent] = []  # the first MAX_KEPT
        self.count = 0
        self.size = 0  # bytes
        self._harmless = 0  # of these bytes, those after the last record, and those in dummy records
        self._starts: list[int] = []
        self._totals = [0]  # bytes of all extents before each one
        self._missing: list[int] = []  # starts of those that no file holds

    def add(self, damage: Damage, timestamp: int) -> None:
        """Count an extent that the scan met after a record stored at `timestamp`."""
        self.add_extent(Extent(damage.physical_offset, damage.size, damage.reason, timestamp, damage.tail))

    def add_extent(self, extent: Extent) -> None:
        """Count an extent, which lies after all before it."""
        physical_offset, size, reason, *_ = extent
        self.count += 1
        self.size += size
        self._harmless += size if extent.is_harmless else 0
        if len(self.extents) < MAX_KEPT:
            self.extents.append(extent)
        if len(self._starts) < _MAX_STARTS:
            self._starts.append(physical_offset)
            self._totals.append(self._totals[-1] + size)
            if reason == "missing":
                self._missing.append(physical_offset)
        else:
            self._totals[-1] += size

    @property
    def is_lossy(self) -> bool:
        """Whether more than the torn end of the log is lost."""
        return self.size > self._harmless

    @property
    def listed(self) -> list[tuple[int, int, str]]:
        """The first MAX_EXTENTS: physical offset, size, reason."""
        return [(extent.physical_offset, extent.size, extent.reason) for extent in self.extents[:MAX_EXTENTS]]

    def between(self, start: int, stop: int) -> Lost:
        """The loss from physical offset `start` to before `stop`."""
        low, high = bisect_left(self._starts, start), bisect_left(self._starts, stop)
        if low == high:
            return Lost(0, None)
        missing = bisect_left(self._missing, start)
        in_range = missing < len(self._missing) and self._missing[missing] < stop
        return Lost(self._totals[high] - self._totals[low], self._missing[missing] if in_range else None)


Order = Literal["stored", "broker"]
"""The rule for a unit's number: the queue offset stored with the message, or the order in which a broker appends."""

_FEW = 8  # so few units with unexpected queue offsets may have damaged ones; more are believed
_FILLED_AT_ONCE = 1 << 18  # placeholders
_FREE_GAP = 64  # units that may be missing though no byte of the log is: a broker leaves out one or two at a crash


@dataclass
class Irregular:
    """Counts of units in one queue that are not at the number of their stored queue offset, or are dropped."""

    neutral: int = 0  # placeholders of lost messages
    superseded: int = 0  # dropped, since the stored queue offsets of later messages go back
    repeated: int = 0  # dropped, as a broker drops them
    shifted: int = 0  # put where the broker puts them instead of at their stored queue offset
    renumbered: int = 0  # a stored queue offset that the messages around it refute
    strangers: int = 0  # dropped, since the messages around them leave no place for them
    jump: tuple[int, int] | None = None  # numbers between which more are missing than bytes of the log are lost


class _Run(NamedTuple):
    """Units of one queue, or of several one after the other, in log order."""

    offsets: NDArray[np.int64]
    units: Units
    timestamps: Timestamps

    @property
    def physical_offsets(self) -> NDArray[np.int64]:
        return physical_offsets(self.units)

    @property
    def first_physical_offset(self) -> int:
        return int(physical_offsets(self.units[:1])[0])

    @property
    def last_physical_offset(self) -> int:
        return int(physical_offsets(self.units[-1:])[0])

    def rows(self, rows: slice | NDArray[np.bool_]) -> _Run:
        return _Run(*(column[rows] for column in self))


class SimpleQueues:
    """All simple queues: each keeps the number of its next unit.

    With order ``broker`` units go where a broker with empty queues puts them. With ``stored`` each goes to its stored
    queue offset: placeholders replace lost ones, and where the offsets go back the later messages count, as in a queue
    that was cut or begun again. Those of a light queue go on at its end, since its offsets begin again at a start of
    4.9.3, 4.9.4 and 5.0.0. Without gaps and repeats both orders give the same.
    """

    def __init__(
        self,
        names: Sequence[QueueName],
        sinks: Sequence[UnitSink],
        existing: ExistingQueues,
        order: Order,
        lost: LostExtents,
        left_out: int = 0,
        kept_times: KeptTimes | None = None,
    ) -> None:
        """`names` are the queues by number, and grow with the pass; `existing` ones keep their units below the log.

        `left_out` messages are not in the log on purpose. Delayed messages keep their `kept_times`.
        """
        self.irregular: dict[int, Irregular] = defaultdict(Irregular)
        self._names = names
        self._sinks = sinks
        self._existing = existing
        self._order = order
        self._lost = lost
        self._left_out = left_out
        self._kept_times = kept_times
        self._ends = np.empty(0, dtype=np.int64)  # number of the next unit, -1 before the first
        self._last = np.empty(0, dtype=np.int64)  # physical offset of the last unit
        self._firsts: dict[int, int] = {}  # number of the unit that the first file begins with
        self._first_messages: dict[int, int] = {}
        self._goes_on: set[int] = set()  # light queues whose offsets have begun again
        self._pending: dict[int, _Run] = {}  # few units with unexpected queue offsets, until later ones explain them

    def end(self, queue: int) -> int:
        """Number of the next unit; -1 when the queue has none."""
        return int(self._ends[queue]) if queue < len(self._ends) else -1

    def first(self, queue: int) -> int:
        """Number of the first unit in the queue's first file."""
        return self._firsts[queue]

    def first_message(self, queue: int) -> int:
        """Number of the first unit that the log gives the queue."""
        return self._first_messages[queue]

    def add(self, units: StoredUnits) -> None:
        """Place a batch of units, which follow those of the batch before in the log."""
        if not len(units.queues):
            return
        order, bounds = group(units.queues)
        grouped = _Run(*(column.take(order) for column in units[1:]))  # twice as fast as an index
        firsts, lasts = bounds[:-1], bounds[1:] - 1
        queues = units.queues[order[firsts]]
        missing = int(queues.max()) + 1 - len(self._ends)
        if missing > 0:
            more = np.full(max(missing, len(self._ends)), -1, dtype=np.int64)
            self._ends, self._last = np.concatenate([self._ends, more]), np.concatenate([self._last, more])
        offsets = physical_offsets(units.units)
        regular = self._are_regular(grouped, queues, firsts, rising=bool((offsets[1:] > offsets[:-1]).all()))
        begins = grouped.offsets[firsts].tolist()
        bounds_list = bounds.tolist()
        for row, queue in enumerate(queues.tolist()):
            low, high = bounds_list[row], bounds_list[row + 1]
            if queue not in self._firsts and self._goes_on_from_below(queue, begins[row], grouped.units[low : low + 1]):
                regular[row] = begins[row] == self.end(queue)
            if not regular[row]:
                self._add_irregular(queue, grouped.rows(slice(low, high)))
                continue
            if queue not in self._firsts:
                self._begin(queue, begins[row], grouped.rows(slice(low, low + 1)))
            self._write(queue, begins[row], grouped.units[low:high], grouped.timestamps[low:high])
        done, ends = queues[regular], lasts[regular]
        self._ends[done] = grouped.offsets[ends] + 1
        self._last[done] = physical_offsets(grouped.units[ends])

    def finish(self) -> None:
        """Place the pending units."""
        for queue, run in list(self._pending.items()):
            del self._pending[queue]
            self._settle(queue, run)
        for queue in self._goes_on - self._firsts.keys():
            self._ends[queue] = -1  # of no message in the log

    def _are_regular(
        self, grouped: _Run, queues: NDArray[np.int32], firsts: NDArray[np.intp], *, rising: bool
    ) -> NDArray[np.bool_]:
        """The queues whose units follow each other and the queue's end, or begin the queue.

        `rising` is set when physical offsets rise in the whole batch, as they do unless a record has two units.
        """
        steps = np.ones(len(grouped.offsets), dtype=np.bool_)
        steps[1:] = np.diff(grouped.offsets) == 1
        if not rising:
            steps[1:] &= np.diff(grouped.physical_offsets) > 0
        steps[firsts] = True
        begins, ends = grouped.offsets[firsts], self._ends[queues]
        regular: NDArray[np.bool_] = np.logical_and.reduceat(steps, firsts)
        regular &= ((ends < 0) & (begins >= 0)) | (begins == ends)
        regular &= physical_offsets(grouped.units[firsts]) > self._last[queues]
        if self._pending:
            regular &= ~np.isin(queues, np.fromiter(self._pending, np.int32))
        return regular

    def _begin(self, queue: int, unit_number: int, run: _Run) -> None:
        first = self._first_messages[queue] = unit_number
        # Of a choice the log begins again: a broker would have deleted files of older messages with them.
        name, all_files = self._names[queue], not self._left_out
        for prefix in self._existing.units_before_log(name, unit_number, int(run.timestamps[0]), all_files=all_files):
            first = min(first, prefix.first)
            self._write(queue, prefix.first, self._without_lost(queue, prefix.units, run), prefix.timestamps)
        self._firsts[queue] = first

    def _without_lost(self, queue: int, prefix: Units, run: _Run) -> Units:
        """The units of a prefix, with placeholders instead of filler where bytes of the log are lost.

        Filler points to offset 0: a pull that meets it would go on in the next file of the log.
        """
        filler = is_pre_blank(prefix.view(UNIT_DTYPE))
        count = int(filler.sum())
        lost = self._lost.between(-1, run.first_physical_offset)
        if self._order == "broker" or not 0 < count <= lost.size // MIN_MESSAGE_SIZE:
            return prefix
        units = prefix.copy()
        units[filler] = placeholder_units(run.units[:1], count, lost.missing)
        self.irregular[queue].neutral += count
        return units

    def _put(self, queue: int, unit_number: int, run: _Run) -> None:
        if queue not in self._firsts:
            self._begin(queue, unit_number, run)
        self._write(queue, unit_number, run.units, run.timestamps)
        self._ends[queue] = unit_number + len(run.offsets)
        self._last[queue] = run.last_physical_offset

    def _write(self, queue: int, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        name = self._names[queue]
        if self._kept_times and name.topic == SCHEDULE_TOPIC:
            units = self._kept_times.put_into(name, unit_number, units, timestamps)
        for sink in self._sinks:
            sink.put(name, unit_number, units, timestamps)

    def _add_irregular(self, queue: int, run: _Run) -> None:
        """Place units of one queue that do not follow each other, or the queue's end."""
        offsets = run.physical_offsets
        new = np.maximum.accumulate(offsets) == offsets
        new[1:] &= np.diff(offsets) > 0
        pending = self._pending.get(queue)
        new &= offsets > max(int(self._last[queue]), pending.last_physical_offset if pending else -1)
        new &= run.offsets >= 0
        self.irregular[queue].repeated += len(new) - int(new.sum())
        run = run.rows(new)
        borders = np.flatnonzero(np.diff(run.offsets) != 1) + 1
        bounds = [0, *borders.tolist(), len(run.offsets)]
        for low, high in pairwise(bounds):
            if high > low:
                consecutive = run.rows(slice(low, high))
                is_appended = self._order == "broker" or self._is_going_on(queue, consecutive)
                self._append(queue, consecutive) if is_appended else self._preserve(queue, consecutive)

    def _goes_on_from_below(self, queue: int, begin: int, unit: Units) -> bool:
        """Whether the offset of the log's first message of a light queue is before its end, by the units below the log.

        The queue ends with these, then.
        """
        name = self._names[queue]
        is_moved = self._left_out or (self._kept_times and self._kept_times.is_moved)  # units lead to another log
        if is_moved or self._existing.log_min_offset <= 0 or not name.topic.startswith(LMQ_PREFIX):
            return False
        stored, physical_offset = self._existing.queues.get(name), int(physical_offsets(unit)[0])
        if stored is None or queue in self._goes_on or stored.read(begin, 1) == unit.tobytes():
            return False
        number = stored.bisect(physical_offset)
        is_put = begin == 0 < number and stored.find(physical_offset) == number
        if not is_put and not stored.have_expired(begin, number, self._existing.log_min_offset, unit.tobytes()):
            return False
        self._ends[queue] = number
        self._goes_on.add(queue)
        return True

    def _is_going_on(self, queue: int, run: _Run) -> bool:
        """Whether a light queue goes on at its end with offsets below that, as the broker numbered them.

        The queue of a lite topic may have expired instead: it begins again unless the unit at its end leads to the
        message. Any other queue begins again if its first unit leads to the message.
        """
        name, begin, end = self._names[queue], int(run.offsets[0]), self.end(queue)
        if begin >= end or not name.topic.startswith(LMQ_PREFIX):
            return False
        if not begin and queue not in self._goes_on:
            if (pending := self._pending.pop(queue, None)) is not None:
                self._settle(queue, pending)
                end = self.end(queue)
            is_lite = name.topic.startswith(LITE_PREFIX)
            unit = self._existing.unit_at(name, end if is_lite else 0)
            if (unit is not None and int(unit["physical_offset"]) == run.first_physical_offset) == is_lite:
                self._goes_on.add(queue)
        return queue in self._goes_on

    def _append(self, queue: int, run: _Run) -> None:
        """Append as a broker does: offset 0 always, offsets past the end at the end, others not at all."""
        end, begin = self.end(queue), int(run.offsets[0])
        if end < 0:
            self._put(queue, begin, run)
            return
        if begin == 0 < end:
            self._put(queue, end, run.rows(slice(0, 1)))
            self.irregular[queue].shifted += queue not in self._goes_on  # where it was before, too
            run, begin, end = run.rows(slice(1, None)), 1, end + 1
        kept = run.rows(slice(max(0, end - begin), None))
        self.irregular[queue].repeated += len(run.offsets) - len(kept.offsets)
        if len(kept.offsets):
            self.irregular[queue].shifted += len(kept.offsets) if int(kept.offsets[0]) != end else 0
            self._put(queue, end, kept)

    def _preserve(self, queue: int, run: _Run) -> None:
        """Put units with consecutive queue offsets at these, or keep them pending when there are few and a gap."""
        pending = self._pending.pop(queue, None)
        if pending is not None:
            if int(run.offsets[0]) == int(pending.offsets[-1]) + 1:
                run = _Run(*(np.concatenate(pair) for pair in zip(pending, run, strict=True)))
            elif int(run.offsets[0]) == self.end(queue) + len(pending.offsets):
                self.irregular[queue].renumbered += len(pending.offsets)
                self._put(queue, self.end(queue), pending)
            elif int(run.offsets[0]) == self.end(queue):
                # The queue goes on as if they were not there: topic, queue id or offset of theirs is damaged.
                self.irregular[queue].strangers += len(pending.offsets)
            else:
                self._settle(queue, pending)
        if self.end(queue) not in (-1, int(run.offsets[0])) and len(run.offsets) <= _FEW:
            self._pending[queue] = _Run(*(column.copy() for column in run))
        else:
            self._settle(queue, run)

    def _settle(self, queue: int, run: _Run) -> None:
        """Put units at their stored queue offsets: after a gap, or where the queue began again."""
        end, begin = self.end(queue), int(run.offsets[0])
        if end >= 0 and begin < end:
            self._restart(queue, begin, end)
        elif 0 <= end < begin and not self._fill_gap(queue, end, begin, run):
            return
        self._put(queue, begin, run)

    def _restart(self, queue: int, begin: int, end: int) -> None:
        first = self._first_messages[queue]
        self.irregular[queue].superseded += end - max(begin, first)
        # What precedes the first message depends on that message, and is placed again.
        cut = self._firsts.pop(queue) if begin < first else begin
        for sink in self._sinks:
            sink.cut(self._names[queue], cut)

    def _fill_gap(self, queue: int, end: int, begin: int, run: _Run) -> bool:
        """Put placeholders where records are lost; False when more are missing than lost bytes can have held."""
        lost = self._lost.between(int(self._last[queue]), run.first_physical_offset)
        if begin - end > _FREE_GAP + lost.size // MIN_MESSAGE_SIZE + self._left_out:
            self.irregular[queue].jump = self.irregular[queue].jump or (end, begin)
            return False
        self.irregular[queue].neutral += begin - end
        for first in range(end, begin, _FILLED_AT_ONCE):
            count = min(begin - first, _FILLED_AT_ONCE)
            timestamps = np.full(count, run.timestamps[0], dtype=np.int64)
            self._write(queue, first, placeholder_units(run.units[:1], count, lost.missing), timestamps)
        return True


_RAW = np.dtype(f"V{BATCH_UNIT_SIZE}")


class BatchQueues:
    """All batch queues: units one after the other, whatever their queue offsets, and no filler."""

    def __init__(self, names: Sequence[QueueName], sinks: Sequence[UnitSink], existing: ExistingQueues) -> None:
        """`names` are the queues by number, and grow with the pass; `existing` ones keep their units below the log.

        Other queues begin at byte 0.
        """
        self.ranges: dict[int, tuple[int, int]] = {}  # lowest and highest queue offset of each queue, the end exclusive
        self._names = names
        self._sinks = sinks
        self._existing = existing
        self._firsts: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # number of the next unit
        self._last: dict[int, int] = {}  # physical offset of the last unit

    def end(self, queue: int) -> int:
        """Number of the next unit; -1 when the queue has none."""
        return self._ends.get(queue, -1)

    def first(self, queue: int) -> int:
        """Number of the first unit in the queue's first file."""
        return self._firsts[queue]

    def add(self, units: QueueUnits) -> None:
        """Place a batch of units, which follow those of the batch before in the log."""
        if not len(units):
            return
        order, bounds = group(units.queues)
        grouped = units[order]
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            self._add(int(grouped.queues[low]), grouped[low:high])

    def _add(self, queue: int, units: QueueUnits) -> None:
        """Place units of one queue; a broker accepts no negative offset, no empty batch, and no unit twice."""
        kept = (units.queue_offsets >= 0) & (units.batch_sizes > 0)
        kept &= units.physical_offsets > self._last.get(queue, -1)
        kept[1:] &= np.diff(units.physical_offsets) > 0
        units = units[kept]
        if not len(units):
            return
        if queue not in self._ends:
            self._begin(queue)
        stored = units.as_batch_consume_queue().view(_RAW)
        self._write(queue, stored, units.store_timestamps)
        self._last[queue] = int(units.physical_offsets[-1])
        begin, end = int(units.queue_offsets[0]), int(units.queue_offsets[-1]) + int(units.batch_sizes[-1])
        self.ranges[queue] = (self.ranges.get(queue, (begin, 0))[0], end)

    def _begin(self, queue: int) -> None:
        prefix = self._existing.batch_units_before_log(self._names[queue])
        self._firsts[queue] = self._ends[queue] = prefix.first if prefix else 0
        if prefix and len(prefix.units):
            self._write(queue, prefix.units, prefix.timestamps)

    def _write(self, queue: int, units: Units, timestamps: Timestamps) -> None:
        for sink in self._sinks:
            sink.put(self._names[queue], self._ends[queue], units, timestamps)
        self._ends[queue] += len(units)
