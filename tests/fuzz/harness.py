"""What a fuzzer gives its inputs to, and what each run owes: no exception but ours, bounded memory and time."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rmqtool.base.errors import RmqtoolError

MEMORY = Path("/dev/shm")
MOST_SECONDS = 2.0
"""CPU time of one run, whatever its input; and so much more for each of its bytes ..."""
SECONDS_A_BYTE = 1e-4
MOST_KIB = 256 << 10
"""By so much a run may raise the memory of the process, KiB; and so much more for each of its bytes."""
_KIB_A_BYTE = 4


class BoundError(Exception):
    """A run that took more memory or time than its input is worth."""


@dataclass(frozen=True)
class Target:
    """Something that reads `data`; of the errors that it may raise a caller knows what to say."""

    read: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    errors: tuple[type[Exception], ...] = (RmqtoolError,)
    longest: int = 1 << 14
    """Inputs have so many bytes at most."""

    def run(self, data: bytes) -> None:
        """Let it read `data`; raise what it must not raise, or BoundError."""
        memory, begin = _most_memory(), time.thread_time()
        with suppress(*self.errors):
            self.read(data)
        seconds, more = time.thread_time() - begin, _most_memory() - memory
        if seconds > MOST_SECONDS + SECONDS_A_BYTE * len(data):
            raise BoundError(f"{seconds:.1f} s of CPU time for {len(data)} bytes")
        if more > MOST_KIB + _KIB_A_BYTE * len(data):
            raise BoundError(f"{more} KiB for {len(data)} bytes")


def _most_memory() -> int:
    """The most memory that this process has had, KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    is_given = "TMPDIR" in os.environ or not MEMORY.is_dir()
    return tempfile.TemporaryDirectory(dir=None if is_given else MEMORY, prefix="rmqtool-fuzz-")


def root() -> Path:
    """The store of this process, in memory; it goes with the process."""
    return Path(_directory().name)


def written(name: str, data: bytes) -> Path:
    """A file of the store with `data` in it."""
    path = root() / name
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path
