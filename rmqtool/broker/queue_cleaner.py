"""The queues through many runs: which files each run takes, and what is left behind the last."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.queue_deletion import QueueAfterRun, follow, newest_offset_in
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, Version
from rmqtool.store.consume_queues import Queue


class QueueCleaner:
    """The queues of a store; of each only the first file is looked at until it goes.

    `start` are the queues as they stand; minimum offsets are worked out when they are asked for.
    """

    def __init__(self, start: Sequence[QueueAfterRun], version: Version) -> None:
        self._start = start
        self._version = version
        self._minimums: list[int] = []  # of the log, at each run that cleaned, ascending
        # (physical offset of the newest unit, number of the queue, number of its first file)
        self._first_files: list[tuple[int, int, int]] | None = None

    def clean(self, log_min_offset: int) -> list[tuple[Queue, MappedFile]]:
        """The files that go when the log begins at `log_min_offset`, by queue, oldest first."""
        self._minimums.append(log_min_offset)
        if self._first_files is None:
            self._first_files = [entry for number in range(len(self._start)) for entry in self._entry(number, 0)]
            heapq.heapify(self._first_files)
        gone: list[tuple[int, int]] = []
        while self._first_files and self._first_files[0][0] < log_min_offset:
            _, number, file = heapq.heappop(self._first_files)
            gone.append((number, file))
            for entry in self._entry(number, file + 1):
                heapq.heappush(self._first_files, entry)
        queues = [state.queue for state in self._start]
        return [(queues[number], queues[number].files.files[file]) for number, file in sorted(gone)]

    def states(self) -> list[QueueAfterRun]:
        """The queues behind the last run."""
        return [self._state(state) for state in self._start]

    def _entry(self, number: int, file: int) -> list[tuple[int, int, int]]:
        """What the first file of a queue waits for; nothing for the last file, which stays."""
        queue = self._start[number].queue
        if file >= len(queue.files.files) - 1:
            return []
        return [(newest_offset_in(queue, queue.files.files[file]), number, file)]

    def _state(self, state: QueueAfterRun) -> QueueAfterRun:
        if not self._minimums:
            return state
        last, final = state.range.last_physical_offset, self._minimums[-1]
        if self._version < EXPIRED_QUEUE_MIN_IS_MAX and last is not None and last < final:
            # The minimum of a queue that expires whole stays where the last run left it that found a unit.
            before = self._minimums[: bisect_right(self._minimums, last)]
            if before:
                state = follow(state, before[-1], self._version)[1]
        return follow(state, final, self._version)[1]
