"""A running broker deletes a file between our listing of a directory and our reading of the file: look again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from rmqtool.base.errors import UnreadableError

T = TypeVar("T")

_MAX_ATTEMPTS = 5
_RETRY_DELAY_S = 0.2


def retry_on_deletion(read: Callable[[], T], attempts: int = _MAX_ATTEMPTS) -> T:
    """The result of `read`, which is called again when a broker has deleted a file that it was about to read."""
    try:
        return read()
    except UnreadableError as error:
        if attempts == 1 or not isinstance(error.__cause__, FileNotFoundError):
            raise
    time.sleep(_RETRY_DELAY_S)
    return retry_on_deletion(read, attempts - 1)
