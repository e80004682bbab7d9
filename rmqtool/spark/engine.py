"""The engine on Spark: it schedules the splits, and Python workers do the work; no row goes through the JVM."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from threading import Event
from typing import Any, Protocol, TypeVar

from rmqtool.errors import RmqtoolError
from rmqtool.splits import Split

_MOST_TASKS = 10_000  # Spark schedules each; beyond, a task does several splits one after the other
_GROUP = "rmqtool"
_POLL_SECONDS = 0.1
_CANCEL_SECONDS = 5


class HasSplit(Protocol):
    """A piece of work about one split."""

    @property
    def split(self) -> Split:
        """The split."""


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

    `join`, such a function too, makes of the results of tasks that follow one another fewer: all of them go through
    the driver, which has little room where the tasks are many.
    `done` is told about how many bytes of log are finished. A task that fails for a reason of Spark's, such as a
    lost executor, is tried again by Spark; what `work` raises as RmqtoolError would be the same again, and ends the
    job. Raises that error, and what pyspark raises.
    """
    if not tasks:
        return []
    from pyspark import InheritableThread

    found: list[Any] = []
    failed: list[BaseException] = []

    def job() -> None:
        try:
            context.setJobGroup(_GROUP, "rmqtool export", interruptOnCancel=True)
            groups = [pickle.dumps(group) for group in _groups(tasks)]
            found.extend(context.parallelize(groups, len(groups)).map(_Work(work, join)).collect())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            failed.append(error)

    size = sum(task.split.size for task in tasks)
    share = _Share(context)
    threads = [InheritableThread(target=target, daemon=True) for target in (job, share.poll)]
    for thread in threads:
        thread.start()
    try:
        while threads[0].is_alive():
            threads[0].join(_POLL_SECONDS)
            done(int(size * share.done))
    except BaseException:
        with suppress(Exception):  # the interruption is what is told
            context.cancelJobGroup(_GROUP)
        threads[0].join(_CANCEL_SECONDS)
        raise
    finally:
        share.ended.set()
        threads[1].join(_CANCEL_SECONDS)
    if failed:
        raise failed[0]
    return _checked(found)


def _groups(tasks: Sequence[Any]) -> Iterator[list[Any]]:
    """The tasks in their order, as many as are scheduled as one together: what they share is sent once for them."""
    count = min(len(tasks), _MOST_TASKS)
    bounds = [len(tasks) * number // count for number in range(count + 1)]
    return (list(tasks[low:high]) for low, high in pairwise(bounds))


class _Work:
    """What a worker does with tasks. An error of ours comes back as a value: to try again would not help."""

    def __init__(self, work: Callable[[Any], Any], join: Callable[[list[Any]], list[Any]]) -> None:
        self._work = work
        self._join = join

    def __call__(self, group: bytes) -> bytes:
        gc.freeze()  # pyspark collects garbage after each task: what is imported is none, and takes the longest
        try:
            return pickle.dumps(self._join([self._work(task) for task in pickle.loads(group)]))
        except RmqtoolError as error:
            return pickle.dumps(error)


class _Share:
    """How much of a job is done, from 0 to 1.

    Asked in a thread of its own: the main one may be interrupted at any moment, and what the connection to Java
    makes of that is not always the interruption.
    """

    def __init__(self, context: Any) -> None:
        self.done = 0.0
        self.ended = Event()
        self._context = context

    def poll(self) -> None:
        """Ask until it is `ended`, or until nobody answers."""
        with suppress(Exception):
            tracker = self._context.statusTracker()
            while not self.ended.wait(_POLL_SECONDS):
                self.done = _share_done(tracker)


def _share_done(tracker: Any) -> float:
    jobs = [info for job in tracker.getJobIdsForGroup(_GROUP) if (info := tracker.getJobInfo(job))]
    stages = [info for job in jobs for stage in job.stageIds if (info := tracker.getStageInfo(stage))]
    total = sum(stage.numTasks for stage in stages)
    return sum(stage.numCompletedTasks for stage in stages) / total if total else 0.0


def _checked(found: Sequence[bytes]) -> list[Any]:
    """The results; raises the first error that came back among them."""
    results = []
    for one in found:
        group = pickle.loads(one)
        if isinstance(group, RmqtoolError):
            raise group
        results += group
    return results
