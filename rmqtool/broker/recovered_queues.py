"""All queues of a store after their own recovery: most of many have one file and need no object."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import ReadPolicy
from rmqtool.base.open_files import OpenFiles
from rmqtool.broker.load import Loaded
from rmqtool.broker.queue_recovery import RecoveredQueue, recover_queue
from rmqtool.broker.queue_simulation import max_physical, wrote
from rmqtool.formats.consume_queue import UNIT_DTYPE, UNIT_SIZE
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.queue_table import QueueTable
from rmqtool.store.unit_files import UnitFiles

QueueKey = tuple[Kind, str, int]
"""Kind, topic and queue id."""

_FAR = 1 << 62  # a physical offset that no log reaches


class KnownQueues:
    """What the recovery of the queues of a table has found, by their index in it; nothing at first."""

    def __init__(self, table: QueueTable) -> None:
        self.table = table
        self.written = np.zeros(len(table), np.int64)
        """Units in the last file of the usual queues, 0 of others."""
        self.highest = np.zeros(len(table), np.int64)
        """Their greatest physical offsets."""
        self.lasts = np.zeros(len(table), f"V{UNIT_SIZE}")
        """Their last units."""
        self.others: dict[int, RecoveredQueue] = {}
        self._cut: dict[Queue, RecoveredQueue] = {}

    def add(self, index: int, found: RecoveredQueue) -> None:
        """Add what became of one queue with all of its files."""
        is_usual = found.queue.kind == "simple" and not found.deleted and found.last_unit and found.highest < _FAR
        if is_usual and wrote(found):
            self.written[index], self.highest[index], self.lasts[index] = found.written, found.highest, found.last_unit
        else:
            self.others[index] = found

    def of(self, loaded: Loaded, reading: ReadPolicy) -> RecoveredQueues:
        """The queues that a start has loaded; those that are not known yet are recovered. Raises UnreadableError."""
        cut: dict[int, RecoveredQueue] = {}
        with closing(OpenFiles(reading)) as open_files:
            for index, queue in loaded.with_fewer_files.items():
                if queue not in self._cut:
                    self._cut[queue] = recover_queue(queue, UnitFiles(queue, open_files))
                cut[index] = self._cut[queue]
            unknown = np.flatnonzero(self.written[: loaded.queue_count] == 0).tolist()
            for index in sorted({*unknown} - self.others.keys() - cut.keys()):
                queue = self.table[index]
                self.add(index, recover_queue(queue, UnitFiles(queue, open_files)))
        return RecoveredQueues(self, loaded.queue_count, cut)

    def recovered(self, index: int) -> RecoveredQueue:
        """One usual queue."""
        queue, written, highest = self.table[index], int(self.written[index]), int(self.highest[index])
        return RecoveredQueue(queue, queue.files.files, (), written, self.lasts[index].tobytes(), highest)


class RecoveredQueues:
    """The queues that a start has loaded, as their own recovery leaves them; of two directories of one the last."""

    def __init__(self, known: KnownQueues, count: int, cut: dict[int, RecoveredQueue]) -> None:
        """`count` are the first of the table, `cut` those with fewer files than are there, by index."""
        self._known = known
        self._table = known.table
        self._usual = known.written > 0
        self._usual[count:] = False
        self._usual[[*cut]] = False
        self._others = {index: each for index, each in known.others.items() if index < count} | cut
        for index in self._table.repeated:
            self._usual[index] = False
            self._others.pop(index, None)
        self._cut = cut

    def get(self, key: QueueKey) -> RecoveredQueue | None:
        """One of them by its key."""
        index = self._table.index_of(*key)
        if index is None:
            return None
        return self._known.recovered(index) if self._usual[index] else self._others.get(index)

    def keys(self) -> Iterator[QueueKey]:
        """The keys of all."""
        return self._keys([*np.flatnonzero(self._usual).tolist(), *self._others])

    def on_disk(self, key: QueueKey) -> Queue | None:
        """One of them with all of its files."""
        index = self._table.index_of(*key)
        return None if index is None or not (self._usual[index] or index in self._others) else self._table[index]

    def with_fewer_files(self) -> Iterator[QueueKey]:
        """Those that have lost files before they were recovered."""
        return self._keys(index for index in self._others if index in self._cut)

    def deleting(self) -> Iterator[QueueKey]:
        """Those of which their own recovery deletes files."""
        return self._keys(index for index, each in self._others.items() if each.deleted)

    def without_unit(self) -> Iterator[QueueKey]:
        """Those that have files, and no unit in the last one."""
        return self._keys(index for index, each in self._others.items() if each.files and not wrote(each))

    def reaching(self, physical_offset: int) -> Iterator[QueueKey]:
        """Those that point to `physical_offset` or after it, or whose last file holds no unit."""
        far = self._usual & (self._known.highest >= min(physical_offset, _FAR))
        others = (index for index, each in self._others.items() if not wrote(each) or each.highest >= physical_offset)
        return self._keys([*np.flatnonzero(far).tolist(), *others])

    def _keys(self, indices: Iterator[int] | list[int]) -> Iterator[QueueKey]:
        return map(self._table.key, sorted(indices))

    @property
    def topics(self) -> set[str]:
        """The topics of all."""
        return {topic for _, topic, _ in self.keys()}

    def max_physical(self, rules: RecoveryRules, but: Collection[QueueKey] = ()) -> int:
        """`getMaxPhyOffsetInConsumeQueue`: the greatest of all `but` some; -1 without one."""
        usual, left_out = self._usual.copy(), {self._table.index_of(*key) for key in but}
        usual[[index for index in left_out if index is not None]] = False
        ends = [max_physical(each.last, each.queue.kind, rules)
                for index, each in self._others.items() if index not in left_out]  # fmt: skip
        lasts = self._known.lasts[usual].view(UNIT_DTYPE)
        ends_of_usual: NDArray[np.int64] = lasts["physical_offset"].astype(np.int64)
        if rules.queues_remember_ends:
            ends_of_usual += lasts["message_size"]
        return max((*ends, int(ends_of_usual.max(initial=-1))), default=-1)
