"""The parts of a job on Spark, in the place of processes of this machine: the results come as they would from those."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

from rmqtool.base.parallel import WorkerPool
from rmqtool.base.worker import Job, WorkerStep, keep_arrow_to_one_thread
from rmqtool.spark.engine import run_tasks

_WAVE = 8  # parts for each core at once: the driver holds their results until they are merged

R = TypeVar("R")


class SparkPool(WorkerPool[R]):
    """Does the parts of a job on the workers of Spark; this process merges what they find.

    Spark starts with the job, and ends with the block. What a lost executor was doing is done again by another.
    """

    def __init__(self, start: Callable[[], AbstractContextManager[Any]]) -> None:
        """`start` makes a SparkContext."""
        super().__init__()
        self._start_spark = start
        self._stack = ExitStack()

    @property
    def is_alone(self) -> bool:
        """The workers of Spark do all of it."""
        return False

    def grow(self, size: int) -> None:
        """Nothing: Spark has as many workers as it was given."""

    def begin(self, make: Callable[[], Job[R]], order: Sequence[int], job: Job[R] | None) -> None:  # noqa: ARG002
        """Note what is to be done; `job`, this process's own, does nothing here."""
        self._order = order
        self._pickled = pickle.dumps(make)

    def steps(self) -> Iterator[WorkerStep[R]]:
        """The steps of all parts, in waves; raises an error of a worker, and those of Spark."""
        if not self._order:
            return
        context = self._stack.enter_context(self._start_spark())
        wave = _WAVE * max(1, context.defaultParallelism)
        for first in range(0, len(self._order), wave):
            tasks = [_PartTask(self._pickled, part) for part in self._order[first : first + wave]]
            for part, size, result in sorted(
                run_tasks(context, _do_part, _as_they_are, tasks), key=lambda done: done[0]
            ):
                yield WorkerStep(part, size, result)

    def stop(self) -> Iterator[WorkerStep[R]]:
        """End Spark; parts that are not done by now have no result."""
        self._stack.close()
        return iter(())

    def kill(self) -> None:
        """End Spark."""
        self._stack.close()
        super().kill()


class _PartTask:
    """One part, and the pickled function that makes its job."""

    def __init__(self, make: bytes, part: int) -> None:
        self.make = make
        self.part = part


def _do_part(task: _PartTask) -> tuple[int, int, Any]:
    """Do one part in a worker: its number, the bytes that were read, and its result."""
    keep_arrow_to_one_thread()
    job: Any = pickle.loads(task.make)()
    total, found = 0, None
    try:
        for size, result in job.do(task.part):
            total += size
            found = result if result is not None else found
    finally:
        job.close()
    return task.part, total, found


def _as_they_are(results: list[Any]) -> list[Any]:
    return results
