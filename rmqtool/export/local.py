"""The engine without Java: splits over processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.parallel import uninterrupted
from rmqtool.store.splits import HasSplit

_WORTH_A_PROCESS = 32 << 20  # less is written before a process has started, bytes
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


T = TypeVar("T", bound=HasSplit)
R = TypeVar("R")


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_local(work: Callable[[T], R], tasks: Sequence[T], jobs: int, done: Callable[[int], None]) -> list[R]:
    """Do `work`, a module's function, for each task with up to `jobs` processes; results in any order.

    `done` is told how many bytes of log are finished. Raises what `work` raises; then, and when it is interrupted, the
    processes are ended in the midst of their splits, which may be minutes long, and are gone when this returns.
    """
    jobs = min(jobs, len(tasks), 1 + sum(task.split.size for task in tasks) // _WORTH_A_PROCESS)
    done(0)
    if jobs <= 1:
        return _run_here(work, tasks, done)
    # Not forked: a fork would copy this process's threads' locks and its memory.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin) as pool:
        try:
            return _collect(pool, work, tasks, done)
        except BrokenProcessPool as error:
            hint = "a process that the system ends has often met its memory limit: fewer --jobs need less"
            raise RmqtoolError("a worker process was ended from outside", hint=hint) from error
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()  # the pool sees it, begins no other split, and waits until all are gone
            raise


def _run_here(work: Callable[[T], R], tasks: Sequence[T], done: Callable[[int], None]) -> list[R]:
    results, size = [], 0
    for task in tasks:
        results.append(work(task))
        size += task.split.size
        done(size)
    return results


def _collect(
    pool: ProcessPoolExecutor, work: Callable[[T], R], tasks: Sequence[T], done: Callable[[int], None]
) -> list[R]:
    with uninterrupted(_ENDING):  # processes start now: until `_begin` they would tell of Ctrl-C with a trace
        futures = {pool.submit(work, task): task for task in tasks}
    results, size = [], 0
    for future in as_completed(futures):
        results.append(future.result())
        size += futures[future].split.size
        done(size)
    return results


def _begin() -> None:
    """A worker leaves Ctrl-C and the end of the terminal to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
