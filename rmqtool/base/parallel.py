"""What processes that share the work of one command have in common."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

LOOK_SECONDS = 0.5
"""How long to wait for others at once: Python does not hear a signal that comes just before until it has waited."""

_NUMBER_SIZE = 4  # bytes


def start_process(serve: Callable[..., None], arguments: Sequence[object], ours: Sequence[Connection]) -> BaseProcess:
    """Start a process that calls `serve`: a copy of this one, with all of its modules, where that is safe.

    One that is started anew takes nearly half a second until it has loaded them. `ours` are the ends of pipes that
    only this process uses: as long as a copy holds them, nobody sees that they are closed. Ctrl-C is this process's.
    """
    from multiprocessing import get_context

    may_copy = _may_copy()
    begin = get_context("fork").Process if may_copy else get_context("spawn").Process
    not_its_own = ours if may_copy else ()
    process: BaseProcess = begin(target=_serve, args=(serve, arguments, not_its_own), daemon=True)
    with uninterrupted(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of libraries' threads, which know how to be copied
        process.start()
    return process


@contextmanager
def uninterrupted(signals: Iterable[signal.Signals] = (signal.SIGINT,)) -> Iterator[None]:
    """Signals, Ctrl-C by default, wait until this is done; processes that are started meanwhile go on to block them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _may_copy() -> bool:
    """Whether a copy of this process can do no harm: no thread of ours may hold a lock, and the system allows it."""
    return sys.platform == "linux" and threading.active_count() == 1


def _serve(serve: Callable[..., None], arguments: Sequence[object], not_its_own: Sequence[Connection]) -> None:
    for end in not_its_own:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a copy would tidy up what is not its own
    serve(*arguments)


def hand_out(writer: Connection, numbers: Iterable[int]) -> None:
    """Write the numbers of what is to be done, some thousands at most, and close the pipe: who reads one has it."""
    os.write(writer.fileno(), b"".join(number.to_bytes(_NUMBER_SIZE, "big") for number in numbers))
    writer.close()


def take_number(reader: Connection) -> int | None:
    """The number of what nobody has begun yet; None when there is no more."""
    found = os.read(reader.fileno(), _NUMBER_SIZE)
    return int.from_bytes(found, "big") if found else None


def keep_arrow_to_one_thread() -> None:
    """There is a process for each core: more threads of Arrow would only wait for each other."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
