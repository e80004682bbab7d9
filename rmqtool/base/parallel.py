"""A pool of processes that share the numbered parts of one job: verification, rebuild, export, salvage, statistics.

First the messages that they exchange through pipes, then a process, then the pool.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from rmqtool.base.child_process import kill_children
from rmqtool.base.errors import RmqtoolError, UnreadableError, failed_reads, noted
from rmqtool.base.late_modules import hide_pandas
from rmqtool.base.limits import cannot_start, exhausted, hold, processes_at_once, share_held, sized
from rmqtool.base.signals import WAIT_SECONDS, deferred_signals

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess


_PROTOCOL = 5  # the first one that leaves the bytes of arrays to others
_SIZE = struct.Struct("=Q")
_ALIGNMENT = 16  # of each piece, as memory has it: arrays that begin anywhere are slow
_ZEROS = memoryview(bytes(_ALIGNMENT))
_MOST_PIECES = 1024  # that systems take at once


def packed(message: object) -> list[memoryview]:
    """A message as `send` takes it; its arrays lie in it, and must not be changed before they are sent."""
    arrays: list[pickle.PickleBuffer] = []
    pieces = [memoryview(pickle.dumps(message, _PROTOCOL, buffer_callback=arrays.append))]
    pieces += [array.raw() for array in arrays]
    sizes = [len(piece) for piece in pieces]
    end = _head_size(len(pieces))
    filled: list[memoryview] = []
    for piece in pieces:
        filled += [_ZEROS[: -end % _ALIGNMENT], piece]
        end += -end % _ALIGNMENT + len(piece)
    return [memoryview(struct.pack(f"={2 + len(sizes)}Q", end, len(sizes), *sizes)), *filled]


def packed_size(pieces: Iterable[memoryview]) -> int:
    """The bytes of a packed message."""
    return sum(map(len, pieces))


def send(pipe: int, pieces: Iterable[memoryview]) -> None:
    """Write a packed message to a pipe; raises BrokenPipeError when nobody reads it any more."""
    left = list(pieces)
    while left:
        sent, number = os.writev(pipe, left[:_MOST_PIECES]), 0
        while number < len(left) and sent >= len(left[number]):
            sent -= len(left[number])
            number += 1
        left = left[number:]
        if sent:
            left[0] = left[0][sent:]


def receive(pipe: int) -> Any:
    """Read one message from a pipe; raises EOFError when nobody writes to it any more."""
    (size,) = _SIZE.unpack(_read(pipe, _SIZE.size))
    data = _read(pipe, size)
    (count,) = _SIZE.unpack_from(data)
    position = _head_size(count)
    pieces = []
    for number in range(count):
        (size,) = _SIZE.unpack_from(data, _SIZE.size * (number + 1))
        position += -position % _ALIGNMENT
        pieces.append(data[position : position + size])
        position += size
    return pickle.loads(pieces[0], buffers=pieces[1:])


def _head_size(count: int) -> int:
    """Bytes of the number of pieces and their sizes."""
    return _SIZE.size * (1 + count)


def _read(pipe: int, size: int) -> memoryview:
    data = rest = np.empty(size, np.uint8).data
    while rest:
        count = os.readv(pipe, [rest])
        if not count:
            raise EOFError
        rest = rest[count:]
    return data


READY, DONE = "ready", "done"
"""Messages of a process: before it gets its job, and when no part is left to do."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_MAX_WAITING = 64 << 20  # bytes that a process has ready, not yet read
_LEAST_WAITING = 4 << 20
_PROGRESS_STEP = 32 << 20  # bytes between two messages that report nothing but progress
_PART_NUMBER_SIZE = 4  # bytes

R = TypeVar("R")


@dataclass(frozen=True)
class WorkerStep(Generic[R]):
    """The progress of a process on a part since its last step; `worker` is its number in the pool, 0 this process.

    `failed` are the errors of files that another process could not read, which it may have done without.
    """

    part: int
    size: int = 0  # bytes
    result: R | None = None
    ended: bool = False
    worker: int = 0
    failed: tuple[UnreadableError, ...] = ()


class Job(Generic[R]):
    """The work of one process on numbered parts."""

    def do(self, part: int) -> Iterator[tuple[int, R | None]]:
        """Do a part step by step: bytes done since the last step, and a result or None."""
        raise NotImplementedError

    def unfinished(self) -> tuple[int, R] | None:
        """The part that is being done and its result so far; None when that is not worth reporting."""
        return None


def do_parts(job: Job[R], part_numbers: Connection, worker: int = 0) -> Iterator[WorkerStep[R]]:
    """Do parts until none is left; all processes read the next one's number from the pipe `part_numbers`."""
    while part_number := os.read(part_numbers.fileno(), _PART_NUMBER_SIZE):
        part = int.from_bytes(part_number, "big")
        for size, result in job.do(part):
            yield WorkerStep(part, size, result, worker=worker)
        yield WorkerStep(part, ended=True, worker=worker)


