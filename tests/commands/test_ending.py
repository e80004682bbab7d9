"""The end of a process: with the status, whatever became of its outputs, also while another machine is silent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder
from tests.commands.running import MAX_SECONDS, spawn

_END = f"""
import sys, threading
from rmqtool.base.filesystems import in_background
from rmqtool.commands.ending import end
in_background(threading.Event().wait)
sys.stdout.write("text")
end({int(Exit.LOSSY)})
"""


def ended(redirection: str, output: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    """A process of the shell that ends so."""
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, _END]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=environment, check=False, timeout=60)


@pytest.mark.parametrize("redirection", ["", "2>&-"])
def test_output_is_written(redirection: str) -> None:
    """Also where standard error is closed."""
    done = ended(redirection)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.LOSSY, b"text", b"")


def test_nobody_reads_the_output() -> None:
    """That is no reason for another status, nor for a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    done = ended("", writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (Exit.LOSSY, b"")


def test_what_waits_for_the_end_is_done() -> None:
    """Such as a database that is closed, and temporary files that are deleted."""
    code = "import atexit; from rmqtool.commands.ending import end; atexit.register(print, 'closed'); end(None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=MAX_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.OK, b"closed\n", b"")


@pytest.mark.slow
def test_a_follower_that_nobody_reads_ends(tmp_path: Path) -> None:
    """Not only with the next message, which may never come: the shell waits for it after `| head -1`."""
    store = LogBuilder().add_all([{}]).write(tmp_path)
    with spawn("inspect", store / "commitlog", "--follow", "--from-offset", "0", "--json") as process:
        assert process.stdout
        assert process.stdout.readline().startswith(b'{"kind":"message"')
        process.stdout.close()
        try:
            assert process.wait(MAX_SECONDS) == Exit.OK
        finally:
            process.kill()
