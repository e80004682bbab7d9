"""The queues through many runs: the files that each run deletes, and the queues after the last one."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.queue_deletion import QueueAfterRun, follow, newest_offset_in
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, Version
from rmqtool.store.consume_queues import Queue


class QueueCleaner:
    """The queues of a store; of each only the first file is read until it is deleted."""

    def __init__(self, start: Sequence[QueueAfterRun], version: Version) -> None:
        """`start` are the queues before the first run; `version` decides how minimum offsets move."""
        self._start = start
        self._version = version
        self._minimums: list[int] = []  # of the log, at each run that cleaned, ascending
        # (physical offset of the file's last unit, index of the queue, index of its first file)
        self._first_files: list[tuple[int, int, int]] | None = None

    def clean(self, log_min_offset: int) -> list[tuple[Queue, MappedFile]]:
        """The files that a run deletes when the log begins at `log_min_offset`, by queue, oldest first."""
        self._minimums.append(log_min_offset)
        if self._first_files is None:
            self._first_files = [
                entry for queue_index in range(len(self._start)) for entry in self._entry(queue_index, 0)
            ]
            heapq.heapify(self._first_files)
        gone: list[tuple[int, int]] = []
        while self._first_files and self._first_files[0][0] < log_min_offset:
            _, queue_index, file_index = heapq.heappop(self._first_files)
            gone.append((queue_index, file_index))
            for entry in self._entry(queue_index, file_index + 1):
                heapq.heappush(self._first_files, entry)
        queues = [state.queue for state in self._start]
        return [
            (queues[queue_index], queues[queue_index].files.files[file_index])
            for queue_index, file_index in sorted(gone)
        ]

    def states(self) -> list[QueueAfterRun]:
        """The queues after the last run."""
        return [self._state(state) for state in self._start]

    def _entry(self, queue_index: int, file_index: int) -> list[tuple[int, int, int]]:
        """The heap entry of a queue's first file; none for the last file, which is never deleted."""
        queue = self._start[queue_index].queue
        if file_index >= len(queue.files.files) - 1:
            return []
        return [(newest_offset_in(queue, queue.files.files[file_index]), queue_index, file_index)]

    def _state(self, state: QueueAfterRun) -> QueueAfterRun:
        if not self._minimums:
            return state
        last, final = state.range.last_physical_offset, self._minimums[-1]
        if self._version < EXPIRED_QUEUE_MIN_IS_MAX and last is not None and last < final:
            # The minimum of a wholly expired queue stays where the last run that found a unit left it.
            before = self._minimums[: bisect_right(self._minimums, last)]
            if before:
                state = follow(state, before[-1], self._version)[1]
        return follow(state, final, self._version)[1]
