"""A pass over the log in several processes: each reads parts of the log, which are put together in order.

What comes of a part does not depend on those before it, so the whole is the same whoever reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rmqtool.base.files import RateLimit
from rmqtool.base.limits import memory_is_short
from rmqtool.base.parallel import WorkerPool
from rmqtool.base.worker import Job
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.run_result import Item, PassNumbers, Renumbering, RunReader, RunTask, packed, unpacked

_MOST_AHEAD = (8 if memory_is_short() else 128) << 20  # bytes of the log that this process reads before their turn


class PartsDoNotMeetError(Exception):
    """A part does not begin where the one before it has ended: bytes look like a record that are none."""


class _ReadParts(Job[tuple[Item, list[QueueName]]]):
    """Reads parts; each result is an item, and the queues that this process has met since the last one."""

    def __init__(self, task: RunTask, parts: Sequence[tuple[int, int]]) -> None:
        self._reader = RunReader(task)
        self._parts = parts

    def do(self, part: int) -> Iterator[tuple[int, tuple[Item, list[QueueName]]]]:
        for item in self._reader.items(*self._parts[part]):
            yield item.size, (packed(item), self._reader.new_queues())


def items_of_processes(
    task: RunTask, numbers: PassNumbers, parts: Sequence[tuple[int, int]], jobs: int
) -> Iterator[Item]:
    """All items of the log in order. Raises PartsDoNotMeetError, and what a process raises."""
    jobs = min(jobs, len(parts))
    limit = task.reading.rate_limit
    if limit:
        slower = RateLimit(max(1, limit.bytes_per_second // jobs))
        task = replace(task, reading=replace(task.reading, rate_limit=slower))
    make = partial(_ReadParts, task, parts)
    renumberings: dict[int, Renumbering] = defaultdict(partial(Renumbering, numbers))  # of each process
    end = None
    with WorkerPool[tuple[Item, list[QueueName]]](jobs - 1) as pool:
        pool.begin(make, range(len(parts)), make())
        for step in pool.steps_in_order(_MOST_AHEAD):
            if step.result is None:
                continue
            item, queues = step.result
            if end not in (None, item.physical_offset):
                raise PartsDoNotMeetError
            end = item.physical_offset + item.size
            yield renumberings[step.worker].apply(unpacked(item), queues)
