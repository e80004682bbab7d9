"""A pager for output that is longer than the screen, as git has it: PAGER, or less; not with ``--no-pager``.

What a command prints is held back until it is more than a screen; then the pager gets it. What it says on stderr
comes after the pager's end: until then the terminal is the pager's.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from rmqtool.show.output import Style

if TYPE_CHECKING:
    import subprocess

_ESCAPE = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_DEFAULTS = {"LESS": "FRX", "LV": "-c"}  # colours, no page for what fits, the text stays on the screen

_session: _Session | None = None


def begin_paging(style: Style) -> None:
    """From here to `end_paging` standard output goes through a pager, where it is a terminal and a pager is there."""
    global _session  # noqa: PLW0603 - a process has one standard output
    command = _command()
    if style.pager and command and _session is None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _session = _Session(command, sys.stdout, sys.stderr)


def end_paging() -> None:
    """Print what was held back, or wait until the pager is left; then what was said beside."""
    global _session
    session, _session = _session, None
    if session:
        session.end()


def before_pager(act: Callable[[], None]) -> None:
    """Do `act` before a pager takes the terminal: at once where it has it."""
    if _session:
        _session.act_before(act)


def terminal_for_progress() -> TextIO:
    """The stream on which a bar is drawn."""
    return _session.stderr if _session else sys.stderr


def _command() -> list[str]:
    """The pager and its arguments; empty for none."""
    text = os.environ.get("RMQTOOL_PAGER", os.environ.get("PAGER", "less"))
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    return [] if words == ["cat"] else words


class _Session:
    """One paged output: `stdout` and `stderr` are the real streams, replaced as long as it lasts."""

    def __init__(self, command: list[str], stdout: TextIO, stderr: TextIO) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._held: list[tuple[TextIO, bytes]] = []  # in the order in which it was printed
        self._rows_left = os.get_terminal_size(stdout.fileno()).lines - 1
        self._columns = max(1, os.get_terminal_size(stdout.fileno()).columns)
        self._before: list[Callable[[], None]] = []
        stdout.flush()
        self._is_left = False
        self._out = sys.stdout = _stream(_Screen(self.take, stdout))
        self._err = sys.stderr = _stream(_Screen(self._hold_beside, stderr), line_buffering=True)

    def act_before(self, act: Callable[[], None]) -> None:
        """See `before_pager`."""
        if self._process:
            act()
        else:
            self._before.append(act)

    def take(self, data: bytes) -> None:
        """Hold back some output, or give it to the pager; raises BrokenPipeError when the pager was left."""
        if self._is_left:
            return
        if self._process is None and self._rows_left >= 0:
            self._held.append((self.stdout, data))
            self._rows_left -= self._rows(data)
            if self._rows_left < 0:
                self._start()
        elif self._process and self._process.stdin:
            try:
                self._process.stdin.write(data)
            except BrokenPipeError:
                self._is_left = True
                raise
        else:
            self._write(self.stdout, data)

    def end(self) -> None:
        """Give the streams back, and everything that was held."""
        with suppress(BrokenPipeError):  # the pager was left
            self._out.flush()
        self._err.flush()
        sys.stdout, sys.stderr = self.stdout, self.stderr
        self._wait()
        for stream, data in self._held:
            self._write(stream, data)

    def _hold_beside(self, data: bytes) -> None:
        if not self._is_left:
            self._out.flush()  # what was printed before comes before
        self._held.append((self.stderr, data))

    def _rows(self, data: bytes) -> int:
        """The rows of the screen that end with `data`."""
        *lines, _ = _ESCAPE.sub(b"", data).split(b"\n")
        return sum(max(1, -(-len(line.decode("utf-8", "replace")) // self._columns)) for line in lines)

    def _start(self) -> None:
        import subprocess

        for act in self._before:
            act()
        environment = {**_DEFAULTS, **os.environ}
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environment)
        except OSError:  # there is none: the terminal scrolls
            held, self._held = self._held, []
            for stream, data in held:
                self._write(stream, data)
            return
        held, self._held = self._held, [each for each in self._held if each[0] is self.stderr]
        for stream, data in held:
            if stream is self.stdout:
                self.take(data)

    def _wait(self) -> None:
        if self._process is None:
            return
        ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's
        try:
            if self._process.stdin:
                with suppress(BrokenPipeError):
                    self._process.stdin.close()
            self._process.wait()
        finally:
            signal.signal(signal.SIGINT, ignored)

    def _write(self, stream: TextIO, data: bytes) -> None:
        stream.buffer.write(data)
        stream.flush()


class _Screen(io.RawIOBase):
    """Stands for a stream of a terminal; what is written to it is given to `take`."""

    def __init__(self, take: Callable[[bytes], None], real: TextIO) -> None:
        super().__init__()
        self._take = take
        self._real = real

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._real.isatty()

    def fileno(self) -> int:
        return self._real.fileno()

    def write(self, data: Any) -> int:
        self._take(bytes(data))
        return len(data)


def _stream(raw: io.RawIOBase, *, line_buffering: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=line_buffering
    )
