"""Calls to the file systems of other machines: each ends, whatever does not answer, and Ctrl-C ends it at once.

The libraries wait without looking at signals, some of them for minutes: they work in a thread of their own, and whoever
waits for it stops waiting. Such a thread cannot be ended, and must not hold up the end of the process: see
`has_left_calls`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rmqtool.base.signals import WAIT_SECONDS

if TYPE_CHECKING:
    from concurrent.futures import Future

FIRST_ANSWER = 45
"""Seconds in which a file system has to answer for the first time."""

_ANSWER = 300  # seconds, for each later answer: it may be a long listing
_NEVER_AGAIN = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, TimeoutError)
_DENIED = ("ACCESS_DENIED", "PERMISSION_DENIED", "UNAUTHENTICATED", "AuthenticationFailed", "AuthorizationFailure")
_PAUSES = (0.2, 1.0, 3.0)  # seconds before a call is made again
_PATIENCE = 20  # seconds after which it is not: the library has tried for as long itself

T = TypeVar("T")
_running: set[Future[Any]] = set()  # whether somebody waits for them, or nobody any more


def patiently(operation: Callable[[], T], pauses: tuple[float, ...] = _PAUSES) -> T:
    """Do an operation, and again after each of `pauses`, seconds, where a connection fails; raises `OSError`."""
    begin = time.monotonic()
    for pause in pauses:
        try:
            return answer_of(operation)
        except _NEVER_AGAIN:
            raise
        except OSError:
            if time.monotonic() - begin > _PATIENCE:
                raise
        time.sleep(pause)
    return answer_of(operation)


def answer_of(operation: Callable[[], T], seconds: float = _ANSWER) -> T:
    """Do an operation and wait for it as long; raises `OSError`, also where pyarrow raises something of its own.

    TimeoutError where it does not end.
    """
    from concurrent.futures import wait

    future, until = in_background(operation), time.monotonic() + seconds
    while not wait([future], min(seconds, WAIT_SECONDS)).done:
        if time.monotonic() > until:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return future.result()


def in_background(operation: Callable[[], T]) -> Future[T]:
    """Do an operation in a thread that no end of the process waits for."""
    from concurrent.futures import Future

    future: Future[T] = Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(operation())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            future.set_exception(_as_os_error(error))

    _running.add(future)  # before it works: Ctrl-C may come while the thread starts
    future.add_done_callback(_running.discard)
    threading.Thread(target=work, daemon=True, name="rmqtool-remote").start()
    return future


def has_left_calls() -> bool:
    """Whether calls are left, of ranges read ahead, too, that would hold up an ordinary end of the process."""
    return bool(_running)


def _as_os_error(error: BaseException) -> BaseException:
    """Of the errors of pyarrow that are none of Python's, such as those of Azure, an `OSError`.

    A PermissionError where it is not allowed: libraries say that in their own ways.
    """
    pyarrow = sys.modules.get("pyarrow")
    if (
        pyarrow is not None
        and isinstance(error, pyarrow.ArrowException)
        and not isinstance(error, (OSError, ValueError))
    ):
        error = OSError(" ".join(str(error).split()))
    if type(error) is OSError and error.errno is None and any(sign in str(error) for sign in _DENIED):
        return PermissionError(str(error))
    return error
