"""A process of the crew: it does parts until there are no more, and tells over a pipe what it has found."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from types import FrameType

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.limits import exhausted_or_raise
from rmqtool.base.parallel import keep_arrow_to_one_thread, take_number
from rmqtool.verify.part_check import PartCheck

READY, DONE = "ready", "done"
"""What a process says before it is told what to do, and when there is nothing left."""

_STEP = 32 << 20  # bytes between two messages about progress


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


def serve(connection: Connection, numbers: Connection) -> None:
    """Do parts in a process of the crew until there are no more."""
    channel = _Channel(connection)
    number = None
    try:
        signal.signal(signal.SIGTERM, channel.stop)
        keep_arrow_to_one_thread()
        channel.send(READY)
        settings, parts = connection.recv()
        check = PartCheck(settings, channel.progress)
        while (number := take_number(numbers)) is not None:
            channel.send((number, check.check(parts[number])))
            number = None
        channel.send_last(DONE)
    except _StoppedError:
        if number is not None:
            channel.send_last((number, check.result))
    except RmqtoolError as error:
        channel.send_last(error)
    except (EOFError, BrokenPipeError):
        return  # the parent is gone
    except (MemoryError, ImportError, RuntimeError, OSError) as error:
        channel.send_last(exhausted_or_raise(error))
