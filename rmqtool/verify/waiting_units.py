"""Units that wait to be compared, in a third of the memory: with many queues there are up to a million of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueUnits, group

_PACK = 1 << 14  # units that are packed together: a few MiB of the log, so that their offsets and times are close
_PIECE = 1 << 16  # units that are unpacked together, and all of one queue in any case
_WIDE = 1 << 32


class _Column(NamedTuple):
    """Whole numbers: the least of them, and how far each is above it, None where all are the same."""

    least: np.integer[Any]
    above: NDArray[np.unsignedinteger[Any]] | None

    @classmethod
    def of(cls, values: NDArray[Any]) -> _Column:
        """Pack a column that is not empty."""
        least, most = values.min(), values.max()
        spread = int(most) - int(least)
        if not spread:
            return cls(least, None)
        if spread >= _WIDE:
            return cls(values.dtype.type(0), values)
        return cls(least, (values - least).astype(np.min_scalar_type(spread)))  # wraps around, and back in `take`

    def take(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        """The numbers of some rows."""
        if self.above is None:
            return np.full(len(rows), self.least)
        values: NDArray[Any] = self.above.take(rows).astype(self.least.dtype, copy=False)
        values += self.least
        return values


@dataclass(frozen=True)
class _Packed:
    """Units of some runs: the numbers of their queues, and their other fields, each of which is one of the columns."""

    queues: NDArray[np.unsignedinteger[Any]]
    columns: tuple[_Column, ...]
    fields: tuple[int, ...]

    @classmethod
    def of(cls, units: QueueUnits) -> _Packed:
        """Pack units; fields that are the same array, as codes and hashes of tags mostly are, are packed once."""
        _, *fields = units.columns()
        distinct = {id(field): field for field in fields}
        indices = {key: index for index, key in enumerate(distinct)}
        queues = units.queues.astype(np.min_scalar_type(int(units.queues.max())))
        return cls(queues, tuple(map(_Column.of, distinct.values())), tuple(indices[id(field)] for field in fields))

    def of_queues(self, first: int, stop: int) -> QueueUnits:
        """The units of the queues with numbers from `first` to before `stop`, in log order."""
        rows = np.flatnonzero((self.queues >= first) & (self.queues < stop))
        columns = [column.take(rows) for column in self.columns]
        return QueueUnits(self.queues.take(rows).astype(np.int32), *(columns[index] for index in self.fields))


class WaitingUnits:
    """Collects units in log order, and gives them by queue."""

    def __init__(self) -> None:
        self._count = 0
        self._loose: list[QueueUnits] = []
        self._packed: list[_Packed] = []

    def __len__(self) -> int:
        return self._count

    def add(self, units: QueueUnits) -> None:
        """Add the units of a run of records."""
        if not len(units):
            return
        self._loose.append(units)
        self._count += len(units)
        if sum(map(len, self._loose)) >= _PACK:
            self._pack()

    def _pack(self) -> None:
        if self._loose:
            self._packed.append(_Packed.of(QueueUnits.drain(self._loose)))

    def drain(self) -> Iterator[tuple[QueueUnits, NDArray[np.intp]]]:
        """The units of some queues at a time, by the number of the queue and then in log order; nothing waits then.

        With them come the rows at which each queue begins, and their end.
        """
        self._pack()
        packed, self._packed, self._count = self._packed, [], 0
        most = max((int(each.queues.max()) for each in packed), default=-1)
        ends = np.zeros(most + 2, dtype=np.int64)  # how many units the queues before each number have
        for each in packed:
            ends[1:] += np.bincount(each.queues, minlength=most + 1)
        np.cumsum(ends, out=ends)
        first = 0
        while first <= most:
            stop = max(first + 1, int(np.searchsorted(ends, ends[first] + _PIECE, "right")) - 1)
            if ends[stop] > ends[first]:
                yield _by_queue([each.of_queues(first, stop) for each in packed])
            first = stop


def _by_queue(parts: list[QueueUnits]) -> tuple[QueueUnits, NDArray[np.intp]]:
    units = QueueUnits.drain(parts)
    order, bounds = group(units.queues)
    return (units[order] if len(bounds) > 2 else units), bounds
