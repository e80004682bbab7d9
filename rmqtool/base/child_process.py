"""A child process that is fed and heard through pipes, of which none can block; it ends with all that it started."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmqtool.base.signals import WAIT_SECONDS

_PIECE = 64 << 10  # bytes that are written or read at once
_MAX_SAID = 4 << 10  # bytes of standard error that are kept, the last ones
_MAX_LINE = 500  # characters of the line that is shown
_PAUSE = 0.02  # seconds between two looks whether a process has ended that has closed its output
_END_SECONDS = 1.0  # that a process may take to end once its input has ended


class ChildProcess:
    """A process whose three streams are pipes; `output` is what it has written and nobody has taken yet.

    It has a session of its own: Ctrl-C does not reach it. Who starts it ends it, with `finish` or `kill`.
    Raises OSError when it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # Python programs write line by line then, whether they flush or not.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env=environment,
        )
        self.output = bytearray()
        self.closed_output = False
        self._said = bytearray()
        self._unsent = bytearray()
        self._input_ends = False
        self._selector = selectors.DefaultSelector()
        streams: Any = (self._process.stdin, self._process.stdout, self._process.stderr)
        for stream in streams:
            os.set_blocking(stream.fileno(), False)
        self._input, self._out, self._error = streams
        self._selector.register(self._out, selectors.EVENT_READ, self._read_output)
        self._selector.register(self._error, selectors.EVENT_READ, self._read_error)

    def send(self, data: bytes) -> None:
        """Write `data` to its input, as fast as it reads; what it does not want to read is dropped."""
        if self._input.closed or self._input_ends:
            return
        if not self._unsent and data:
            self._selector.register(self._input, selectors.EVENT_WRITE, self._write)
        self._unsent += data

    def end_input(self) -> None:
        """Close its input once all is written."""
        self._input_ends = True
        if not self._unsent:
            self._input.close()

    def exchange(self, until: float) -> bool:
        """Write and read what is possible; wait for it until this time of `time.monotonic`, and return False then."""
        while True:
            left = until - time.monotonic()
            ready = self._selector.select(max(0.0, min(left, WAIT_SECONDS)))  # what is there is read, however late
            for key, _ in ready:
                key.data()
            if ready or left <= 0:
                return bool(ready)

    def status(self, until: float) -> int | None:
        """Its exit status, negative for a signal; None when it does not end until then. For one with closed output."""
        while (status := self._process.poll()) is None and (left := until - time.monotonic()) > 0:
            if self._error.closed:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(left)
            else:
                self.exchange(min(until, time.monotonic() + _PAUSE))
        if status is not None and not self._error.closed:
            self.exchange(time.monotonic() + _PAUSE)  # its last words
        return status

    def ending(self, status: int) -> str:
        """How it has ended, and the last line that it has written to standard error."""
        lines = self._said.decode("utf-8", "replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
        return f"{how}: {said[:_MAX_LINE]}" if said else how

    def finish(self) -> None:
        """End its input and let it end by itself, for a moment; then `kill`. What it still writes is in `output`."""
        self._unsent.clear()
        self.end_input()
        until = time.monotonic() + _END_SECONDS
        while not self.closed_output and len(self.output) < _PIECE and self.exchange(until):
            pass
        if self.closed_output:
            self.status(until)
        self.kill()

    def kill(self) -> None:
        """End it, and what it has started and still runs, at once; a second time does nothing."""
        if self._selector.get_map() is None:
            return
        # Also when it has ended itself: what it has started may live on, and its number stands for that until then.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for stream in (self._input, self._out, self._error):
            stream.close()

    def _write(self) -> None:
        try:
            with memoryview(self._unsent) as view:
                written = os.write(self._input.fileno(), view[:_PIECE])
        except BrokenPipeError:  # it does not want to read more
            self._stop_writing()
            self._input.close()
            return
        del self._unsent[:written]
        if not self._unsent:
            self._stop_writing()
            if self._input_ends:
                self._input.close()

    def _stop_writing(self) -> None:
        self._unsent.clear()
        self._selector.unregister(self._input)

    def _read_output(self) -> None:
        data = os.read(self._out.fileno(), _PIECE)
        self.output += data
        if not data:
            self.closed_output = True
            self._selector.unregister(self._out)

    def _read_error(self) -> None:
        data = os.read(self._error.fileno(), _PIECE)
        self._said = (self._said + data)[-_MAX_SAID:]
        if not data:
            self._selector.unregister(self._error)
            self._error.close()


def kill_children(process: int) -> None:
    """End what another process, which does not end by itself, has started as ChildProcess; it stands still then.

    Only Linux shows what a process has started; elsewhere nothing is done but to stop it.
    """
    with suppress(OSError):
        os.kill(process, signal.SIGSTOP)  # lest it start another
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            for end in (os.killpg, os.kill):  # one that was just started has no group of its own yet
                with suppress(ProcessLookupError, PermissionError):
                    end(int(child), signal.SIGKILL)
