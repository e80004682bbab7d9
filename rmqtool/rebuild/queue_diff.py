"""The differences between the units that the log gives and the store's queues."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.field_damage import Suspects, suspect_of
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS, is_pre_blank
from rmqtool.formats.layout import decode_units
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.existing import ExistingQueues, FileGrid, Piece, StoredRows, Timestamps, Units, rows_of
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import (
    INDEX_OF_TAGS,
    MULTI_DISPATCH_SPARES,
    VALUES_MAY_HOLD_SEPARATOR,
    Releases,
)
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.queue_units import ExtTags
from rmqtool.store.rocksdb_queues import LastUnit
from rmqtool.store.store import Store
from rmqtool.store.unit_files import UnitFiles, count_leading

_MAX_LOOKUPS = 4096  # of records, for units that are compared together
SAME, CHANGED, ADDED = 0, 1, 2
QueueKind = Kind | Literal["rocksdb"]
"""The kind of a queue in files, or that it is in RocksDB."""


class Spans:
    """Spans of units with one state each, in order; adjacent spans of one state are joined."""

    __slots__ = ("_bounds", "_states", "end")

    def __init__(self) -> None:
        self._bounds: list[int] = []  # where each span begins; the last one ends at `end`
        self._states: list[int] = []
        self.end = -1

    def add(self, unit_number: int, count: int, state: int) -> None:
        """Add `count` units from `unit_number` on, which is `end` or after it."""
        if self._states and self.end == unit_number and self._states[-1] == state:
            self.end += count
            return
        if self._states and unit_number > self.end:
            self._append(self.end, -1)
        self._append(unit_number, state)
        self.end = unit_number + count

    def add_states(self, unit_number: int, states: NDArray[np.int8]) -> None:
        """Add units from `unit_number` on, with a state for each."""
        borders = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist(), len(states)]
        for low, high in pairwise(borders):
            self.add(unit_number + low, high - low, int(states[low]))

    def cut(self, unit_number: int) -> None:
        """Forget the units from `unit_number` on."""
        while self._bounds and self._bounds[-1] >= unit_number:
            self._bounds.pop()
            self._states.pop()
        self.end = min(self.end, unit_number) if self._bounds else -1

    def count(self, state: int) -> int:
        """How many units have a state."""
        return sum(end - begin for begin, end, span_state in self._spans() if span_state == state)

    def differ_from(self, unit_number: int) -> bool:
        """Whether a unit from `unit_number` on is changed or new."""
        return any(end > unit_number and state in (CHANGED, ADDED) for _, end, state in self._spans())

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        """Where each span begins and ends, and its state."""
        ends = [*self._bounds, self.end][1:]
        return zip(self._bounds, ends, self._states, strict=True)

    def _append(self, unit_number: int, state: int) -> None:
        self._bounds.append(unit_number)
        self._states.append(state)


_NONE: frozenset[int] = frozenset()
_FIRST = frozenset((0,))  # the start offset of the one file that most of many queues have


@dataclass(slots=True)
class QueueDifference:
    """The changes of a rebuild in one queue: counts of units, and start offsets of files to write and to remove."""

    added: int = 0
    changed: int = 0
    dropped: int = 0
    write: frozenset[int] = _NONE
    remove: frozenset[int] = _NONE

    @property
    def is_none(self) -> bool:
        """Whether nothing has to change."""
        return not (self.write or self.remove)


def _shared(starts: set[int]) -> frozenset[int]:
    """The start offsets of files; one set for most of many queues."""
    return _NONE if not starts else _FIRST if starts == _FIRST else frozenset(starts)


class _QueueComparison:
    """Compares the units of a pass with those of the store's queues of one kind, in one place."""

    def __init__(
        self, kind: Kind, place: QueueKind, log_min_offset: int, watched: Mapping[QueueName, Sequence[int]]
    ) -> None:
        """`watched` are unit numbers of each queue whose physical offsets are collected in `targets`."""
        self.targets: dict[QueueName, dict[int, int]] = defaultdict(dict)  # physical offset of watched units
        self.older: Counter[QueueName] = Counter()  # units that only an older release writes as they are
        self.suspects = Suspects()  # records to which other units lead than those that they give
        self.kind = kind
        self.place = place
        self._least = max(log_min_offset, 0)
        self._watched = watched
        self._spans: dict[QueueName, Spans] = defaultdict(Spans)

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Forget units from `unit_number` on."""
        self._spans[queue].cut(unit_number)
        for wanted in [wanted for wanted in self.targets.get(queue, ()) if wanted >= unit_number]:
            del self.targets[queue][wanted]

    def _suspect(
        self, name: QueueName, numbers: NDArray[Any], units: NDArray[np.void], rows: NDArray[np.bool_]
    ) -> None:
        """Note the units of some rows that lead into the log."""
        rows = rows & (units["physical_offset"] >= self._least)
        for row in np.flatnonzero(rows).tolist():
            if self.suspects.is_full:
                return
            suspect = suspect_of(name, int(numbers[row]), units[row])
            self.suspects.add_unit(int(units["physical_offset"][row]), suspect)

    def _watch(self, name: QueueName, numbers: NDArray[Any], units: NDArray[np.void]) -> None:
        for wanted in self._watched.get(name, ()):
            at = int(np.searchsorted(numbers, wanted))
            if at < len(numbers) and numbers[at] == wanted:
                self.targets[name][wanted] = int(units["physical_offset"][at])


class Comparison(_QueueComparison):
    """Compares with queues in files, and notes which files have to be written."""

    def __init__(
        self,
        existing: ExistingQueues,
        watched: Mapping[QueueName, Sequence[int]],
        *,
        takes: Callable[[QueueName], bool] = lambda _: True,
        ext_of: Callable[[Queue], ExtTags] | None = None,
        is_older: Callable[[int, int], bool] = lambda *_: False,
    ) -> None:
        """`ext_of` gives the ext units of a queue, whose tags codes count; an address without one stays.

        `takes` decides whether a queue has files, `is_older` by physical offset and tags code whether an older release
        may have written a unit.
        """
        super().__init__(existing.kind, existing.kind, existing.log_min_offset, watched)
        self._existing = existing
        self._grid: FileGrid = existing.grid
        self.takes = takes
        self._ext_of = ext_of
        self._is_older = is_older
        self._write: dict[QueueName, set[int]] = defaultdict(set)

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Compare units of one queue."""
        data, size = units.view("u1").data, self._grid.unit_size
        for piece in self._grid.pieces(unit_number, len(units)):
            file = self._existing.file(queue, piece.start)
            if file is None:
                self._spans[queue].add(unit_number + piece.low, piece.high - piece.low, ADDED)
                self._write[queue].add(piece.start)
            else:
                self._compare(queue, unit_number, file, piece, bytes(data[piece.low * size : piece.high * size]))
        if queue in self._watched:
            decoded = units.view(self._existing.format.dtype)
            self._watch(queue, unit_number + np.arange(len(units)), decoded)

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Forget units from `unit_number` on; what is different in the file before them stays."""
        super().cut(queue, unit_number)
        first = self._grid.start_of(unit_number)
        keeps = self._spans[queue].differ_from(self._grid.first_unit(first))
        self._write[queue] = {start for start in self._write[queue] if start < first or (start == first and keeps)}

    def has(self, name: QueueName) -> bool:
        """Whether the store has files of a queue."""
        old = self._existing.queues.get(name)
        return old is not None and bool(old.files)

    def difference(self, queue: QueueName, first: int, end: int) -> QueueDifference:
        """The differences in a queue whose units ``first:end`` were put, and its files outside of that range."""
        spans, grid = self._spans.pop(queue, Spans()), self._grid  # asked for once
        write, remove, dropped = set(self._write.pop(queue, ())), set[int](), 0
        last = grid.start_of(end - 1)
        old = self._existing.queues.get(queue)
        for file, units in ((file, old) for file in old.files) if old else ():
            in_file = end - grid.first_unit(file.start_offset)
            if not grid.start_of(first) <= file.start_offset <= last or file.start_offset % grid.file_size:
                remove.add(file.start_offset)
                dropped += self._written(units, file, 0)
            elif file.start_offset == last and file.size == grid.file_size and not units.is_zero_from(file, in_file):
                write.add(file.start_offset)
                dropped += self._written(units, file, in_file)
        return QueueDifference(spans.count(ADDED), spans.count(CHANGED), dropped, _shared(write), _shared(remove))

    def add_untouched(self, name: QueueName) -> None:
        """Note the units of a queue of which the log seems to hold no message."""
        units = self._existing.queues.get(name)
        if units is not None:
            for file in units.files:
                self._written(units, file, 0)

    def _written(self, units: UnitFiles, file: MappedFile, first: int) -> int:
        """Units of a file from its unit `first` on, up to the first that was never written."""
        if file.size != self._grid.file_size:
            return 0
        stored = units.units_in(file, first, units.room_of(file) - first)
        count = count_leading(units.is_written(stored))
        name = QueueName(units.queue.topic, units.queue.queue_id)
        number = self._grid.first_unit(file.start_offset) + first
        self._suspect_written(name, number, stored[:count], np.ones(count, dtype=np.bool_))
        return count

    def _suspect_written(self, name: QueueName, first: int, units: NDArray[np.void], rows: NDArray[np.bool_]) -> None:
        rows = rows & self._existing.format.is_written(units)
        if self.kind == "simple":
            rows &= ~is_pre_blank(units)
        self._suspect(name, first + np.arange(len(units)), units, rows)

    def _compare(self, queue: QueueName, unit_number: int, file: MappedFile, piece: Piece, new: bytes) -> None:
        old = self._existing.queues[queue].read_in(file, piece.position // self._grid.unit_size, piece.high - piece.low)
        spans, first = self._spans[queue], unit_number + piece.low
        if old == new:
            spans.add(first, piece.high - piece.low, SAME)
            return
        states = self._states(queue, old, new)
        self._suspect_written(queue, first, decode_units(self._existing.format.dtype, old), states != SAME)
        spans.add_states(first, states)
        if states.any():
            self._write[queue].add(piece.start)

    def _states(self, name: QueueName, old: bytes, new: bytes) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        layout = self._existing.format
        before, after = decode_units(layout.dtype, old), decode_units(layout.dtype, new)
        size = self._grid.unit_size
        equal = (before.view("u1") == after.view("u1")).reshape(-1, size).all(axis=1)
        in_ext = before["tags_code"] <= MAX_EXT_ADDRESS
        if self._existing.kind == "simple" and self._ext_of and in_ext.any():
            # The address of an ext unit replaces the tags code, which is in that unit.
            before = before.copy()
            before["tags_code"] = self._ext_of(self._existing.queues[name].queue).tags_codes(before["tags_code"])
            in_ext &= before["physical_offset"] == after["physical_offset"]
            in_ext &= before["message_size"] == after["message_size"]
            equal |= in_ext & (before["tags_code"] == after["tags_code"])
            equal |= in_ext & (before["tags_code"] <= MAX_EXT_ADDRESS)
        if self._existing.kind == "simple":
            equal |= self._are_older(name, before, after, ~equal)
        states = np.where(layout.is_written(before), CHANGED, ADDED).astype(np.int8)
        states[equal] = SAME
        return states

    def _are_older(
        self, name: QueueName, before: NDArray[np.void], after: NDArray[np.void], rows: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Those of `rows` that have another tags code because an older release wrote them."""
        rows = rows & (before["physical_offset"] == after["physical_offset"])
        rows &= before["message_size"] == after["message_size"]
        older = np.zeros(len(rows), dtype=np.bool_)
        for row in np.flatnonzero(rows)[:_MAX_LOOKUPS].tolist():
            older[row] = self._is_older(int(before["physical_offset"][row]), int(before["tags_code"][row]))
        self.older[name] += int(older.sum())
        return older


