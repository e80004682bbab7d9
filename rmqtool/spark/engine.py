"""The engine on Spark: it schedules the splits, and Python workers do the work; no row goes through the JVM."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from itertools import pairwise
from threading import Event
from typing import Any, TypeVar

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.parallel import Job, WorkerPool, WorkerStep, keep_arrow_to_one_thread
from rmqtool.store.splits import HasSplit

_MAX_TASKS = 10_000  # Spark schedules each; beyond, a task does several splits one after the other
_GROUP = "rmqtool"
_POLL_SECONDS = 0.25
_CANCEL_SECONDS = 5


T = TypeVar("T", bound=HasSplit)
R = TypeVar("R")


def run_on_spark(
    context: Any,
    work: Callable[[T], R],
    join: Callable[[list[R]], list[R]],
    tasks: Sequence[T],
    done: Callable[[int], None],
) -> list[R]:
    """Do `work`, a module's function, for each task on the workers of a SparkContext; results in any order.

    `join`, also a module's function, makes fewer results of those of consecutive tasks: all go through the driver,
    which has little memory for many tasks.
    `done` is called with roughly the bytes of log that are finished. A task that fails for a reason of Spark's, such
    as a lost executor, is tried again by Spark; an RmqtoolError of `work` would come again, and ends the job. Raises
    that error, and errors of pyspark.
    """
    size = sum(task.split.size for task in tasks)
    return run_tasks(context, work, tasks, join, lambda share: done(int(size * share)))


def run_tasks(
    context: Any,
    work: Callable[[Any], R],
    tasks: Sequence[Any],
    join: Callable[[list[R]], list[R]] = list,
    done: Callable[[float], None] = lambda _: None,
) -> list[R]:
    """As `run_on_spark`, for tasks of any kind; `done` is called with the share that is finished, from 0 to 1."""
    if not tasks:
        return []
    groups = [pickle.dumps(group) for group in _groups(tasks)]
    return _checked(_Job(context, groups, partial(_done, work, join)).wait(done))


class _Job:
    """A job of Spark in a thread of its own, so that this thread can be interrupted at any moment and ends the job.

    Progress is asked for in another thread: an interruption inside the connection to Java may get lost.
    """

    def __init__(self, context: Any, groups: Sequence[bytes], work: Callable[[bytes], bytes]) -> None:
        from pyspark import InheritableThread

        self._context = context
        self._groups = groups
        self._work = work
        self._results: list[bytes] = []
        self._failed: BaseException | None = None
        self._share = 0.0
        self._ended = Event()
        self._running = InheritableThread(target=self._run, daemon=True)
        self._asking = InheritableThread(target=self._ask, daemon=True)

    def wait(self, done: Callable[[float], None]) -> list[bytes]:
        """The workers' results, in any order; `done` is called with the finished share, from 0 to 1."""
        self._running.start()
        self._asking.start()
        try:
            while self._running.is_alive():
                self._running.join(_POLL_SECONDS)
                done(self._share)
        except BaseException:
            with suppress(Exception):  # the interruption is raised
                self._context.cancelJobGroup(_GROUP)
            self._running.join(_CANCEL_SECONDS)
            raise
        finally:
            self._ended.set()
            self._asking.join(_CANCEL_SECONDS)
        if self._failed is not None:
            raise self._failed
        return self._results

    def _run(self) -> None:
        try:
            self._context.setJobGroup(_GROUP, "rmqtool", interruptOnCancel=True)
            self._results = self._context.parallelize(self._groups, len(self._groups)).map(self._work).collect()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._failed = error

    def _ask(self) -> None:
        """Ask for the progress until the job is done, or Spark does not answer."""
        with suppress(Exception):
            tracker = self._context.statusTracker()
            while not self._ended.wait(_POLL_SECONDS):
                self._share = _share_done(tracker)


def _groups(tasks: Sequence[Any]) -> Iterator[list[Any]]:
    """The tasks in their order, in groups that Spark schedules as one; data that they share is sent once a group."""
    count = min(len(tasks), _MAX_TASKS)
    bounds = [len(tasks) * index // count for index in range(count + 1)]
    return (list(tasks[low:high]) for low, high in pairwise(bounds))


def _done(work: Callable[[Any], Any], join: Callable[[list[Any]], list[Any]], group: bytes) -> bytes:
    """The work of a worker. An RmqtoolError is returned as a value: to try again would not help."""
    gc.freeze()  # pyspark collects garbage after each task, and would search all imported modules again
    try:
        return pickle.dumps(join([work(task) for task in pickle.loads(group)]))
    except RmqtoolError as error:
        return pickle.dumps(error)


def _share_done(tracker: Any) -> float:
    """How much of the job is done, from 0 to 1."""
    jobs = [info for job in tracker.getJobIdsForGroup(_GROUP) if (info := tracker.getJobInfo(job))]
    stages = [info for job in jobs for stage in job.stageIds if (info := tracker.getStageInfo(stage))]
    total = sum(stage.numTasks for stage in stages)
    return sum(stage.numCompletedTasks for stage in stages) / total if total else 0.0


def _checked(pickled: Sequence[bytes]) -> list[Any]:
    """The results; raises the first error that came back among them."""
    results = []
    for group in pickled:
        results_of_group = pickle.loads(group)
        if isinstance(results_of_group, RmqtoolError):
            raise results_of_group
        results += results_of_group
    return results


_WAVE = 8  # parts for each core at once: the driver holds their results until they are merged


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
            tasks = [(self._pickled, part) for part in self._order[first : first + wave]]
            yield from sorted(run_tasks(context, _do_part, tasks), key=lambda step: step.part)

    def stop(self) -> Iterator[WorkerStep[R]]:
        """End Spark; parts that are not done by now have no result."""
        self._stack.close()
        return iter(())

    def kill(self) -> None:
        """End Spark."""
        self._stack.close()
        super().kill()


def _do_part(task: tuple[bytes, int]) -> WorkerStep[Any]:
    """Do one part in a worker, by the pickled function that makes its job."""
    make, part = task
    keep_arrow_to_one_thread()
    job: Any = pickle.loads(make)()
    total, found = 0, None
    try:
        for size, result in job.do(part):
            total += size
            found = result if result is not None else found
    finally:
        job.close()
    return WorkerStep(part, total, found)
