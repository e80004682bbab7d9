"""What the program sets up before it loads anything large."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_THREADS = """\
import os, rmqtool.__main__, rmqtool.cli
rmqtool.cli.main = lambda: print(os.environ["OPENBLAS_NUM_THREADS"])
rmqtool.__main__.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("3", "3")])
def test_no_threads_wait_in_a_busy_loop(given: str | None, found: str) -> None:
    """NumPy's library for matrices starts none, unless somebody asks for them."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given is not None:
        environment["OPENBLAS_NUM_THREADS"] = given
    done = subprocess.run([sys.executable, "-c", _THREADS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [found]
