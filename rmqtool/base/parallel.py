"""A pool of processes that share the numbered parts of one job: verification, rebuild and export."""

from __future__ import annotations

import select
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from rmqtool.base.child_process import kill_children
from rmqtool.base.errors import RmqtoolError, noted
from rmqtool.base.limits import cannot_start, processes_at_once, share_held
from rmqtool.base.signals import WAIT_SECONDS, deferred_signals
from rmqtool.base.worker import (
    DONE,
    ENDING,
    READY,
    Job,
    R,
    WorkerStep,
    do_parts,
    keep_arrow_to_one_thread,
    receive,
    serve,
    write_part_numbers,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

MAX_PARTS = 4096
"""Parts of a job at most: their numbers must fit into a pipe that no process reads yet."""

_STOP_SECONDS = 1.0  # that processes may take to say what they know when they are stopped
_PIPE_SIZE = 1 << 20  # bytes; what most systems let anybody have


@dataclass
class Worker(Generic[R]):
    """One process and the pipes to it; `next_step`, a step or an error, was received and not taken yet.

    A process `is_copy` of this one if it was not started again: it is ready at once.
    """

    process: BaseProcess
    jobs: Connection
    steps: Connection
    is_copy: bool
    next_step: WorkerStep[R] | Exception | None = None
    is_done: bool = False

    def receive(self, make: Callable[[], Job[R]]) -> None:
        """Receive one message; send a process that is ready `make`, which makes its job."""
        try:
            message = receive(self.steps.fileno())
            if message == READY:
                if not self.is_copy:
                    self.jobs.send(make)
                return
        except (EOFError, ConnectionResetError, BrokenPipeError):
            hint = "a process that the system ends has often met its memory limit: fewer --jobs need less"
            message = RmqtoolError("a process that helped has died", hint=hint)
        self.is_done = message == DONE or isinstance(message, Exception)
        self.next_step = None if message == DONE else message

    def take(self) -> WorkerStep[R]:
        """The step that was received; raises the error that the process sent."""
        step, self.next_step = self.next_step, None
        if isinstance(step, WorkerStep):
            for error in step.failed:
                noted(error)
            return step
        raise step or LookupError


class WorkerPool(Generic[R]):
    """Processes that wait for a job, do it together with this one, and have ended when the block is left.

    They are copies of this process, with all of its modules, where that is safe and `may_copy` allows it: one that is
    started again takes nearly half a second until it has loaded them. After an error they get `patience` seconds to end
    what they have started themselves.
    """

    def __init__(self, size: int = 0, *, may_copy: bool = True, patience: float = 0) -> None:
        from multiprocessing import Pipe

        self.workers: list[Worker[R]] = []
        self._may_copy = may_copy
        self._patience = patience
        self._part_numbers, self._part_numbers_end = Pipe(duplex=False)
        self._left = 0  # parts whose end has not come yet
        self._order: Sequence[int] = ()
        self._make: Callable[[], Job[R]] = Job
        self._job: Job[R] | None = None
        self.grow(size)

    def __enter__(self) -> WorkerPool[R]:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            if error is not None and self._patience:
                self._unwind()
        finally:
            self.kill()

    @property
    def is_alone(self) -> bool:
        """Whether no other process helps this one."""
        return not self.workers

    def grow(self, size: int) -> None:
        """Start processes until there are `size`; fewer do the work where the system starts no more."""
        size = processes_at_once(size)
        try:
            while len(self.workers) < size:
                self._start()
        except OSError as error:
            if not cannot_start(error):
                self.kill()
                raise
        except BaseException:
            self.kill()
            raise

    def begin(self, make: Callable[[], Job[R]], order: Sequence[int], job: Job[R] | None) -> None:
        """Hand out parts in this order, at most MAX_PARTS; each process does the job that `make` returns there.

        This process does `job`; with None it only receives from the others, without delay, however long a step takes.
        """
        self._make, self._order, self._job, self._left = make, order, job, len(order)
        if job is not None and self.workers:
            keep_arrow_to_one_thread()
        write_part_numbers(self._part_numbers_end, order)
        for worker in self.workers:
            if worker.is_copy:
                with deferred_signals(), suppress(BrokenPipeError):  # of one that is dead, which is seen later
                    worker.jobs.send(make)

    def steps(self) -> Iterator[WorkerStep[R]]:
        """The steps of all parts as they come; raises an error of a process."""
        for step in self._own_steps():
            yield self._counted(step)
            yield from self._received(0)
        while self._left:  # processes that are not ready by now are not needed any more
            yield from self._received(WAIT_SECONDS)

    def steps_in_order(self, ahead: int) -> Iterator[WorkerStep[R]]:
        """The steps part by part; this process may work up to `ahead` bytes before its turn."""
        own, waiting, size = self._own_steps(), deque[WorkerStep[R]](), 0
        for part in self._order:
            ended = False
            while not ended:
                self._receive(0)
                worker = next((worker for worker in self.workers if _is_step_of(worker.next_step, part)), None)
                if waiting and waiting[0].part == part:
                    step = waiting.popleft()
                    size -= step.size
                elif worker is not None:
                    step = worker.take()
                else:
                    own_step = next(own, None) if size < ahead else None
                    if own_step is None:
                        self._receive(WAIT_SECONDS)
                    else:
                        waiting.append(own_step)
                        size += own_step.size
                    continue
                ended = step.ended
                yield step

    def stop(self) -> Iterator[WorkerStep[R]]:
        """End all parts where they are; yields the unfinished results of the processes that answer in time."""
        until = time.monotonic() + _STOP_SECONDS
        for worker in self.workers:
            worker.process.terminate()
        unfinished = self._job and self._job.unfinished()
        if unfinished:
            yield WorkerStep(unfinished[0], result=unfinished[1])
        while (left := until - time.monotonic()) > 0 and not all(worker.is_done for worker in self.workers):
            yield from (worker.take() for worker in self.workers if isinstance(worker.next_step, WorkerStep))
            self._receive(left)

    def kill(self) -> None:
        """End all processes at once."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.jobs.close()
            worker.steps.close()
        self.workers = []
        self._part_numbers.close()
        self._part_numbers_end.close()

    def _unwind(self) -> None:
        """Have all processes leave their blocks where they are; what those have started that take too long is ended."""
        until = time.monotonic() + self._patience
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(max(0, until - time.monotonic()))
            if worker.process.is_alive() and worker.process.pid is not None:
                kill_children(worker.process.pid)

    def _own_steps(self) -> Iterator[WorkerStep[R]]:
        return iter(()) if self._job is None else do_parts(self._job, self._part_numbers)

    def _received(self, timeout: float) -> Iterator[WorkerStep[R]]:
        self._receive(timeout)
        for worker in self.workers:
            if worker.next_step is not None:
                yield self._counted(worker.take())

    def _counted(self, step: WorkerStep[R]) -> WorkerStep[R]:
        self._left -= step.ended
        return step

    def _receive(self, timeout: float) -> None:
        """Receive one message of each process whose last one was taken; wait for the first of them."""
        silent = {
            worker.steps.fileno(): worker for worker in self.workers if worker.next_step is None and not worker.is_done
        }
        if not silent:
            return
        pipes = select.poll()  # `multiprocessing.connection.wait` takes ten times longer
        for pipe in silent:
            pipes.register(pipe, select.POLLIN)
        for pipe, _ in pipes.poll(timeout * 1000):
            with deferred_signals():  # behind half a message nothing that comes through the pipe has a meaning
                silent[pipe].receive(self._make)

    def _start(self) -> None:
        from multiprocessing import get_context

        copies = self._may_copy and _is_copy_safe()
        context = get_context("fork") if copies else get_context("spawn")
        their_jobs, jobs = context.Pipe(duplex=False)
        steps, their_steps = context.Pipe(duplex=False)
        _enlarge(their_steps)
        parent_ends = [jobs, steps, self._part_numbers_end]
        parent_ends += [end for worker in self.workers for end in (worker.jobs, worker.steps)]
        worker_number = len(self.workers) + 1
        ends = parent_ends if copies else []
        arguments = (worker_number, share_held(), self._part_numbers, their_jobs, their_steps, ends)
        try:
            process = context.Process(target=serve, args=arguments, daemon=True)
            with _blocked_signals(), warnings.catch_warnings():  # a new process would answer Ctrl-C with a traceback
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # of libraries' threads, which know how to be copied
                process.start()
        except BaseException:
            jobs.close()
            steps.close()
            raise
        finally:
            their_jobs.close()
            their_steps.close()
        self.workers.append(Worker(process, jobs, steps, copies))


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Signals that end a command are blocked, and so they are in processes that are started meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_copy_safe() -> bool:
    """Whether a copy of this process can do no harm: no thread of ours may hold a lock, and the system allows it."""
    return sys.platform == "linux" and threading.active_count() == 1


def _enlarge(pipe: Connection) -> None:
    """Enlarge a pipe, where the system can, so that processes wait less for its reader."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


def _is_step_of(step: WorkerStep[R] | Exception | None, part: int) -> bool:
    """Whether a step belongs to `part`; an error belongs to any part."""
    return isinstance(step, Exception) or (step is not None and step.part == part)