@dataclass(frozen=True)
class RowRules:
    """Which rows a queue database has: those at or after the log's minimum, and of light queues since 5.3.2.

    `selects` is set where a broker writes rows of some topics only: whether those of a topic.
    """

    log_min_offset: int
    has_light_queues: bool
    selects: Callable[[str], bool] | None = None

    def takes(self, name: QueueName) -> bool:
        """Whether a queue has rows."""
        return not self.leaves_out(name) and (self.selects is None or self.selects(name.topic))

    def leaves_out(self, name: QueueName) -> bool:
        """Whether a queue has none because it is a light one."""
        return not self.has_light_queues and name.topic.startswith(LMQ_PREFIX)


class RowDifference(QueueDifference):
    """The changes of a rebuild in the rows of one queue."""

    __slots__ = ()

    @property
    def is_none(self) -> bool:
        """Whether nothing has to change."""
        return not (self.added or self.changed or self.dropped)


class RowComparison(_QueueComparison):
    """Compares with the rows of a database."""

    def __init__(
        self, stored: StoredRows, kind: Kind, rules: RowRules, watched: Mapping[QueueName, Sequence[int]]
    ) -> None:
        """None of its units is `older`: the tags codes of all releases with rows are the same."""
        super().__init__(kind, "rocksdb", rules.log_min_offset, watched)
        self.left_out: Counter[QueueName] = Counter()  # units of light queues that have no rows
        self.lasts: dict[QueueName, LastUnit] = {}
        self.firsts: dict[QueueName, int] = {}
        self._stored = stored
        self._rules = rules
        self._surplus: Counter[QueueName] = Counter()

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Compare units of one queue."""
        if not self._rules.takes(queue):
            if self._rules.leaves_out(queue):
                self.left_out[queue] += len(units)
            return
        rows = rows_of(self.kind, unit_number, units, timestamps, self._rules.log_min_offset)
        if not len(rows.offsets):
            return
        first, last = int(rows.offsets[0]), int(rows.offsets[-1])
        begin = min(first, self.lasts[queue].queue_offset + 1) if queue in self.lasts else first
        found = self._stored.rows(queue, begin, last + 1)
        states = np.full(len(rows.offsets), ADDED, np.int8)
        places = np.searchsorted(rows.offsets, found.offsets)
        places[places == len(rows.offsets)] = 0
        wanted = rows.offsets[places] == found.offsets
        same = (rows.values[places].view("V28") == found.values.view("V28"))[wanted]
        states[places[wanted]] = np.where(same, SAME, CHANGED)
        differs = np.ones(len(found.offsets), dtype=np.bool_)
        differs[np.flatnonzero(wanted)[same]] = False
        self._suspect(queue, *found, differs)
        self._surplus[queue] += len(found.offsets) - int(wanted.sum())
        self._spans[queue].add_states(unit_number + len(units) - len(rows.offsets), states)
        self.firsts[queue] = min(first, self.firsts.get(queue, first))
        self.lasts[queue] = LastUnit(last, int(rows.values["physical_offset"][-1]))
        self._watch(queue, *rows)

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Forget units from `unit_number` on."""
        super().cut(queue, unit_number)
        if self.firsts.get(queue, -1) >= unit_number:
            del self.firsts[queue]
        self.lasts.pop(queue, None)

    def takes(self, name: QueueName) -> bool:
        """Whether rows of a queue were put."""
        return name in self.lasts

    def has(self, name: QueueName) -> bool:
        """Whether a queue has an end in the database."""
        return name in self._stored.lasts

    def difference(self, name: QueueName, first: int, end: int) -> RowDifference:
        """The differences in a queue whose units were put; also rows that a broker serves before and after them."""
        spans, last, before = self._spans[name], self.lasts[name], self._stored.lasts.get(name)
        surplus, start = self._surplus[name], self.firsts[name]
        if start and self._live(name, start - 1, start):  # physical offsets rise with queue offsets
            surplus += self._live(name, 0, start)
        if before and before.queue_offset > last.queue_offset:
            behind = self._stored.rows(name, last.queue_offset + 1, before.queue_offset + 1)
            self._suspect(name, *behind, np.ones(len(behind.offsets), dtype=np.bool_))
            surplus += len(behind.offsets)
        difference = RowDifference(spans.count(ADDED), spans.count(CHANGED), surplus)
        begins_behind = partial(self._stored.begins_behind, name, start, self._rules.log_min_offset)
        if difference.is_none and (before != last or (self.kind == "simple" and begins_behind())):
            difference.changed = 1  # the row of the last unit, or of the first
        return difference

    def add_untouched(self, name: QueueName) -> None:
        """Note the rows of a queue of which the log seems to hold no message."""
        last = self._stored.lasts.get(name)
        if last is not None and last.queue_offset >= 0:
            rows = self._stored.rows(name, 0, last.queue_offset + 1)
            self._suspect(name, *rows, np.ones(len(rows.offsets), dtype=np.bool_))

    def _live(self, name: QueueName, first: int, end: int) -> int:
        """How many rows lead into the log."""
        found = self._stored.rows(name, first, end).values
        return int((found["physical_offset"] >= self._least).sum())


