"""The program on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rmqtool.base.errors import Exit
from tests.commands.running import MAX_SECONDS, ROOT, environment

WIDTH = 80


def on_terminal(*arguments: str, cwd: Path, status: int = Exit.OK, typed: str = "", **variables: str) -> str:
    """What the program prints to a terminal of 80 columns, on which is `typed`: standard output and error together."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    command = [sys.executable, "-m", "rmqtool", *arguments]
    env = environment(TERM="xterm-256color", PYTHONPATH=str(ROOT), **variables)
    process = subprocess.Popen(command, cwd=cwd, env=env, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    os.write(controller, typed.encode())
    data = b""
    try:
        while part := os.read(controller, 1 << 16):
            data += part
    except OSError:  # EIO: the other side is closed
        pass
    os.close(controller)
    assert process.wait(timeout=MAX_SECONDS) == status
    return data.decode().replace("\r\n", "\n")
