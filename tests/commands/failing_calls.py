"""Each call of the system that asks for something of a store, counted; chosen ones fail, or find nothing more."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from tests.commands.broken_disk import CALLS

READS = ("pread", "preadv", "read")
Fault = Literal["error", "empty", "cut"]
"""EIO; a read of a file that has no byte there any more; a file that is made empty just before it is read."""


@dataclass(frozen=True)
class Call:
    """One call that was made: its name, the path within the store, and the place in the file of a read."""

    name: str
    path: str
    position: int = 0
    size: int = 0


@dataclass
class Calls:
    """The calls so far, in their order; the ones from number `first` to before `stop` get the `fault`."""

    store: Path
    first: int = 1 << 60
    stop: int = 1 << 60
    fault: Fault = "error"
    kinds: tuple[str, ...] = CALLS
    seen: list[Call] = field(default_factory=list)

    def take(self, name: str, path: str, *place: Any) -> bool:
        """Count a call; whether it gets the fault."""
        position, size = (place[1], _size(place[0])) if len(place) > 1 else (0, 0)
        self.seen.append(Call(name, path, position, size))
        return self.first <= len(self.seen) - 1 < self.stop


def _size(wanted: Any) -> int:
    return wanted if isinstance(wanted, int) else sum(map(len, wanted))


@contextmanager
def calls_on(calls: Calls) -> Iterator[Calls]:
    """Count the calls of this process on its store, which is there under one name, and let some of them fail."""
    root = os.path.realpath(calls.store)
    system = {name: getattr(os, name) for name in CALLS}

    def path_of(place: Any) -> str | None:
        path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.path.abspath(os.fspath(place))
        return os.path.relpath(path, root) if path == root or path.startswith(root + os.sep) else None

    def counting(name: str) -> Callable[..., Any]:
        def call(place: Any = ".", *arguments: Any, **options: Any) -> Any:
            path = path_of(place)
            if path is not None and calls.take(name, path, *arguments):
                if calls.fault == "error":
                    raise OSError(
                        errno.EIO, os.strerror(errno.EIO), *([] if isinstance(place, int) else [os.fspath(place)])
                    )
                if calls.fault == "empty":
                    return 0 if name == "preadv" else b""
                os.truncate(os.path.join(root, path), 0)
            return system[name](place, *arguments, **options)

        return call

    with ExitStack() as stack:
        for name in calls.kinds:
            stack.enter_context(patch.object(os, name, counting(name)))
        yield calls
