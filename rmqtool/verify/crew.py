"""Processes that help with a verification: copies of this one, with all of its modules, where that is safe.

A process that is started anew takes nearly half a second until it has loaded them. Which part is next, all of them
read from one pipe: none waits for another.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

WORTH = 64 << 20
"""Bytes of a log for which one more process is worth its start."""

_BLOCK = 512  # bytes, the unit of st_blocks


@dataclass(frozen=True)
class Member:
    """One process, and the way to it."""

    connection: Connection
    process: BaseProcess


class Crew:
    """Processes that wait for work; all have ended when the block is left."""

    def __init__(self, size: int = 0) -> None:
        self.members: list[Member] = []
        self._pipe: tuple[Connection, Connection] | None = None
        self.grow(size)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def grow(self, size: int) -> None:
        """Start processes until there are so many."""
        try:
            while len(self.members) < size:
                self.members.append(self._start())
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

    def _start(self) -> Member:
        from multiprocessing import Pipe, get_context

        may_copy = _may_copy()
        begin = get_context("fork").Process if may_copy else get_context("spawn").Process
        ours, theirs = Pipe()
        # A copy holds our ends of all pipes; as long as it does, nobody sees that they are closed.
        not_its_own = [ours, self.numbers[1], *(member.connection for member in self.members)] if may_copy else []
        process: BaseProcess = begin(target=_serve, args=(theirs, self.numbers[0], not_its_own), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which is inherited: Ctrl-C is the parent's
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # of libraries' threads, which know how to be copied
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        return Member(ours, process)


def crew_for(store: Path, jobs: int) -> Crew:
    """The processes that will probably be needed besides this one, by a first look at the size of a log."""
    size = 0
    if jobs > 1:
        try:
            with os.scandir(store / "commitlog") as entries:
                size = sum(entry.stat().st_blocks * _BLOCK for entry in entries)
        except OSError:
            pass  # which is told later
    return Crew(min(jobs - 1, size // WORTH))


def _may_copy() -> bool:
    """Whether a copy of this process can do no harm: no thread of ours may hold a lock, and the system allows it."""
    return sys.platform == "linux" and threading.active_count() == 1


def _serve(connection: Connection, numbers: Connection, not_its_own: Sequence[Connection]) -> None:
    for other in not_its_own:
        other.close()
    from rmqtool.verify.serving import serve

    serve(connection, numbers)
