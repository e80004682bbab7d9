"""What a process may take: address space, open files, memory; and what follows for how many processes work."""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from functools import cache

from rmqtool.base.errors import ExhaustedError, RmqtoolError, UsageError
from rmqtool.base.numbers import byte_size

if sys.platform != "win32":
    import resource


NEEDED_MEMORY = 256 << 20
"""Address space with which every command works on a store of usual size, bytes."""

_PLENTY = 1 << 30  # address space from which on nothing has to be saved, bytes
_FEW_FILES = 4  # that a pool keeps open at least
_OTHER_FILES = 32  # that are open beside those of pools: standard streams, libraries, the log, pipes
_FILES_OF_PROCESS = 4  # pipes to a process that helps
_POOLS = 2  # of open files that are in use at the same time: those that are read, and those that are written
_USUAL_FILES = 256  # where the limit cannot be queried
_ARENA_MAX = -8  # M_ARENA_MAX of glibc
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_LARGE = 256 << 10  # allocations from this size on are given back to the system at once when freed, bytes
_USUAL_LARGE = 4 << 20  # the same where memory is not short; a block of the log needs smaller ones
_KEPT = 64 << 20  # freed memory that stays with the process then, bytes
_NO_MEMORY = frozenset({errno.ENOMEM})
_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_NO_PROCESS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_UNMAPPABLE = ("cannot allocate memory", "failed to map segment", "cannot enable executable stack")


def address_space() -> int | None:
    """How large this process may become, bytes; None without a limit."""
    return _soft("RLIMIT_AS")


def memory_is_short() -> bool:
    """Whether address space is limited so that less should be read at once."""
    limits = [limit for limit in (address_space(), _soft("RLIMIT_DATA")) if limit is not None]
    return bool(limits) and min(limits) < _PLENTY


def require_memory() -> None:
    """Raise ExhaustedError where libraries could not even be loaded: some of them end the process then."""
    limit = address_space()
    if limit is not None and limit < NEEDED_MEMORY:
        raise ExhaustedError(
            f"{limit >> 20} MiB of address space are too little: {NEEDED_MEMORY >> 20} MiB are needed",
            hint=_raise_memory(),
        )


_STACK = 1 << 20  # bytes of a thread


def settle_memory() -> None:
    """Let libraries that are not loaded yet take little address space, where it is short.

    Else garbage is looked for later: in 50,000 objects of modules there is none, and to look takes a fourteenth of a
    command on a small store.
    """
    if not memory_is_short():
        gc.set_threshold(100_000)
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own pools begin with 64 MiB to 1 GiB
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # a thread has 8 MiB of stack
    threading.stack_size(_STACK)  # instead of 8 MiB
    _set_allocator({_ARENA_MAX: 1, _MMAP_THRESHOLD: _LARGE})  # each further arena takes 64 MiB


@cache
def keep_freed_memory() -> None:
    """Let memory that is freed stay with the process, where it is not short: the next block needs as much again.

    To give it back and take it again costs a thirtieth of a verification, in page faults.
    """
    if not memory_is_short():
        _set_allocator({_MMAP_THRESHOLD: _USUAL_LARGE, _TRIM_THRESHOLD: _KEPT})


def _set_allocator(values: dict[int, int]) -> None:
    import ctypes

    with suppress(OSError, AttributeError):  # another C library than glibc
        library = ctypes.CDLL(None)
        for parameter, value in values.items():
            library.mallopt(parameter, value)


