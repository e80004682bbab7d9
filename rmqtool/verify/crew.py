"""Processes that help with a verification; which part is next, all of them read from one pipe: none waits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rmqtool.base.limits import cannot_start, processes_at_once
from rmqtool.base.parallel import start_process

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

WORTH = 64 << 20
"""Bytes of a log for which one more process is worth its start."""

_BLOCK = 512  # bytes, the unit of st_blocks


@dataclass(frozen=True)
class Worker:
    """One process, and the way to it."""

    connection: Connection
    process: BaseProcess


class WorkerPool:
    """Processes that wait for work; all have ended when the block is left."""

    def __init__(self, size: int = 0) -> None:
        self.members: list[Worker] = []
        self._pipe: tuple[Connection, Connection] | None = None
        self.grow(size)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def grow(self, size: int) -> None:
        """Start processes until there are so many, or until the system gives no more: fewer do the work then."""
        size = processes_at_once(size)
        try:
            while len(self.members) < size:
                self.members.append(self._start())
        except OSError as error:
            if not cannot_start(error):
                self.kill()
                raise
        except BaseException:
            self.kill()
            raise

    @property
    def numbers(self) -> tuple[Connection, Connection]:
        """The pipe from which everybody takes the number of the next part: the end to read and that to write."""
        if self._pipe is None:
            from multiprocessing import Pipe

            self._pipe = Pipe(duplex=False)
        return self._pipe

    def kill(self) -> None:
        """End all of them at once."""
        for member in self.members:
            member.process.kill()
        for member in self.members:
            member.process.join()
            member.connection.close()
        for end in self._pipe or ():
            end.close()
        self.members, self._pipe = [], None

    def _start(self) -> Worker:
        from multiprocessing import Pipe

        ours, theirs = Pipe()
        not_theirs = [ours, self.numbers[1], *(member.connection for member in self.members)]
        try:
            process = start_process(_serve, (theirs, self.numbers[0]), not_theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return Worker(ours, process)


def crew_for(store: Path, jobs: int) -> WorkerPool:
    """The processes that will probably be needed besides this one, by a first look at the size of a log."""
    size = 0
    if jobs > 1:
        try:
            with os.scandir(store / "commitlog") as entries:
                size = sum(entry.stat().st_blocks * _BLOCK for entry in entries)
        except OSError:
            pass  # which is told later
    return WorkerPool(min(jobs - 1, size // WORTH))


def _serve(connection: Connection, numbers: Connection) -> None:
    from rmqtool.verify.serving import serve

    serve(connection, numbers)
