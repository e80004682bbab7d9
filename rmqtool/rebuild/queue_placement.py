"""Where the units of plain consume queues go (`ConsumeQueue#putMessagePositionInfo`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName, group
from rmqtool.formats.consume_queue import UNIT_DTYPE, is_pre_blank
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.rebuild.existing import ExistingQueues
from rmqtool.rebuild.lost_extents import LostExtents
from rmqtool.rebuild.sinks import Timestamps, Units, UnitSink
from rmqtool.rebuild.stored_units import StoredUnits, physical_offsets, placeholder_units

Order = Literal["stored", "broker"]
"""What decides a unit's number: the queue offset stored with the message, or the order in which a broker appends."""

_FEW = 8  # units with a number that does not follow: so many may be a damaged number, more are believed
_FREE_GAP = 64  # units that may be missing though no byte of the log is: a broker leaves out one or two at a crash


@dataclass
class Irregular:
    """What did not go by the rule in one queue: all are counts of units."""

    neutral: int = 0  # in the place of lost messages
    superseded: int = 0  # dropped, for the stored queue offset goes back behind them
    repeated: int = 0  # dropped, as a broker drops them
    shifted: int = 0  # put where the broker puts them, which is not their stored queue offset
    renumbered: int = 0  # a stored queue offset that the messages around it refute
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
    """All plain queues: each keeps the number of its next unit.

    With order ``broker`` units go where a broker puts them that begins with empty queues. With ``stored`` each goes to
    its stored queue offset: lost ones are replaced by neutral units, and where the offsets go back the later
    messages count, as they do in a queue that was cut or begun anew. Without gaps and repeats both are the same.
    `names` are the queues by number, and grow with the pass.
    """

    def __init__(
        self,
        names: Sequence[QueueName],
        sinks: Sequence[UnitSink],
        existing: ExistingQueues,
        order: Order,
        lost: LostExtents,
    ) -> None:
        """`existing` are the queues whose units before those of the log stay."""
        self.irregular: dict[int, Irregular] = defaultdict(Irregular)
        self._names = names
        self._sinks = sinks
        self._existing = existing
        self._order = order
        self._lost = lost
        self._ends = np.empty(0, dtype=np.int64)  # number of the next unit, -1 before the first
        self._last = np.empty(0, dtype=np.int64)  # physical offset of the last unit
        self._firsts: dict[int, int] = {}  # number of the unit that the first file begins with
        self._first_messages: dict[int, int] = {}
        self._pending: dict[int, _Run] = {}  # few units whose numbers do not follow, until it shows why

    def end(self, queue: int) -> int:
        """Number of the next unit; -1 when the queue has none."""
        return int(self._ends[queue]) if queue < len(self._ends) else -1

    def first(self, queue: int) -> int:
        """Number of the unit that the queue's first file begins with."""
        return self._firsts[queue]

    def first_message(self, queue: int) -> int:
        """Number of the first unit that the log gives the queue."""
        return self._first_messages[queue]

    def add(self, units: StoredUnits) -> None:
        """Place a batch of units, which follow those of the batch before in the log."""
        if not len(units.queues):
            return
        order, bounds = group(units.queues)
        every = _Run(*(column.take(order) for column in units[1:]))  # twice as fast as an index
        firsts, lasts = bounds[:-1], bounds[1:] - 1
        queues = units.queues[order[firsts]]
        self._grow(int(queues.max()) + 1)
        regular = self._are_regular(every, queues, firsts, rising=_rises(physical_offsets(units.units)))
        places = every.offsets[firsts].tolist()
        bounds_list = bounds.tolist()
        for row, (queue, is_regular) in enumerate(zip(queues.tolist(), regular.tolist(), strict=True)):
            low, high = bounds_list[row], bounds_list[row + 1]
            if not is_regular:
                self._add_irregular(queue, every.rows(slice(low, high)))
                continue
            if queue not in self._firsts:
                self._begin(queue, places[row], every.rows(slice(low, low + 1)))
            self._write(queue, places[row], every.units[low:high], every.timestamps[low:high])
        done, ends = queues[regular], lasts[regular]
        self._ends[done] = every.offsets[ends] + 1
        self._last[done] = physical_offsets(every.units[ends])

    def finish(self) -> None:
        """Place what was held back."""
        for queue, run in list(self._pending.items()):
            del self._pending[queue]
            self._settle(queue, run)

    def _are_regular(
        self, every: _Run, queues: NDArray[np.int32], firsts: NDArray[np.intp], *, rising: bool
    ) -> NDArray[np.bool_]:
        """Which queues' units follow each other and the queue's end, or begin the queue.

        `rising` tells that physical offsets rise in all of the batch, as they do unless a record has two units.
        """
        steps = np.ones(len(every.offsets), dtype=np.bool_)
        steps[1:] = np.diff(every.offsets) == 1
        if not rising:
            steps[1:] &= np.diff(every.physical_offsets) > 0
        steps[firsts] = True
        begins, ends = every.offsets[firsts], self._ends[queues]
        regular: NDArray[np.bool_] = np.logical_and.reduceat(steps, firsts)
        regular &= ((ends < 0) & (begins >= 0)) | (begins == ends)
        regular &= physical_offsets(every.units[firsts]) > self._last[queues]
        if self._pending:
            regular &= ~np.isin(queues, np.fromiter(self._pending, np.int32))
        return regular

    def _grow(self, count: int) -> None:
        missing = count - len(self._ends)
        if missing > 0:
            more = np.full(max(missing, len(self._ends)), -1, dtype=np.int64)
            self._ends, self._last = np.concatenate([self._ends, more]), np.concatenate([self._last, more])

    def _begin(self, queue: int, number: int, run: _Run) -> None:
        first = self._first_messages[queue] = number
        for head in self._existing.units_before_log(self._names[queue], number, int(run.timestamps[0])):
            first = min(first, head.number)
            self._write(queue, head.number, self._without_lost(queue, head.units, run), head.timestamps)
        self._firsts[queue] = first

    def _without_lost(self, queue: int, head: Units, run: _Run) -> Units:
        """A head whose filler stands for messages that are lost with bytes of the log.

        Filler would not do: as it points to offset 0, a pull that meets it goes on in the next file of the log.
        """
        filler = is_pre_blank(head.view(UNIT_DTYPE))
        count = int(filler.sum())
        lost = self._lost.between(-1, run.first_physical_offset)
        if self._order == "broker" or not 0 < count <= lost.size // MIN_MESSAGE_SIZE:
            return head
        units = head.copy()
        units[filler] = placeholder_units(run.units[:1], count, lost.missing)
        self.irregular[queue].neutral += count
        return units

    def _put(self, queue: int, number: int, run: _Run) -> None:
        if queue not in self._firsts:
            self._begin(queue, number, run)
        self._write(queue, number, run.units, run.timestamps)
        self._ends[queue] = number + len(run.offsets)
        self._last[queue] = run.last_physical_offset

    def _write(self, queue: int, number: int, units: Units, timestamps: Timestamps) -> None:
        for sink in self._sinks:
            sink.put(self._names[queue], number, units, timestamps)

    def _add_irregular(self, queue: int, run: _Run) -> None:
        """Place units of one queue that do not simply follow."""
        places = run.physical_offsets
        new = np.maximum.accumulate(places) == places
        new[1:] &= np.diff(places) > 0
        new &= places > max(int(self._last[queue]), self._last_pending(queue))
        new &= run.offsets >= 0
        self.irregular[queue].repeated += len(new) - int(new.sum())
        run = run.rows(new)
        borders = np.flatnonzero(np.diff(run.offsets) != 1) + 1
        bounds = [0, *borders.tolist(), len(run.offsets)]
        for low, high in pairwise(bounds):
            if high > low:
                part = run.rows(slice(low, high))
                self._append(queue, part) if self._order == "broker" else self._preserve(queue, part)

    def _last_pending(self, queue: int) -> int:
        run = self._pending.get(queue)
        return -1 if run is None else run.last_physical_offset

    def _append(self, queue: int, run: _Run) -> None:
        """As a broker does: offset 0 always, offsets behind the end where the end is, others not at all."""
        end, begin = self.end(queue), int(run.offsets[0])
        if end < 0:
            self._put(queue, begin, run)
            return
        if begin == 0 < end:
            self._put(queue, end, run.rows(slice(0, 1)))
            self.irregular[queue].shifted += 1
            run, begin, end = run.rows(slice(1, None)), 1, end + 1
        kept = run.rows(slice(max(0, end - begin), None))
        self.irregular[queue].repeated += len(run.offsets) - len(kept.offsets)
        if len(kept.offsets):
            self.irregular[queue].shifted += len(kept.offsets) if int(kept.offsets[0]) != end else 0
            self._put(queue, end, kept)

    def _preserve(self, queue: int, run: _Run) -> None:
        """Put units with consecutive numbers at their stored numbers, once it shows that these can be believed."""
        pending = self._pending.pop(queue, None)
        if pending is not None:
            if int(run.offsets[0]) == int(pending.offsets[-1]) + 1:
                run = _Run(*(np.concatenate(pair) for pair in zip(pending, run, strict=True)))
            elif int(run.offsets[0]) == self.end(queue) + len(pending.offsets):
                self.irregular[queue].renumbered += len(pending.offsets)
                self._put(queue, self.end(queue), pending)
            else:
                self._settle(queue, pending)
        if self.end(queue) not in (-1, int(run.offsets[0])) and len(run.offsets) <= _FEW:
            self._pending[queue] = _Run(*(column.copy() for column in run))
        else:
            self._settle(queue, run)

    def _settle(self, queue: int, run: _Run) -> None:
        """Put units at their stored numbers: after a gap, or where the queue began again."""
        end, begin = self.end(queue), int(run.offsets[0])
        if end >= 0 and begin < end:
            self._begin_again(queue, begin, end)
        elif 0 <= end < begin and not self._fill_gap(queue, end, begin, run):
            return
        self._put(queue, begin, run)

    def _begin_again(self, queue: int, begin: int, end: int) -> None:
        first = self._first_messages[queue]
        self.irregular[queue].superseded += end - max(begin, first)
        # Before the first message nothing of the log stands, and what else does depends on it.
        cut = self._firsts.pop(queue) if begin < first else begin
        for sink in self._sinks:
            sink.cut(self._names[queue], cut)

    def _fill_gap(self, queue: int, end: int, begin: int, run: _Run) -> bool:
        """Neutral units where records are lost; False where more are missing than bytes of the log."""
        lost = self._lost.between(int(self._last[queue]), run.first_physical_offset)
        if begin - end > _FREE_GAP + lost.size // MIN_MESSAGE_SIZE:
            self.irregular[queue].jump = self.irregular[queue].jump or (end, begin)
            return False
        self.irregular[queue].neutral += begin - end
        timestamps = np.full(begin - end, run.timestamps[0], dtype=np.int64)
        self._write(queue, end, placeholder_units(run.units[:1], begin - end, lost.missing), timestamps)
        return True


def _rises(numbers: NDArray[np.int64]) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())