def open_files_at_once(usual: int) -> int:
    """How many files a pool may keep open: `usual`, or its share where the system allows few."""
    limit = _soft("RLIMIT_NOFILE")
    return usual if limit is None else min(usual, max(_FEW_FILES, (limit - _OTHER_FILES) // _POOLS))


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes_at_once(usual: int) -> int:
    """How many processes may help this one: each takes descriptors, half of those that are not needed otherwise."""
    limit = _soft("RLIMIT_NOFILE")
    return usual if limit is None else min(usual, max(0, (limit - _OTHER_FILES) // 2 // _FILES_OF_PROCESS))


def cannot_start(error: OSError) -> bool:
    """Whether one more process cannot be had: this one does all by itself then."""
    return error.errno in _NO_PROCESS


def exhausted(error: BaseException) -> RmqtoolError | None:
    """The ExhaustedError for an error that means no more memory, files or threads; None for any other error.

    pyarrow's is a MemoryError too, a library that cannot be mapped an ImportError.
    """
    text = str(error).lower()
    if isinstance(error, OSError) and error.errno in _NO_FILES:
        return no_more_files(error.filename)
    is_memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _NO_MEMORY)
    is_mapping = isinstance(error, (ImportError, OSError)) and any(sign in text for sign in _UNMAPPABLE)
    if is_memory or is_mapping:
        return _no_more_memory()
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return ExhaustedError(
            "the system cannot start more threads",
            hint=f"raise the number of processes (ulimit -u); {_raise_memory()}",
        )
    return None


def no_more_files(file: str | None = None) -> ExhaustedError:
    """The error when the system opens no more files for this process."""
    limit = _soft("RLIMIT_NOFILE")
    return ExhaustedError(
        f"too many open files{f': the limit is {limit}' if limit else ''}",
        file=file,
        hint="raise the number of files that a process may have open: ulimit -n 1024",
    )


def _no_more_memory() -> ExhaustedError:
    limit = address_space()
    if limit is None:
        return ExhaustedError(
            "out of memory", hint="work with fewer processes (--jobs), or with more free memory; nothing was lost"
        )
    return ExhaustedError(f"out of memory: {limit >> 20} MiB of address space are allowed", hint=_raise_memory())


def _raise_memory() -> str:
    return f"raise the limit of this shell: ulimit -v unlimited, or at least ulimit -v {2 * NEEDED_MEMORY >> 10}"


def _soft(name: str) -> int | None:
    """The soft limit of a resource; None when it is unlimited."""
    if sys.platform == "win32" or not hasattr(resource, name):
        return _USUAL_FILES if name == "RLIMIT_NOFILE" else None
    limit = resource.getrlimit(getattr(resource, name))[0]
    return None if limit == resource.RLIM_INFINITY else limit


MIB = 1 << 20


class _Held:
    """What this process holds at once: a share of what it would without a limit; 0 is the least with which it works."""

    share = 1.0


@dataclass(frozen=True)
class MemoryNeed:
    """What a job takes, MiB, measured on stores of usual form: with the least that is held at once, and as usual.

    `further` is what each process beside the first one takes.
    """

    least: int
    usual: int
    further_least: int
    further_usual: int

    def with_later(self, *needs: MemoryNeed) -> MemoryNeed:
        """What jobs take that one process does one after the other: the most of each."""
        return MemoryNeed(*map(max, zip(*map(astuple, (self, *needs)), strict=True)))


def processes_within(memory: int, jobs: int, need: MemoryNeed) -> tuple[int, float]:
    """How many of `jobs` processes fit into `memory`, bytes, and the share of the usual that each may hold at once.

    One process more does more than larger pieces do. Raises UsageError, which names the least, where none fits.
    """
    if memory < need.least * MIB:
        raise UsageError(
            f"--memory {byte_size(memory)} is too little: at least {need.least} MiB are needed",
            hint=f"--memory {need.least}MiB",
        )
    room = memory / MIB - need.least
    jobs = min(jobs, 1 + int(room // need.further_least))
    room -= (jobs - 1) * need.further_least
    usual = need.usual - need.least + (jobs - 1) * (need.further_usual - need.further_least)
    return jobs, min(1.0, room / usual)


def share_held() -> float:
    """The share that `holding` allows, to be handed to a process that is started."""
    return _Held.share


def hold(share: float) -> None:
    """Let what is begun from now on hold only this share of what it would hold at once."""
    _Held.share = share


@contextmanager
def holding(share: float) -> Iterator[None]:
    """As `hold`, for what is begun in this block, and for the processes that it starts."""
    before = _Held.share
    hold(share)
    try:
        yield
    finally:
        hold(before)


def sized(usual: int, least: int) -> int:
    """A size of what is held at once: `usual`, or less, down to `least`, where memory is limited."""
    if memory_is_short():
        return least
    return usual if _Held.share == 1 else least + int((usual - least) * _Held.share)
