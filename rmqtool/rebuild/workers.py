"""A pass over the log in one process or several: each reads parts of the log, whose results are joined in order.

The result of a part does not depend on those before it, so the number of processes does not change the whole.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rmqtool.base.files import RateLimit
from rmqtool.base.limits import MemoryNeed, sized
from rmqtool.base.parallel import WorkerPool
from rmqtool.base.worker import Job
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.options import Part
from rmqtool.rebuild.run_result import Item, RunReader, RunResult, RunTask

REBUILD_NEED: dict[Part, MemoryNeed] = {
    "queues": MemoryNeed(least=145, usual=185, further_least=30, further_usual=60),
    "index": MemoryNeed(least=180, usual=195, further_least=30, further_usual=60),
}
_MAX_AHEAD = 128 << 20  # bytes of the log whose results wait for their turn
_LEAST_AHEAD = 8 << 20
_RESULT_SIZE = 16 << 20  # bytes of the log in a result of one process ...
_RESULT_SECONDS = 0.5  # ... or what it can read in this time

_Result = tuple[list[Item], list[QueueName]]
"""Items, and the queues that are new to the process since its last result."""


class PartsDoNotMeetError(Exception):
    """A part does not begin where the one before it has ended: bytes before it look like a record but are none."""


class PassNumbers:
    """The numbers of queues in a whole pass; topics that Java decodes to the same text have one number."""

    def __init__(self) -> None:
        self.names: list[QueueName] = []
        self._numbers: dict[QueueName, int] = {}

    def of(self, names: Sequence[QueueName]) -> list[int]:
        """The number of each queue."""
        return [self._number(name) for name in names]

    def _number(self, name: QueueName) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number


class _Renumbering:
    """Maps the queue numbers of one reader to those of the pass."""

    def __init__(self, numbers: PassNumbers) -> None:
        self._numbers = numbers
        self._table = np.empty(0, dtype=np.int32)
        self._is_identity = True

    def learn(self, names: Sequence[QueueName]) -> None:
        """Number the queues that are new to the reader; all of its items before have been used."""
        if names:
            new_numbers = np.array(self._numbers.of(names), dtype=np.int32)
            self._table = np.concatenate([self._table, new_numbers])
            self._is_identity = bool((self._table == np.arange(len(self._table))).all())

    def apply(self, item: Item) -> Item:
        """An item with the pass's numbers."""
        if self._is_identity or not isinstance(item, RunResult):
            return item
        units, optional, batch = item.units, item.optional_units, item.batch_units
        return replace(
            item,
            units=units and units._replace(queues=self._table.take(units.queues)),
            optional_units=optional and optional._replace(queues=self._table.take(optional.queues)),
            batch_units=batch and replace(batch, queues=self._table.take(batch.queues)),
        )


class _ReadParts(Job[_Result]):
    """Reads parts, and yields several items at once: to send a result takes longer than to send more in one."""

    def __init__(self, task: RunTask, parts: Sequence[tuple[int, int]]) -> None:
        self._reader = RunReader(task)
        self._parts = parts

    def do(self, part: int) -> Iterator[tuple[int, _Result]]:
        most = sized(_RESULT_SIZE, _RESULT_SIZE // 4)
        items: list[Item] = []
        size, begun = 0, time.monotonic()
        for item in self._reader.items(*self._parts[part]):
            items.append(item)
            size += item.size
            if size >= most or time.monotonic() - begun > _RESULT_SECONDS:
                yield size, (items, self._reader.new_queues())
                items, size, begun = [], 0, time.monotonic()
        if items:
            yield size, (items, self._reader.new_queues())


def items_of(
    task: RunTask, numbers: PassNumbers, parts: Sequence[tuple[int, int]], jobs: int
) -> Generator[Item, None, None]:
    """All items of the log in order, with several `jobs` read in `parts`.

    Raises PartsDoNotMeetError, UnreadableError, and what a process raises.
    """
    jobs = min(jobs, len(parts))
    if jobs > 1:
        yield from _of_processes(task, numbers, parts, jobs)
        return
    reader, renumbering = RunReader(task), _Renumbering(numbers)
    for item in reader.items():
        renumbering.learn(reader.new_queues())
        yield renumbering.apply(item)


def _of_processes(task: RunTask, numbers: PassNumbers, parts: Sequence[tuple[int, int]], jobs: int) -> Iterator[Item]:
    limit = task.reading.rate_limit
    if limit:
        slower = RateLimit(max(1, limit.bytes_per_second // jobs))
        task = replace(task, reading=replace(task.reading, rate_limit=slower))
    make = partial(_ReadParts, task, parts)
    renumberings: dict[int, _Renumbering] = defaultdict(partial(_Renumbering, numbers))  # of each process
    end = None
    with WorkerPool[_Result](jobs - 1) as pool:
        pool.begin(make, range(len(parts)), make())
        for step in pool.steps_in_order(sized(_MAX_AHEAD, _LEAST_AHEAD)):
            if step.result is None:
                continue
            items, queues = step.result
            renumbering = renumberings[step.worker]
            renumbering.learn(queues)
            for item in items:
                if end not in (None, item.physical_offset):
                    raise PartsDoNotMeetError
                end = item.physical_offset + item.size
                yield renumbering.apply(item)
