"""Parts of a verification in several processes: started anew (spawn), told what to do, heard over a pipe."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from rmqtool.errors import RmqtoolError
from rmqtool.verify.part import IndexPart, LogPart, PartCheck, PartResult, Progress, Settings

_STEP = 32 << 20  # bytes between two messages about progress

AnyPart = LogPart | IndexPart


def check_in_processes(
    settings: Settings, parts: Sequence[AnyPart], jobs: int, progress: Progress
) -> Generator[tuple[int, PartResult], None, None]:
    """The results of the parts by their number, as they come. All processes have ended when the iterator is closed."""
    todo = list(enumerate(parts))[::-1]
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(min(jobs, len(parts))):
            connection, process = _start(settings)
            workers[connection] = process
            connection.send(todo.pop())
        while workers:
            for ready in wait(list(workers)):
                if not isinstance(ready, Connection):
                    continue
                result = _receive(ready, progress)
                if result is None:
                    continue
                yield result
                if todo:
                    ready.send(todo.pop())
                else:
                    ready.send(None)
                    workers.pop(ready).join()
    finally:
        for process in workers.values():
            process.terminate()
        for process in workers.values():
            process.join()


def _start(settings: Settings) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(settings, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _receive(connection: Connection, progress: Progress) -> tuple[int, PartResult] | None:
    """A result, or None when a process only tells how far it is; what went wrong there is raised here."""
    try:
        message = connection.recv()
    except EOFError:
        raise RmqtoolError("a process of this verification has died: out of memory?") from None
    if isinstance(message, RmqtoolError):
        raise message
    if isinstance(message, int):
        progress(message)
        return None
    number, result = message
    return number, result


def _serve(settings: Settings, connection: Connection) -> None:
    """Do parts until there are no more; Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _keep_arrow_to_one_thread()
    done = 0

    def progress(size: int) -> None:
        nonlocal done
        done += size
        if done >= _STEP:
            connection.send(done)
            done = 0

    try:
        check = PartCheck(settings, progress)
        while (task := connection.recv()) is not None:
            number, part = task
            connection.send((number, check.check(part)))
    except RmqtoolError as error:
        connection.send(error)
    except (EOFError, BrokenPipeError):
        return  # the parent is gone


def _keep_arrow_to_one_thread() -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)
