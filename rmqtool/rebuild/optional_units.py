"""Units that only older releases derive: a rebuild keeps those that the store holds, and adds none.

A unit that the store does not hold may be lost, or was never written: only the release decides that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.existing import ExistingQueues
from rmqtool.rebuild.stored_units import StoredUnits, physical_offsets


class OptionalUnits:
    """Decides about the optional units of one pass; `undecided` counts by queue those not in the store."""

    def __init__(self, existing: ExistingQueues, names: Sequence[QueueName]) -> None:
        """`names` are the queues by number, and grow with the pass."""
        self.undecided: Counter[QueueName] = Counter()
        self._existing = existing
        self._names = names

    def merged(self, units: StoredUnits, optional: StoredUnits) -> StoredUnits:
        """`units` of a run of records with the `optional` ones that are stored, in log order."""
        kept = np.array([self._is_stored(*unit) for unit in _locations(optional)], dtype=np.bool_)
        if not kept.any():
            return units
        both = StoredUnits(*(np.concatenate(pair) for pair in zip(units, optional.rows(kept), strict=True)))
        return both.rows(np.argsort(physical_offsets(both.units), kind="stable"))

    def _is_stored(self, queue: int, unit_number: int, physical_offset: int) -> bool:
        name = self._names[queue]
        unit = self._existing.unit_at(name, unit_number) if unit_number >= 0 else None
        if unit is None:
            self.undecided[name] += 1
            return False
        return int(unit["physical_offset"]) == physical_offset


def _locations(units: StoredUnits) -> zip[tuple[int, int, int]]:
    """Queue, number and physical offset of each unit."""
    offsets = physical_offsets(units.units).tolist()
    return zip(units.queues.tolist(), units.queue_offsets.tolist(), offsets, strict=True)
