"""A pass over the log in several processes: each digests pieces of the log, which are put together in order.

This process is one of them. The others take pieces as they get done with the one before, and send what they find over
a pipe; until they are up this one works on alone. What comes of a piece does not depend on those before it, so the
whole is the same whoever digests it.
"""

from __future__ import annotations

import fcntl
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import RateLimit
from rmqtool.base.limits import cannot_start, exhausted_or_raise, memory_is_short, processes_at_once
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.parallel import LOOK_SECONDS, hand_out, keep_arrow_to_one_thread, start_process, take_number
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.run_result import Item, PassNumbers, Renumbering, RunReader, RunTask, packed, unpacked

_SMALLEST_PIECE, _LARGEST_PIECE = 64 << 20, 256 << 20  # a scan that begins in the middle reads 8 MiB before it too
_USUAL_PIECES = 16  # of a log: the last process that works has no more than one of them to do
_MOST_PIECES = 4096  # their numbers fit into a pipe that nobody reads
_MOST_WAITING = (4 if memory_is_short() else 64) << 20  # bytes that a process has ready, not yet read
_MOST_AHEAD = (8 if memory_is_short() else 128) << 20  # bytes of the log that this process digests before their turn
_PIPE_SIZE = 1 << 20  # bytes; what most systems let anybody have
_PROTOCOL = 5  # of pickle: arrays are copied once

Message = int | tuple[Item, list[QueueName]] | RmqtoolError | None
"""The number of a piece that is begun; what is found in it; what went wrong; None: the piece has ended, or all has."""


class PiecesDoNotMeetError(Exception):
    """A piece does not begin where the one before it has ended: bytes look like a record that are none."""


