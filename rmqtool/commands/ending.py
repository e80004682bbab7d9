"""How signals end a command: at once while it works, not at all once it is done; no signal gets lost."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from rmqtool.base.errors import Exit
from rmqtool.base.filesystems import has_left_calls

_OUTPUTS = (1, 2)  # descriptors of standard output and standard error
_GONE = (errno.EIO, errno.EBADF)
_SOON = 0.02  # seconds
_ENDING = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name))


def handle_signals() -> None:
    """SIGTERM and SIGHUP unwind the command as Ctrl-C does; under nohup SIGHUP stays ignored."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.TERMINATED))
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)
    sys.unraisablehook = _Unraisable(sys.unraisablehook)


def ignore_signals() -> None:
    """Ignore signals once the exit status is known: they must not change it while the interpreter ends."""
    for signal_number in _ENDING:
        signal.signal(signal_number, signal.SIG_IGN)


def end(status: str | int | None) -> NoReturn:
    """End with an exit status, without taking all modules apart: a fifth of the time of a command on a small store.

    What waits for the end of the process is done, but where another machine has left a library without an answer.
    """
    if isinstance(status, str):
        sys.exit(status)
    if not has_left_calls():
        atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed before the start
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(status or Exit.OK)


class _Unraisable:
    """Sends a signal again that came during garbage collection, where Python drops its exception with a message."""

    def __init__(self, usual: Callable[[Any], object]) -> None:
        self._usual = usual

    def __call__(self, dropped: Any) -> None:
        signal_number = _signal_of(dropped.exc_value)
        if signal_number is None:
            self._usual(dropped)
            return
        # From here it would be dropped again.
        again = threading.Timer(_SOON, signal.pthread_kill, (threading.main_thread().ident, signal_number))
        again.daemon = True
        again.start()


def _signal_of(error: BaseException | None) -> signal.Signals | None:
    """The signal for which an exception was raised; None for other exceptions."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and error.code == Exit.TERMINATED:
        return signal.SIGTERM
    return signal.SIGHUP if isinstance(error, SystemExit) and error.code == Exit.HUNG_UP else None


def _hang_up(signal_number: int, frame: FrameType | None) -> NoReturn:
    for descriptor in _OUTPUTS:
        if _is_gone(descriptor):  # all further output to it is discarded
            empty = os.open(os.devnull, os.O_WRONLY)
            os.dup2(empty, descriptor)
            os.close(empty)
    sys.exit(Exit.HUNG_UP)


def _is_gone(descriptor: int) -> bool:
    """Whether a descriptor was that of a terminal that is gone, to which nothing can be written any more."""
    import termios

    try:
        termios.tcgetattr(descriptor)
    except termios.error as error:
        return error.args[0] in _GONE
    return False
