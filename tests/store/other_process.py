"""Other processes that hold or map a file of a store, as brokers and other programs do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What the other process does before it says that it is ready; it ends when its input does.
HOLD = """
import fcntl, mmap, sys
file = open(sys.argv[1], "r+b")
{action}
print("ready", flush=True)
sys.stdin.read()
"""
JAVA = "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)"  # FileChannel#tryLock(0, 1, false)
SHARED = "fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0, 0)"
ROCKSDB = "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"  # of the whole file
BYTE_1 = "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1, 0)"
FLOCK = "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
MAP = "held = mmap.mmap(file.fileno(), 0)"
NOTHING = ""


@contextmanager
def another_process(path: Path, action: str) -> Iterator[int]:
    """Another process that does `action` with a file; its process id."""
    command = [sys.executable, "-c", HOLD.format(action=action), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()