def pieces_of(files: Sequence[MappedFile], size: int | None = None) -> list[tuple[int, int]]:
    """The log in pieces of about `size` bytes: physical offsets, the end exclusive."""
    if not files:
        return []
    total = sum(file.size for file in files)
    usual = min(max(total // _USUAL_PIECES, _SMALLEST_PIECE), _LARGEST_PIECE)
    size = max(size or usual, total // _MOST_PIECES)
    places = {files[0].start_offset}
    for file in files:
        places.update(range(file.start_offset, file.end_offset, size))
    end, borders = files[-1].end_offset, [files[0].start_offset]
    borders.extend(place for place in sorted(places) if place - borders[-1] >= size and end - place >= size // 2)
    return list(zip(borders, [*borders[1:], end], strict=True))


def items_of_processes(
    task: RunTask, numbers: PassNumbers, pieces: Sequence[tuple[int, int]], jobs: int
) -> Iterator[Item]:
    """All items of the log in order. Raises PiecesDoNotMeetError, and what a process raises."""
    jobs = min(jobs, len(pieces))
    limit = task.reading.rate_limit
    if limit:
        slower = RateLimit(max(1, limit.bytes_per_second // jobs))
        task = replace(task, reading=replace(task.reading, rate_limit=slower))
    todo = _Todo(len(pieces))
    workers: list[_Worker] = []
    try:
        _start(workers, processes_at_once(jobs - 1), partial(_Worker, task, pieces, todo, numbers, workers))
        end = -1
        for item in _in_order(_Own(task, pieces, todo, numbers), workers, len(pieces)):
            if end not in (-1, item.physical_offset):
                raise PiecesDoNotMeetError
            end = item.physical_offset + item.size
            yield item
    finally:
        todo.close()
        for worker in workers:
            worker.close()


def _start(workers: list[_Worker], count: int, start: Callable[[], _Worker]) -> None:
    """Start so many processes, or those that the system gives: fewer do the work then."""
    try:
        while len(workers) < count:
            workers.append(start())
    except OSError as error:
        if not cannot_start(error):
            raise


def _in_order(own: _Own, workers: Sequence[_Worker], count: int) -> Iterator[Item]:
    """The items of all pieces; while the next ones are in the making elsewhere, this process works ahead."""
    for number in range(count):
        while own.number != number and all(worker.number != number for worker in workers):
            if not own.work_ahead():
                wait([worker.connection for worker in workers if not worker.is_done], LOOK_SECONDS)
        if own.number == number:
            yield from own.piece()
            continue
        worker = next(worker for worker in workers if worker.number == number)
        while True:
            while not worker.connection.poll() and own.work_ahead():
                pass
            item = worker.next_item()
            if item is None:
                break
            yield item


class _Todo:
    """The numbers of the pieces that nobody has begun, in a pipe: who reads one has it."""

    def __init__(self, count: int) -> None:
        self.numbers, writer = Pipe(duplex=False)
        hand_out(writer, range(count))

    def take(self) -> int | None:
        """A piece to begin; None when there is none."""
        return take_number(self.numbers)

    def close(self) -> None:
        """No more are begun."""
        self.numbers.close()


class _Own:
    """The pieces that this process digests, a few of them before their turn."""

    def __init__(self, task: RunTask, pieces: Sequence[tuple[int, int]], todo: _Todo, numbers: PassNumbers) -> None:
        self._digester = RunReader(task)
        self._renumbering = Renumbering(numbers)
        self._pieces = pieces
        self._todo = todo
        self._begun: deque[_OwnPiece] = deque()

    @property
    def number(self) -> int | None:
        """The first piece that was begun and not given yet."""
        return self._begun[0].number if self._begun else None

    def work_ahead(self) -> bool:
        """Digest one more run of records; False when there is nothing to do, or enough was done."""
        if sum(piece.size for piece in self._begun) >= _MOST_AHEAD:
            return False
        if not (self._begun and self._begun[-1].go_on()):
            number = self._todo.take()
            if number is None:
                return False
            self._begun.append(_OwnPiece(number, self._found(number)))
        return True

    def piece(self) -> Iterator[Item]:
        """The items of the first piece, which is then done."""
        piece = self._begun[0]
        while piece.items or piece.go_on():
            yield self._renumbering.apply(*piece.items.popleft())
        self._begun.popleft()

    def _found(self, number: int) -> Iterator[tuple[Item, list[QueueName]]]:
        for item in self._digester.items(*self._pieces[number]):
            yield item, self._digester.new_queues()


class _OwnPiece:
    """What was found in a piece so far."""

    def __init__(self, number: int, found: Iterator[tuple[Item, list[QueueName]]]) -> None:
        self.number = number
        self.items: deque[tuple[Item, list[QueueName]]] = deque()
        self.size = 0  # of what was digested, bytes
        self._found = found

    def go_on(self) -> bool:
        """Find one more item; False at the end."""
        for item, queues in self._found:
            self.items.append((item, queues))
            self.size += item.size
            return True
        return False


class _Worker:
    """A process that digests some pieces of the log."""

    def __init__(self, task: RunTask, pieces: Sequence[tuple[int, int]], todo: _Todo, numbers: PassNumbers,
                 others: Sequence[_Worker]) -> None:  # fmt: skip
        self.connection, theirs = Pipe(duplex=False)
        with suppress(AttributeError, OSError):  # less to wait for where a pipe can be as large
            fcntl.fcntl(theirs.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        ours = [self.connection, *(other.connection for other in others)]
        try:
            self._process = start_process(_serve, (task, pieces, todo.numbers, theirs), ours)
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()
        self.is_done = False
        self._number: int | None = None
        self._renumbering = Renumbering(numbers)

    @property
    def number(self) -> int | None:
        """The piece whose items come next, as far as the process has told."""
        if self._number is None and not self.is_done and self.connection.poll():
            message = self._receive()
            self.is_done = message is None
            self._number = message if isinstance(message, int) else None
        return self._number

    def next_item(self) -> Item | None:
        """The next item of the piece; None when it has ended."""
        message = self._receive()
        if isinstance(message, tuple):
            item, queues = message
            return self._renumbering.apply(unpacked(item), queues)
        self._number = None
        return None

    def _receive(self) -> Message:
        try:
            message: Message = pickle.loads(self.connection.recv_bytes())
        except EOFError:
            raise RmqtoolError("a process of this rebuild has died: out of memory?") from None
        if isinstance(message, RmqtoolError):
            raise message
        return message

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()
        self._process.join()
        self.connection.close()


class _Sender:
    """Sends from a thread of its own, so that a process goes on while its reader is busy with another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._size = 0
        self._is_broken = False
        self._room = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Send a message; wait while too much waits already. Raises BrokenPipeError when nobody reads any more."""
        data = pickle.dumps(message, _PROTOCOL)
        with self._room:
            self._room.wait_for(lambda: self._size < _MOST_WAITING)
            self._size += len(data)
        if self._is_broken:
            raise BrokenPipeError
        self._waiting.put(data)

    def finish(self) -> None:
        """Return when all is sent."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (data := self._waiting.get()) is not None:
            try:
                self._connection.send_bytes(data)
            except OSError:
                self._is_broken = True
            with self._room:
                self._size -= len(data)
                self._room.notify()


def _serve(task: RunTask, pieces: Sequence[tuple[int, int]], numbers: Connection, connection: Connection) -> None:
    """Digest pieces as long as there are any."""
    keep_arrow_to_one_thread()
    sender = _Sender(connection)
    try:
        digester = RunReader(task)
        while (number := take_number(numbers)) is not None:
            sender.put(number)
            for item in digester.items(*pieces[number]):
                sender.put((packed(item), digester.new_queues()))
            sender.put(None)
        sender.put(None)
    except RmqtoolError as error:
        with suppress(BrokenPipeError):
            sender.put(error)
    except BrokenPipeError:
        return
    except (MemoryError, ImportError, RuntimeError, OSError) as error:
        sender.put(exhausted_or_raise(error))
    sender.finish()
