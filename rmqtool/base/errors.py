"""The exit statuses, and the one tree of exceptions that lead to them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit statuses of every command; `label` is the name in JSON."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    LOSSY = 3
    FAILED = 4
    IN_USE = 5
    NOT_A_STORE = 6
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def label(self) -> str:
        """Lower-case name with hyphens."""
        return self.name.lower().replace("_", "-")


class RmqtoolError(Exception):
    """Something the user must know: what, where (`file`, `offset` in bytes), and what to do (`hint`)."""

    status = Exit.FAILED
    kind = "failed"

    def __init__(
        self, message: str, *, file: Path | str | None = None, offset: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = None if file is None else str(file)
        self.offset = offset
        self.hint = hint

    def __str__(self) -> str:
        location = self.file or ""
        if self.offset is not None:
            location += f" at offset {self.offset}"
        return f"{location}: {self.message}" if location else self.message


class UsageError(RmqtoolError):
    """Options that do not fit each other or the store."""

    status = Exit.USAGE
    kind = "usage"


class UnreadableError(RmqtoolError):
    """A file or directory that cannot be read: permission, I/O, wrong kind, vanished."""

    kind = "unreadable"


class UnsupportedError(RmqtoolError):
    """A layout or format that this version does not read; the message names it."""

    kind = "unsupported"


class WrongKindError(RmqtoolError):
    """A file of another type than belongs at its path."""

    kind = "wrong-kind"


class UnwritableError(RmqtoolError):
    """A file or directory that cannot be written: permission, space, I/O, a name outside the store."""

    kind = "unwritable"


class EndingError(RmqtoolError):
    """What ends a run wherever it is met: the next piece of the store would fail, too, or be of another state."""


class ExhaustedError(EndingError):
    """The system gives this process no more memory, files or threads; the hint says what to raise."""

    kind = "exhausted"


class ChangedError(EndingError):
    """A store that is no longer what a plan or an undo was made for."""

    kind = "changed"


class UnreachableError(EndingError):
    """Another machine does not answer, or not as it should, after some tries; it says nothing of the store there."""

    kind = "unreachable"


class StoreInUseError(RmqtoolError):
    """A broker runs on the store and the command would write."""

    status = Exit.IN_USE
    kind = "in-use"


class NotAStoreError(RmqtoolError):
    """The directory is no RocketMQ store."""

    status = Exit.NOT_A_STORE
    kind = "not-a-store"


def reason_of(error: OSError) -> str:
    """Why the system, or a library that speaks with another machine, could not do something."""
    return error.strerror.lower() if error.strerror else " ".join(str(error).split())


NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EINVAL)
"""Errors of the system that say what there is, and no failure of a disk."""

_failed_reads: list[dict[str, UnreadableError]] = []  # of each `failed_reads` that is open


def noted(error: UnreadableError) -> UnreadableError:
    """The error, known to every `failed_reads` from now on, though whoever asked may do without what was not read."""
    for failed in _failed_reads:
        failed.setdefault(error.file or "", error)
    return error


def shrunk(path: Path | str, position: int, size: int) -> UnreadableError:
    """The error for a file that ends at `position`, and had `size` bytes when it was listed or opened."""
    message = f"cannot read: the file now ends at byte {position}; a moment ago it had {size} bytes"
    hint = "something truncated it meanwhile; no broker does that"
    return noted(UnreadableError(message, file=path, offset=position, hint=hint))


def failed_so_far() -> list[UnreadableError]:
    """The errors that the outermost `failed_reads` has collected, by file."""
    return sorted(_failed_reads[0].values(), key=lambda error: error.file or "") if _failed_reads else []


@contextmanager
def failed_reads() -> Iterator[dict[str, UnreadableError]]:
    """Collect the first error of each file here that is there and was not read, also of those that nobody reports."""
    failed: dict[str, UnreadableError] = {}
    _failed_reads.append(failed)
    try:
        yield failed
    finally:
        _failed_reads[:] = [each for each in _failed_reads if each is not failed]


def note_failure(path: Path | str, error: OSError) -> None:
    """Note an error with which a caller goes on, as if nothing were there."""
    if error.errno not in NOT_THERE and not isinstance(error, FileNotFoundError):
        noted(UnreadableError(f"cannot read: {reason_of(error)}", file=path))


_listeners: dict[int, Callable[[str], None]] = {}  # by process: those that help say nothing


def listen(listener: Callable[[str], None]) -> None:
    """Hand the notices of this process to `listener`, and to no other."""
    _listeners[os.getpid()] = listener


def notice(text: str) -> None:
    """Say one sentence."""
    listener = _listeners.get(os.getpid())
    if listener is not None:
        listener(text)