_CODE = "rebuild.version-needed"


def version_findings(store: Store, releases: Releases, *, index: bool) -> list[Finding]:
    """A finding where the rules of the `index` are a choice, or were inferred."""
    if releases.is_named or not index:
        return []
    if releases.oldest >= INDEX_OF_TAGS:
        return []
    if releases.newest >= INDEX_OF_TAGS:
        details: dict[str, Any] = {"problem": "newest", "releases": str(releases), "since": str(INDEX_OF_TAGS),
                   "taken": str(releases.newest)}  # fmt: skip
    else:
        details = {"problem": "shown", "releases": str(releases), "evidence": [*releases.evidence]}
    return [finding("rebuild.version-assumed", store=store.root, details=details)]


def undecided_units(
    releases: Releases,
    derivation: Derivation,
    comparison: Comparison | RowComparison | None,
    changed: Sequence[QueueName],
) -> Counter[QueueName]:
    """Units of the `changed` queues, by queue, that only some of the fitting releases write."""
    multi_dispatch = releases.differ_by(*MULTI_DISPATCH_SPARES)
    counts = [derivation.optional.undecided] if multi_dispatch and derivation.optional else []
    counts += [comparison.older] if comparison and releases.differ_by(VALUES_MAY_HOLD_SEPARATOR) else []
    units: Counter[QueueName] = Counter()
    for name in changed:  # one in files and in RocksDB is there twice
        if count := sum(each[name] for each in counts):
            units[name] += count
    return units


def undecided_findings(releases: Releases, units: Counter[QueueName], *, index: bool) -> Iterator[Finding]:
    """What depends on the release: one finding for queues, and one for keys of the `index`."""
    if units:
        name, details = min(units), {"problem": "units", "queues": len(units), "more": len(units) - 1,
                                     "releases": str(releases)}  # fmt: skip
        yield finding(_CODE, topic=name.topic, queue_id=name.queue_id, count=units.total(), details=details)
    if index:
        yield finding(_CODE, details={"problem": "index", "releases": str(releases)})
