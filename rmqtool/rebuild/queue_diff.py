"""The differences between the units that the log gives and the store's queues."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.field_damage import Suspects, suspect_of
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS, is_pre_blank
from rmqtool.rebuild.existing import ExistingQueues
from rmqtool.rebuild.sinks import FileGrid, Piece, Timestamps, Units
from rmqtool.store.unit_files import UnitFiles, count_leading

_MAX_LOOKUPS = 4096  # of records, for units that are compared together
SAME, CHANGED, ADDED = 0, 1, 2


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


class Comparison:
    """Compares the units of a pass with those of the existing queues, and notes which files have to be written."""

    def __init__(
        self,
        existing: ExistingQueues,
        watched: Mapping[QueueName, Sequence[int]],
        *,
        keeps_ext: bool = True,
        is_older: Callable[[int, int], bool] = lambda *_: False,
    ) -> None:
        """`watched` are unit numbers of each queue whose physical offsets are collected in `targets`.

        With `keeps_ext` the ext address of a unit is not compared with a tags code. `is_older` decides by physical
        offset and tags code whether an older release may have written a unit.
        """
        self.targets: dict[QueueName, dict[int, int]] = defaultdict(dict)  # physical offset of watched units
        self.older: Counter[QueueName] = Counter()  # units that only an older release writes as they are
        self.suspects = Suspects()  # records to which other units lead than those that they give
        self.kind = existing.kind
        self._existing = existing
        self._grid: FileGrid = existing.grid
        self._watched = watched
        self._keeps_ext = keeps_ext
        self._is_older = is_older
        self._spans: dict[QueueName, Spans] = defaultdict(Spans)
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
            self._watch(queue, unit_number, units)

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Forget units from `unit_number` on; what is different in the file before them stays."""
        self._spans[queue].cut(unit_number)
        first = self._grid.start_of(unit_number)
        keeps = self._spans[queue].differ_from(self._grid.first_unit(first))
        for wanted in [wanted for wanted in self.targets.get(queue, ()) if wanted >= unit_number]:
            del self.targets[queue][wanted]
        self._write[queue] = {start for start in self._write[queue] if start < first or (start == first and keeps)}

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
        self._suspect(name, number, stored[:count], np.ones(count, dtype=np.bool_))
        return count

    def _suspect(self, name: QueueName, first: int, units: NDArray[np.void], rows: NDArray[np.bool_]) -> None:
        """Note the units of some rows that lead into the log."""
        rows = rows & self._existing.format.is_written(units)
        rows &= units["physical_offset"] >= max(self._existing.log_min_offset, 0)
        if self.kind == "simple":
            rows &= ~is_pre_blank(units)
        for row in np.flatnonzero(rows).tolist():
            if self.suspects.is_full:
                return
            self.suspects.add_unit(int(units["physical_offset"][row]), suspect_of(name, first + row, units[row]))

    def _compare(self, queue: QueueName, unit_number: int, file: MappedFile, piece: Piece, new: bytes) -> None:
        old = self._existing.queues[queue].read_in(file, piece.position // self._grid.unit_size, piece.high - piece.low)
        spans, first = self._spans[queue], unit_number + piece.low
        if old == new:
            spans.add(first, piece.high - piece.low, SAME)
            return
        states = self._states(queue, old, new)
        self._suspect(queue, first, self._existing.format.decode(old), states != SAME)
        spans.add_states(first, states)
        if states.any():
            self._write[queue].add(piece.start)

    def _states(self, name: QueueName, old: bytes, new: bytes) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        layout = self._existing.format
        before, after = layout.decode(old), layout.decode(new)
        size = self._grid.unit_size
        equal = (before.view("u1") == after.view("u1")).reshape(-1, size).all(axis=1)
        if self._existing.kind == "simple" and self._keeps_ext:
            # The address of an ext unit replaces the tags code, which is in that unit.
            ext = before["tags_code"] <= MAX_EXT_ADDRESS
            ext &= before["physical_offset"] == after["physical_offset"]
            ext &= before["message_size"] == after["message_size"]
            equal |= ext
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

    def _watch(self, name: QueueName, unit_number: int, units: Units) -> None:
        decoded = units.view(self._existing.format.dtype)
        for wanted in self._watched[name]:
            if unit_number <= wanted < unit_number + len(units):
                self.targets[name][wanted] = int(decoded["physical_offset"][wanted - unit_number])
