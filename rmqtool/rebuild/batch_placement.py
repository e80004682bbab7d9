"""The positions of units in batch consume queues (`BatchConsumeQueue#putBatchMessagePositionInfo`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqtool.broker.dispatched_units import QueueName, QueueUnits, group
from rmqtool.formats.batch_consume_queue import UNIT_SIZE
from rmqtool.rebuild.existing import ExistingQueues
from rmqtool.rebuild.sinks import Timestamps, Units, UnitSink

_RAW = np.dtype(f"V{UNIT_SIZE}")


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
