"""Parts of a verification in several processes: started anew (spawn), told what to do, heard over a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from rmqtool.errors import RmqtoolError
from rmqtool.verify.part import IndexPart, LogPart, PartCheck, PartResult, Progress, Settings

_STEP = 32 << 20  # bytes between two messages about progress

AnyPart = LogPart | IndexPart


def check_in_processes(
    settings: Settings, parts: Sequence[AnyPart], jobs: int, progress: Progress
) -> Iterator[tuple[int, PartResult]]:
    """The results of the parts by their number, as they come. All processes have ended when the iterator is closed."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, BaseProcess] = {}
    todo = list(enumerate(parts))[::-1]
    try:
        for _ in range(min(jobs, len(parts))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(settings, theirs), daemon=True)
            process.start()
            theirs.close()
            workers[ours] = process
            ours.send(todo.pop())
        while workers:
            for ready in wait(list(workers)):
                if not isinstance(ready, Connection):
                    continue
                try:
                    message = ready.recv()
                except EOFError:
                    raise RmqtoolError("a process of this verification has died: out of memory?") from None
                if isinstance(message, int):
                    progress(message)
                    continue
                if isinstance(message, RmqtoolError):
                    raise message
                yield message
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
        os._exit(1)  # the parent is gone


def _keep_arrow_to_one_thread() -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)
