"""A pass over the log in several processes: each digests pieces of the log, which are put together in order.

The processes are started anew (spawn) and send what they find over a pipe. What comes of a piece does not depend on
those before it, so the whole is the same whatever the number of processes.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue

from rmqtool.dispatch.units import QueueName
from rmqtool.errors import RmqtoolError
from rmqtool.files import RateLimit
from rmqtool.mapped_files import MappedFile
from rmqtool.processes import keep_arrow_to_one_thread
from rmqtool.rebuild.digest import Digester, Item, PassNumbers, Renumbering, Task

PIECE_SIZE = 64 << 20
"""At least so many bytes of the log are one piece: a scan that begins in the middle reads 8 MiB before it too."""

_MOST_WAITING = 64 << 20  # bytes that a process has ready before it waits for their reader

Message = tuple[Item, list[QueueName]] | RmqtoolError | None  # None: the piece has ended


class PiecesDoNotMeetError(Exception):
    """A piece does not begin where the one before it has ended: bytes look like a record that are none."""


def pieces_of(files: Sequence[MappedFile], size: int = PIECE_SIZE) -> list[tuple[int, int]]:
    """The log in pieces: physical offsets, the end exclusive."""
    if not files:
        return []
    places = {files[0].start_offset}
    for file in files:
        places.update(range(file.start_offset, file.end_offset, size))
    end, borders = files[-1].end_offset, [files[0].start_offset]
    borders.extend(place for place in sorted(places) if place - borders[-1] >= size and end - place >= size // 2)
    return list(zip(borders, [*borders[1:], end], strict=True))


def items_of_processes(
    task: Task, numbers: PassNumbers, pieces: Sequence[tuple[int, int]], jobs: int
) -> Iterator[Item]:
    """All items of the log in order. Raises PiecesDoNotMeetError, and what a process raises."""
    jobs = min(jobs, len(pieces))
    limit = task.reading.rate_limit
    if limit:
        slower = RateLimit(max(1, limit.bytes_per_second // jobs))
        task = replace(task, reading=replace(task.reading, rate_limit=slower))
    workers: list[_Worker] = []
    try:
        workers.extend(_Worker(task, pieces[number::jobs], numbers) for number in range(jobs))
        end = -1
        for number in range(len(pieces)):
            for item in workers[number % jobs].piece():
                if end not in (-1, item.physical_offset):
                    raise PiecesDoNotMeetError
                end = item.physical_offset + item.size
                yield item
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """A process that digests some pieces of the log."""

    def __init__(self, task: Task, pieces: Sequence[tuple[int, int]], numbers: PassNumbers) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe(duplex=False)
        self._process: BaseProcess = context.Process(target=_serve, args=(task, pieces, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._renumbering = Renumbering(numbers)

    def piece(self) -> Iterator[Item]:
        """The items of the next of its pieces."""
        while (message := self._receive()) is not None:
            yield self._renumbering.apply(*message)

    def _receive(self) -> tuple[Item, list[QueueName]] | None:
        try:
            message: Message = self._connection.recv()
        except EOFError:
            raise RmqtoolError("a process of this rebuild has died: out of memory?") from None
        if isinstance(message, RmqtoolError):
            raise message
        return message

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()
        self._process.join()
        self._connection.close()


class _Sender:
    """Sends from a thread of its own, so that a process goes on while its reader is busy with another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: SimpleQueue[memoryview | None] = SimpleQueue()
        self._size = 0
        self._room = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Send a message; wait while too much waits already."""
        data = ForkingPickler.dumps(message)
        with self._room:
            self._room.wait_for(lambda: self._size < _MOST_WAITING)
            self._size += len(data)
        self._waiting.put(data)

    def finish(self) -> None:
        """Return when all is sent."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        broken = False
        while (data := self._waiting.get()) is not None:
            if not broken:
                try:
                    self._connection.send_bytes(data)
                except OSError:
                    broken = True  # the parent is gone
            with self._room:
                self._size -= len(data)
                self._room.notify()


def _serve(task: Task, pieces: Sequence[tuple[int, int]], connection: Connection) -> None:
    """Digest pieces; Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_arrow_to_one_thread()
    sender = _Sender(connection)
    try:
        digester = Digester(task)
        for start, stop in pieces:
            for item in digester.items(start, stop):
                sender.put((item, digester.new_queues()))
            sender.put(None)
    except RmqtoolError as error:
        sender.put(error)
    sender.finish()
