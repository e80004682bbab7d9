"""Parts of a verification in several processes: started anew (spawn), told what to do, heard over a pipe."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType, TracebackType

from rmqtool.errors import RmqtoolError
from rmqtool.processes import keep_arrow_to_one_thread
from rmqtool.verify.part import IndexPart, LogPart, PartCheck, PartResult, Progress, Settings

_STEP = 32 << 20  # bytes between two messages about progress
_STOP_S = 1.0  # how long processes that are stopped may take to say what they know

AnyPart = LogPart | IndexPart
_Answer = tuple[int, PartResult]


class Workers:
    """Processes that do parts; all have ended when the block is left."""

    def __init__(self, settings: Settings, parts: Sequence[AnyPart], jobs: int, progress: Progress) -> None:
        # The last is taken first. An index file goes before the log: it can be the longest part of all, and begun
        # last it would keep one process busy while the others have nothing left to do.
        self._todo = sorted(enumerate(parts), key=lambda part: (isinstance(part[1], IndexPart), -part[0]))
        self._progress = progress
        self._processes: dict[Connection, BaseProcess] = {}
        try:
            for _ in range(min(jobs, len(parts))):
                connection, process = _start(settings)
                self._processes[connection] = process
                connection.send(self._todo.pop())
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def results(self) -> Iterator[_Answer]:
        """The results of the parts by their number, as they come; raises RmqtoolError."""
        while self._processes:
            for ready in self._ready(None):
                answer = _receive(ready, self._progress)
                if answer is None:
                    continue
                if self._todo:
                    ready.send(self._todo.pop())
                else:
                    ready.send(None)
                    self._processes.pop(ready).join()
                yield answer

    def stop(self) -> Iterator[_Answer]:
        """End all parts where they are; what is known of each that tells in time."""
        until = time.monotonic() + _STOP_S
        for process in self._processes.values():
            process.terminate()
        while self._processes and (left := until - time.monotonic()) > 0:
            for ready in self._ready(left):
                try:
                    answer = _receive(ready, self._progress)
                except RmqtoolError:
                    self._processes.pop(ready)  # it had ended, or had not begun
                    continue
                if answer is not None:
                    yield answer

    def _ready(self, timeout: float | None) -> list[Connection]:
        return [found for found in wait(list(self._processes), timeout) if isinstance(found, Connection)]

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()


def _start(settings: Settings) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(settings, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _receive(connection: Connection, progress: Progress) -> _Answer | None:
    """A result, or None when a process only tells how far it is; what went wrong there is raised here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # half a message read is worth nothing
    try:
        message = connection.recv()
    except (EOFError, ConnectionResetError):
        raise RmqtoolError("a process of this verification has died: out of memory?") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if isinstance(message, RmqtoolError):
        raise message
    if isinstance(message, int):
        progress(message)
        return None
    number, result = message
    return number, result


class _StoppedError(BaseException):
    """The parent wants to know what is known by now; no `except Exception` may keep it."""


class _Channel:
    """The way to the parent: a stop that comes while something is sent waits until it is sent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = False
        self._stopped = False
        self._done = 0

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGTERM."""
        if not self._stopped:
            self._stopped = True
            if not self._sending:
                raise _StoppedError

    def send(self, message: object) -> None:
        self._sending = True
        self._connection.send(message)
        self._sending = False
        if self._stopped:
            raise _StoppedError

    def send_last(self, message: object) -> None:
        """Send while stopped."""
        self._sending = self._stopped = True
        self._connection.send(message)

    def progress(self, size: int) -> None:
        self._done += size
        if self._done >= _STEP:
            done, self._done = self._done, 0
            self.send(done)


def _serve(settings: Settings, connection: Connection) -> None:
    """Do parts until there are no more; Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = _Channel(connection)
    number = None
    try:
        signal.signal(signal.SIGTERM, channel.stop)
        keep_arrow_to_one_thread()
        check = PartCheck(settings, channel.progress)
        while (task := connection.recv()) is not None:
            number, part = task
            channel.send((number, check.check(part)))
            number = None
    except _StoppedError:
        if number is not None:
            channel.send_last((number, check.result))
    except RmqtoolError as error:
        channel.send_last(error)
    except (EOFError, BrokenPipeError):
        return  # the parent is gone
