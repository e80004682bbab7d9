"""Reading a store piece by piece: an error ends one piece and is kept, the rest is read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from rmqtool.base.errors import EndingError, RmqtoolError, UnreadableError, WrongKindError
from rmqtool.base.files import unreadable
from rmqtool.base.paths import path_of

ReadScope = Callable[[], AbstractContextManager[object]]
"""Makes the context in which one piece of a store is read; `nullcontext` lets errors through."""


class ReadErrors:
    """The errors of the pieces of a store that could not be read."""

    def __init__(self) -> None:
        self.errors: list[RmqtoolError] = []

    def scope(self) -> AbstractContextManager[None]:
        """Read one piece; its error is kept and ends only this piece."""
        return _Scope(self.errors)


class _Scope(AbstractContextManager[None]):
    """Adds an error to `errors`; a class, for it is entered several times for each of many queues."""

    __slots__ = ("_errors",)

    def __init__(self, errors: list[RmqtoolError]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is None or isinstance(error, EndingError):
            return False
        if isinstance(error, RmqtoolError):
            self._errors.append(error)
        elif isinstance(error, OSError) and error.filename is not None:  # as that of a file that is read has
            named = unreadable(path_of(error.filename), None, error)
            named.__cause__ = error
            self._errors.append(named)
        else:
            return False
        return True


class _Skip:
    """Leaves a block at some errors; a class, for blocks are entered several times for each of many queues."""

    __slots__ = ("_is_skipped",)

    def __init__(self, is_skipped: Callable[[BaseException], bool]) -> None:
        self._is_skipped = is_skipped

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return error is not None and self._is_skipped(error)


def skip_unreadable() -> _Skip:
    """Read what somebody else reads again and reports: an RmqtoolError ends it, and only what ends a run is raised."""
    return _UNREADABLE


def skip_wrong_type() -> _Skip:
    """Read a file or directory, or nothing where one is in the other's place, which `verify` reports."""
    return _WRONG_TYPE


def is_wrong_type(error: BaseException) -> bool:
    """Whether an error says that a directory stands in the place of a file, or a file in that of a directory."""
    if isinstance(error, UnreadableError):
        return isinstance(error.__cause__, NotADirectoryError)
    return isinstance(error, WrongKindError)


_UNREADABLE = _Skip(lambda error: isinstance(error, RmqtoolError) and not isinstance(error, EndingError))
_WRONG_TYPE = _Skip(is_wrong_type)
