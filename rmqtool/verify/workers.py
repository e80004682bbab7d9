"""Parts of a verification done by this process and by a crew of others, which are heard over pipes."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.parallel import LOOK_SECONDS, hand_out, keep_arrow_to_one_thread, take_number, uninterrupted
from rmqtool.verify.crew import Worker, WorkerPool
from rmqtool.verify.part_check import PartCheck, Progress, VerifyTask
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.parts import AnyPart, LogPart
from rmqtool.verify.serving import DONE, READY

_STOP_S = 1.0  # how long processes that are stopped may take to say what they know

_Answer = tuple[int, PartResult]


class _ElsewhereError(BaseException):
    """Something went wrong in another process; no part of this one may take it for its own."""


class Workers:
    """Does all parts, together with the crew."""

    def __init__(self, settings: VerifyTask, parts: Sequence[AnyPart], crew: WorkerPool, progress: Progress) -> None:
        self._settings = settings
        self._parts = parts
        self._crew = crew
        self._progress = progress
        self._is_counted = True
        self._check = PartCheck(settings, self._tell)
        self._own: int | None = None
        self._answers: list[_Answer] = []
        self._error: RmqtoolError | None = None
        self._members = {member.connection.fileno(): member for member in crew.members}
        self._busy: set[int] = set()
        self._poller = select.poll()
        for number in self._members:
            self._poller.register(number, select.POLLIN)
        if crew.members:
            keep_arrow_to_one_thread()
        _hand_out(parts, crew)

    def results(self) -> Iterator[_Answer]:
        """The results of the parts by their number, as they come; raises RmqtoolError."""
        while (number := take_number(self._crew.numbers[0])) is not None:
            self._own = number
            result = self._do(self._parts[number])
            self._own = None
            yield number, result
            yield from self._take_answers()
        while self._busy:  # processes that are not ready by now are not needed any more
            wait([self._members[number].connection for number in self._busy], LOOK_SECONDS)
            self._listen()
            self._raise_error()
            yield from self._take_answers()

    def again(self, part: LogPart) -> PartResult:
        """Do a part whose bytes are counted already; raises RmqtoolError."""
        self._is_counted = False
        try:
            return self._do(part)
        finally:
            self._is_counted = True

    def stop(self) -> Iterator[_Answer]:
        """End all parts where they are; what is known of each that tells in time."""
        until = time.monotonic() + _STOP_S
        for member in self._members.values():
            member.process.terminate()
        if self._own is not None:
            yield self._own, self._check.result
        yield from self._take_answers()
        while self._busy and (left := until - time.monotonic()) > 0:
            wait([self._members[number].connection for number in self._busy], left)
            self._listen()
            yield from self._take_answers()

    def close(self) -> None:
        """Close what this process has opened."""
        self._check.close()

    def _do(self, part: AnyPart) -> PartResult:
        try:
            return self._check.check(part)
        except _ElsewhereError:
            self._raise_error()
            raise

    def _tell(self, size: int) -> None:
        """Count what this process has done, and hear what the others have."""
        if self._is_counted:
            self._progress(size)
        self._listen()
        if self._error is not None:
            raise _ElsewhereError

    def _listen(self) -> None:
        for number, _ in self._poller.poll(0) if self._members else ():
            with uninterrupted():
                self._hear(number, self._members[number])

    def _hear(self, number: int, member: Worker) -> None:
        try:
            message = member.connection.recv()
            if message == READY:
                member.connection.send((self._settings, self._parts))
                self._busy.add(number)
                return
        except (EOFError, ConnectionResetError, BrokenPipeError):
            message = RmqtoolError("a process of this verification has died: out of memory?")
        if message == DONE:
            self._leave(number)
        elif isinstance(message, RmqtoolError):
            self._leave(number)
            self._error = self._error or message
        elif isinstance(message, int):
            self._progress(message)
        else:
            self._answers.append(message)

    def _leave(self, number: int) -> None:
        self._poller.unregister(number)
        self._busy.discard(number)
        del self._members[number]

    def _take_answers(self) -> Iterator[_Answer]:
        while self._answers:
            yield self._answers.pop(0)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error from None


def _hand_out(parts: Sequence[AnyPart], crew: WorkerPool) -> None:
    """Write down the order of the parts, from which everybody takes the next.

    Index files go before the log: one can be the longest part of all, and begun last it would keep one process busy
    while the others have nothing left to do. The log's parts are begun in their order, so that few wait to be joined.
    """
    order = sorted(range(len(parts)), key=lambda number: isinstance(parts[number], LogPart))
    hand_out(crew.numbers[1], order)
