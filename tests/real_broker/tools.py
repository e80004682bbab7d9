"""The programs that the harness needs, and its cache."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

_OLDEST_JAVA = 17
_INSTALL = f"install a JDK of Java {_OLDEST_JAVA} or later, and Maven (Debian: openjdk-17-jdk-headless maven)"


class HarnessUnavailable(Exception):  # noqa: N818 - a state of the machine, not an error
    """A program or a jar that the harness needs cannot be had; the message says what to install."""


class HarnessError(Exception):
    """A program that the harness started failed; the message ends with its last lines."""


def tool(name: str) -> str:
    """Path of `java`, `javac` or `mvn`: under ``JAVA_HOME`` or on the ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    candidate = Path(home, "bin", name) if home else None
    if candidate is not None and candidate.is_file():
        return str(candidate)
    found = shutil.which(name)
    if found is None:
        raise HarnessUnavailable(f"`{name}` is missing: {_INSTALL}")
    return found


@lru_cache(maxsize=1)
def require_tools() -> None:
    """HarnessUnavailable unless there are a JDK that is new enough, and Maven."""
    tool("mvn")
    for name in ("java", "javac"):
        done = subprocess.run([tool(name), "-version"], capture_output=True, text=True, timeout=60, check=False)
        version = re.search(r"(\d+)[.\d]*", done.stdout + done.stderr)
        if done.returncode != 0 or version is None or int(version[1]) < _OLDEST_JAVA:
            raise HarnessUnavailable(f"`{name}` is not of Java {_OLDEST_JAVA} or later: {_INSTALL}")


def cache() -> Path:
    """Directory of jars and class files that outlive a run."""
    chosen = os.environ.get("RMQTOOL_HARNESS_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "rmqtool-harness"


def cached(path: Path, fill: Callable[[Path], None], lock: str = "lock") -> Path:
    """`path`, a directory in the cache; made whole by `fill` when it is not there, by one process only.

    By default there is one lock for the whole cache: two Maven runs at once would also meet in Maven's own repository.
    """
    if not path.is_dir():
        with _locked(lock), TemporaryDirectory(dir=cache(), prefix="new-") as scratch:
            if not path.is_dir():
                fresh = Path(scratch, "content")
                fresh.mkdir()
                fill(fresh)
                path.parent.mkdir(parents=True, exist_ok=True)
                fresh.rename(path)
    return path


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with Path(cache(), name).open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
