"""The engine without Java: splits over processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from rmqtool.base.memory import MemoryNeed
from rmqtool.base.parallel import MAX_PARTS, WorkerPool
from rmqtool.base.worker import Job
from rmqtool.store.splits import HasSplit

EXPORT_NEED = MemoryNeed(least=220, usual=290, further_least=105, further_usual=170)
_WORTH_A_PROCESS = 32 << 20  # less is written before a process has started, bytes

T = TypeVar("T", bound=HasSplit)
R = TypeVar("R")


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_local(
    work: Callable[[T], R], tasks: Sequence[T], jobs: int, done: Callable[[int], None], *, patience: float = 0
) -> list[R]:
    """Do `work`, a module's function, for each task with up to `jobs` processes; results in any order.

    `done` is called with the bytes of log that are finished. Raises errors of `work`; then, and when it is interrupted,
    the processes are ended in the midst of their splits, which may take minutes, and are gone when this returns; with
    `patience`, seconds, they may end processes of their own first.
    """
    jobs = min(jobs, len(tasks), 1 + sum(task.split.size for task in tasks) // _WORTH_A_PROCESS)
    results, size = [], 0
    done(0)
    # Not copied: a copy would have this process's threads' locks and its memory.
    with WorkerPool[R](jobs if jobs > 1 else 0, may_copy=False, patience=patience) as pool:
        here = None if pool.workers else _Splits(work, tasks)
        pool.begin(partial(_Splits, work, tasks), range(min(len(tasks), MAX_PARTS)), here)
        for step in pool.steps():
            if step.result is not None:
                results.append(step.result)
                size += step.size
                done(size)
    return results


class _Splits(Job[R], Generic[T, R]):
    """Works on splits: part n is every MAX_PARTSth task, beginning with the nth."""

    def __init__(self, work: Callable[[T], R], tasks: Sequence[T]) -> None:
        self._work = work
        self._tasks = tasks

    def do(self, part: int) -> Iterator[tuple[int, R]]:
        for task in self._tasks[part::MAX_PARTS]:
            result = self._work(task)
            yield task.split.size, result
