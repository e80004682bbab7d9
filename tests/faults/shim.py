"""A library between the program and the kernel, and command lines in copies of a process that has loaded it."""

from __future__ import annotations

import ctypes
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from rmqtool.base.errors import Exit
from rmqtool.cli import run

STATUSES = frozenset(Exit)
"""The documented exit statuses."""

_SOURCES = [Path(__file__).parent / name for name in ("bad.c", "bad_writes.c")]
_LIBRARY = "bad.so"
_LONGEST_S = 120
_KILLED = 137


class Answer(NamedTuple):
    """How a command ended: its status, what it printed, and its traceback if it had one.

    `status` is None of one that was killed, or did not end as a command does. `modules` is what it has imported.
    """

    status: int | None
    out: str = ""
    err: str = ""
    problem: str | None = None
    is_killed: bool = False
    modules: Sequence[str] = ()


def compiled(into: Path) -> Path | None:
    """The library, built in a directory; None without a C compiler, or where there is no such library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    library = into / _LIBRARY
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, *_SOURCES, "-ldl"], check=True)
    return library


@cache
def shim() -> ctypes.CDLL:
    """The library, which was loaded before this program."""
    library = ctypes.CDLL(None)
    library.bad_set.argtypes = [ctypes.c_int, ctypes.c_char_p, *[ctypes.c_long] * 3]
    library.bad_watch.argtypes = [ctypes.c_char_p, *[ctypes.c_int] * 3, *[ctypes.c_long] * 2, ctypes.c_int]
    for name in ("bad_count", "bad_calls", "bad_hits"):
        getattr(library, name).restype = ctypes.c_long
    return library


def answer(words: Sequence[str], before: Callable[[], None] = lambda: None) -> Answer:
    """Run a command line in a copy of this process, after `before` there; the next copy has what this one imports."""
    with started(words, before) as running:
        found = running.answer()
    for name in found.modules:
        with suppress(ImportError):  # some exist only once another one has made them
            import_module(name)
    return found


@dataclass(frozen=True)
class Running:
    """A copy of this process that runs a command line, and the pipe in which it says how that ended."""

    process: int
    file: IO[str]

    def is_stopped(self) -> bool:
        """Wait until it has stopped, or ended; whether it has stopped."""
        found = os.waitid(os.P_PID, self.process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return found is not None and found.si_code == os.CLD_STOPPED

    def answer(self) -> Answer:
        """How it ends, once it does; one that has stopped goes on."""
        os.kill(self.process, signal.SIGCONT)
        return _awaited(self.process, self.file)


@contextmanager
def started(words: Sequence[str], before: Callable[[], None] = lambda: None) -> Iterator[Running]:
    """Begin to run a command line in a copy of this process; it ends with the block."""
    ours, others = os.pipe()
    process = os.fork()
    if not process:
        os.close(ours)
        os.setpgid(0, 0)
        with os.fdopen(others, "w") as file:
            before()
            json.dump(_in_copy(words), file)
            file.flush()
            os._exit(0)
    os.close(others)
    with os.fdopen(ours) as file:
        try:
            yield Running(process, file)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process, 0)


def _in_copy(words: Sequence[str]) -> Answer:
    data, err, had = io.BytesIO(), io.StringIO(), {*sys.modules, "__mp_main__"}
    out = io.TextIOWrapper(data, encoding="utf-8", newline="")
    try:
        with redirect_stdout(out), redirect_stderr(err):
            status = run([*words])
        out.flush()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        return Answer(None, problem=f"{type(error).__name__}: {error} at {where}")
    return Answer(status, data.getvalue().decode(), err.getvalue(), modules=[*(sys.modules.keys() - had)])


def _awaited(process: int, file: IO[str]) -> Answer:
    """What a process says; that it was killed, or that it does not end, where it says nothing."""
    said, until = b"", time.monotonic() + _LONGEST_S
    while select.select([file], [], [], max(0, until - time.monotonic()))[0]:
        piece = os.read(file.fileno(), 1 << 20)
        if not piece:
            break
        said += piece
    else:
        return Answer(None, problem="it does not end by itself")
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if said:
        found: list[Any] = json.loads(said)
        return Answer(*found)
    is_killed = status == _KILLED
    return Answer(None, problem=None if is_killed else f"it ends with {status}", is_killed=is_killed)
