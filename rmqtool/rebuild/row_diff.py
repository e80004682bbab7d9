"""The differences between the units that the log gives and the rows of the queue database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.field_damage import Suspects, suspect_of
from rmqtool.rebuild.queue_diff import ADDED, CHANGED, SAME, QueueDifference, Spans
from rmqtool.rebuild.rows import StoredRows, rows_of
from rmqtool.rebuild.sinks import Timestamps, Units
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.store.consume_queues import Kind
from rmqtool.store.rocksdb_queues import LastUnit, Rows


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


class RowComparison:
    """Compares the units of a pass with the rows of a database."""

    def __init__(
        self, stored: StoredRows, kind: Kind, rules: RowRules, watched: Mapping[QueueName, Sequence[int]]
    ) -> None:
        """`watched` are queue offsets of each queue whose physical offsets are collected in `targets`."""
        self.targets: dict[QueueName, dict[int, int]] = defaultdict(dict)
        self.left_out: Counter[QueueName] = Counter()  # units of light queues that have no rows
        self.older: Counter[QueueName] = Counter()  # none: the tags codes of all releases with rows are the same
        self.suspects = Suspects()  # records to which other rows lead than those that they give
        self.lasts: dict[QueueName, LastUnit] = {}
        self.dispatched_end = 0
        self.firsts: dict[QueueName, int] = {}
        self._stored = stored
        self._kind = kind
        self._rules = rules
        self._watched = watched
        self._spans: dict[QueueName, Spans] = defaultdict(Spans)
        self._surplus: Counter[QueueName] = Counter()

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Compare units of one queue."""
        if not self._rules.takes(queue):
            if self._rules.leaves_out(queue):
                self.left_out[queue] += len(units)
            return
        rows = rows_of(self._kind, unit_number, units, timestamps, self._rules.log_min_offset)
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
        self._suspect(queue, found, differs)
        self._surplus[queue] += len(found.offsets) - int(wanted.sum())
        self._spans[queue].add_states(unit_number + len(units) - len(rows.offsets), states)
        self.firsts[queue] = min(first, self.firsts.get(queue, first))
        self.lasts[queue] = LastUnit(last, int(rows.values["physical_offset"][-1]))
        ends = rows.values["physical_offset"] + rows.values["message_size"]
        self.dispatched_end = max(self.dispatched_end, int(ends.max()))
        for offset in self._watched.get(queue, ()):
            for at in np.flatnonzero(rows.offsets == offset).tolist():
                self.targets[queue][offset] = int(rows.values["physical_offset"][at])

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Forget units from `unit_number` on."""
        self._spans[queue].cut(unit_number)
        for wanted in [wanted for wanted in self.targets.get(queue, ()) if wanted >= unit_number]:
            del self.targets[queue][wanted]
        if self.firsts.get(queue, -1) >= unit_number:
            del self.firsts[queue]
        self.lasts.pop(queue, None)

    def difference(self, name: QueueName) -> RowDifference:
        """The differences in a queue whose units were put; also rows that a broker serves before and after them."""
        spans, last, before = self._spans[name], self.lasts[name], self._stored.lasts.get(name)
        surplus = self._surplus[name] + self._before(name)
        if before and before.queue_offset > last.queue_offset:
            behind = self._stored.rows(name, last.queue_offset + 1, before.queue_offset + 1)
            self._suspect(name, behind, np.ones(len(behind.offsets), dtype=np.bool_))
            surplus += len(behind.offsets)
        difference = RowDifference(spans.count(ADDED), spans.count(CHANGED), surplus)
        if difference.is_none and (before != last or self._begins_behind(name)):
            difference.changed = 1  # the row of the last unit, or of the first
        return difference

    def _begins_behind(self, name: QueueName) -> bool:
        """Whether a simple queue begins after its first unit."""
        log_min_offset = self._rules.log_min_offset
        return self._kind == "simple" and self._stored.begins_behind(name, self.firsts[name], log_min_offset)

    def _before(self, name: QueueName) -> int:
        """Rows before the first one that do not lead below the log; physical offsets rise with queue offsets."""
        first = self.firsts[name]
        if not first or not self._live(name, first - 1, first):
            return 0
        return self._live(name, 0, first)

    def add_untouched(self, name: QueueName) -> None:
        """Note the rows of a queue of which the log seems to hold no message."""
        last = self._stored.lasts.get(name)
        if last is not None and last.queue_offset >= 0:
            rows = self._stored.rows(name, 0, last.queue_offset + 1)
            self._suspect(name, rows, np.ones(len(rows.offsets), dtype=np.bool_))

    def _suspect(self, name: QueueName, found: Rows, rows: NDArray[np.bool_]) -> None:
        """Note some of the rows that lead into the log."""
        rows = rows & (found.values["physical_offset"] >= max(self._rules.log_min_offset, 0))
        for row in np.flatnonzero(rows).tolist():
            if self.suspects.is_full:
                return
            unit = found.values[row]
            self.suspects.add_unit(int(unit["physical_offset"]), suspect_of(name, int(found.offsets[row]), unit))

    def _live(self, name: QueueName, first: int, end: int) -> int:
        found = self._stored.rows(name, first, end).values
        return int((found["physical_offset"] >= max(self._rules.log_min_offset, 0)).sum())
