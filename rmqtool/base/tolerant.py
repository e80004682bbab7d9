"""Reading a store piece by piece: an error ends one piece and is kept, the rest is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rmqtool.base.errors import ExhaustedError, RmqtoolError, UnreadableError, WrongKindError
from rmqtool.base.files import unreadable
from rmqtool.base.paths import path_of

ReadScope = Callable[[], AbstractContextManager[object]]
"""Makes the context in which one piece of a store is read; `nullcontext` lets errors through."""


class ReadErrors:
    """The errors of the pieces of a store that could not be read."""

    def __init__(self) -> None:
        self.errors: list[RmqtoolError] = []

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Read one piece; its error is kept and ends only this piece."""
        try:
            yield
        except ExhaustedError:
            raise  # the next piece would fail, too
        except RmqtoolError as error:
            self.errors.append(error)
        except OSError as error:
            if error.filename is None:  # not of a file that is read, which has a name
                raise
            self.errors.append(unreadable(path_of(error.filename), None, error))


@contextmanager
def skip_wrong_type() -> Iterator[None]:
    """Read a file or directory, or nothing where one is in the other's place, which `verify` reports."""
    try:
        yield
    except WrongKindError:
        pass
    except UnreadableError as error:
        if not isinstance(error.__cause__, NotADirectoryError):
            raise