def serve(
    worker: int, share: float, part_numbers: Connection, jobs: Connection, steps: Connection,
    parent_ends: list[Connection],
) -> None:  # fmt: skip
    """Run a process of a pool: `jobs` brings the function that makes its job, `steps` takes its steps.

    `share` is what it may hold at once (`base.memory`).
    `parent_ends` are the parent's ends of pipes, which a forked process inherits: closed, lest they stay open.
    """
    for end in parent_ends:
        end.close()
    hold(share)
    _leave_signals_to_parent()
    sender = _Sender(steps)
    job: Job[object] | None = None
    try:
        signal.signal(signal.SIGTERM, sender.stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        hide_pandas()
        keep_arrow_to_one_thread()
        sender.put(READY)
        job = jobs.recv()()
        sender.heed_stop()
        size = 0
        with failed_reads() as failed:
            for step in do_parts(job, part_numbers, worker):
                size += step.size
                if step.ended or step.result is not None or size >= _PROGRESS_STEP:
                    sender.put(replace(step, size=size, failed=tuple(failed.values())))
                    size = 0
                    failed.clear()
        sender.put_last(DONE)
    except _StoppedError:
        unfinished = job and job.unfinished()
        if unfinished:
            sender.put_last(WorkerStep(unfinished[0], result=unfinished[1], worker=worker))
    except (EOFError, BrokenPipeError):
        return  # the parent is gone
    except Exception as error:  # noqa: BLE001 - the parent raises it
        sender.put_last(exhausted(error) or _with_traceback(error))
    sender.finish()


def _leave_signals_to_parent() -> None:
    """Ignore Ctrl-C and hang-up, which all processes get: the parent ends this one, also by its own end."""
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parent = parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGKILL)  # in the midst of its part, which may take minutes

    threading.Thread(target=end_with_parent, daemon=True).start()


def keep_arrow_to_one_thread() -> None:
    """There is a process for each core: more threads of Arrow would only wait for each other."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _with_traceback(error: Exception) -> Exception:
    """An unexpected error, which is raised again in the parent; pickle keeps no traceback."""
    if sys.version_info >= (3, 11):
        error.add_note(traceback.format_exc())
    return error


class _StoppedError(BaseException):
    """The parent asks for the result so far; a BaseException, which no `except Exception` catches."""


class _Sender:
    """Sends from a thread of its own, so that a process goes on while its reader is busy with another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: SimpleQueue[list[memoryview] | None] = SimpleQueue()
        self._size = 0
        self._limit = sized(_MAX_WAITING, _LEAST_WAITING)
        self._is_broken = False
        self._is_stopped = False
        self._is_putting = False
        self._room = threading.Condition()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def stop(self, signal_number: int, frame: FrameType | None) -> None:
        """The handler of SIGTERM; one that comes while something is put waits until that is done."""
        if not self._is_stopped:
            self._is_stopped = True
            if not self._is_putting:
                raise _StoppedError

    def put(self, message: object) -> None:
        """Send a message; wait while too many bytes are unsent. Raises BrokenPipeError when the reader is gone."""
        self._is_putting = True
        self._put(message)
        self._is_putting = False
        self.heed_stop()

    def heed_stop(self) -> None:
        """Stop now where a stop came that had no effect: Python drops what is raised while it imports a module."""
        if self._is_stopped:
            raise _StoppedError

    def put_last(self, message: object) -> None:
        """Send the last message; a stop that comes later is ignored."""
        self._is_putting = True
        self._put(message)

    def finish(self) -> None:
        """Return when all is sent."""
        self._waiting.put(None)
        self._thread.join()

    def _put(self, message: object) -> None:
        pieces = packed(message)
        with self._room:
            self._room.wait_for(lambda: self._size < self._limit)
            self._size += packed_size(pieces)
        if self._is_broken:
            raise BrokenPipeError
        self._waiting.put(pieces)

    def _send_all(self) -> None:
        while (pieces := self._waiting.get()) is not None:
            try:
                send(self._connection.fileno(), pieces)
            except OSError:
                self._is_broken = True
            with self._room:
                self._size -= packed_size(pieces)
                self._room.notify()


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
            hint = "a process that the system kills often ran out of memory: use fewer --jobs"
            message = RmqtoolError("a worker process died", hint=hint)
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
        numbers = b"".join(part.to_bytes(_PART_NUMBER_SIZE, "big") for part in order)  # for `do_parts`
        os.write(self._part_numbers_end.fileno(), numbers)
        self._part_numbers_end.close()
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
