"""Units for tests of what places them, and a sink that keeps them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.formats.consume_queue import UNIT_DTYPE
from rmqtool.rebuild.existing import Timestamps, Units
from tests.building import START_TIME

SIZE = 100
"""Message size of every unit made here, bytes."""


def units(
    queue_offsets: Sequence[int], physical_offsets: Sequence[int] | None = None, queues: Sequence[int] | int = 0
) -> QueueUnits:
    """Units of records of SIZE bytes, one after the other in the log unless told otherwise; no tags."""
    count = len(queue_offsets)
    places = range(0, count * SIZE, SIZE) if physical_offsets is None else physical_offsets
    return QueueUnits(
        queues=np.broadcast_to(np.array(queues, dtype=np.int32), (count,)).copy(),
        queue_offsets=np.array(queue_offsets, dtype=np.int64),
        physical_offsets=np.array(places, dtype=np.int64),
        message_sizes=np.full(count, SIZE, dtype=np.int32),
        tags_codes=np.zeros(count, dtype=np.int64),
        tags_hashes=np.zeros(count, dtype=np.int64),
        store_timestamps=START_TIME + np.array(places, dtype=np.int64),
        batch_sizes=np.ones(count, dtype=np.int16),
        message_counts=np.ones(count, dtype=np.int16),
        rows=np.arange(count, dtype=np.int32),
    )


class Kept:
    """A sink that keeps the physical offset of each unit by queue and number; of filler None."""

    def __init__(self) -> None:
        self.queues: dict[int, dict[int, int | None]] = defaultdict(dict)

    def put(self, queue: QueueName, number: int, units: Units, timestamps: Timestamps) -> None:
        assert len(units) == len(timestamps)
        for place, unit in enumerate(units.view(UNIT_DTYPE), number):
            self.queues[queue.queue_id][place] = int(unit["physical_offset"]) if unit["message_size"] == SIZE else None

    def cut(self, queue: QueueName, number: int) -> None:
        kept = {place: unit for place, unit in self.queues[queue.queue_id].items() if place < number}
        self.queues[queue.queue_id] = kept

    def targets(self, queue: int = 0) -> list[int | None]:
        """What the units point to, from the first on; they are without a gap."""
        found = self.queues[queue]
        assert sorted(found) == list(range(min(found), max(found) + 1))
        return [found[place] for place in sorted(found)]
