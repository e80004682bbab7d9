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

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return error is not None and self._is_skipped(error)

    @staticmethod
    def _is_skipped(error: BaseException) -> bool:
        raise NotImplementedError


class skip_unreadable(_Skip):  # noqa: N801 - a block, as `suppress` is
    """Read what somebody else reads again and reports: an RmqtoolError ends it, and only what ends a run is raised."""

    __slots__ = ()

    @staticmethod
    def _is_skipped(error: BaseException) -> bool:
        return isinstance(error, RmqtoolError) and not isinstance(error, EndingError)


class skip_wrong_type(_Skip):  # noqa: N801 - a block, as `suppress` is
    """Read a file or directory, or nothing where one is in the other's place, which `verify` reports."""

    __slots__ = ()

    @staticmethod
    def _is_skipped(error: BaseException) -> bool:
        return is_wrong_type(error)


def is_wrong_type(error: BaseException) -> bool:
    """Whether an error says that a directory stands in the place of a file, or a file in that of a directory."""
    if isinstance(error, UnreadableError):
        return isinstance(error.__cause__, NotADirectoryError)
    return isinstance(error, WrongKindError)
