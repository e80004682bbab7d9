"""Reading a store part by part: what cannot be read is kept as an error, and the rest is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rmqtool.base.errors import ExhaustedError, RmqtoolError, UnreadableError, WrongKindError
from rmqtool.base.files import unreadable

ReadScope = Callable[[], AbstractContextManager[object]]
"""Makes the context in which one part is read; `nullcontext` lets errors through."""


class ReadErrors:
    """The errors of the parts that could not be read."""

    def __init__(self) -> None:
        self.errors: list[RmqtoolError] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Read one part; its error ends the part, not the whole."""
        try:
            yield
        except ExhaustedError:
            raise  # it says nothing of this part, and the next would fail too
        except RmqtoolError as error:
            self.errors.append(error)
        except OSError as error:
            if error.filename is None:  # not of what is read, for that has a name
                raise
            self.errors.append(unreadable(Path(error.filename), None, error))


@contextmanager
def skip_wrong_type() -> Iterator[None]:
    """Read a part of the store; nothing of it is read where it is not of its kind, which `verify` reports."""
    try:
        yield
    except WrongKindError:
        pass
    except UnreadableError as error:
        if not isinstance(error.__cause__, NotADirectoryError):
            raise
