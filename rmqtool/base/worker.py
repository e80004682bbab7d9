"""A process of a pool, and the messages that it exchanges with it through pipes."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from rmqtool.base.errors import UnreadableError, failed_reads
from rmqtool.base.late_modules import hide_pandas
from rmqtool.base.limits import exhausted, hold, sized

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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


def write_part_numbers(pipe: Connection, parts: Iterable[int]) -> None:
    """Write the numbers of the parts for `do_parts`, in this order."""
    os.write(pipe.fileno(), b"".join(part.to_bytes(_PART_NUMBER_SIZE, "big") for part in parts))
    pipe.close()


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
