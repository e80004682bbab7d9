"""Spark sessions for tests, in processes of their own.

pyspark forks its process to start a JVM, which a large pytest worker must not be asked for; and a JVM that dies takes
no test down with it. A session's process ends with the test process, and its JVM with it.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPARK_UNAVAILABLE = "no Spark: "
"""How the reason begins for which a test of Spark was skipped."""

SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Of a JVM that lives for seconds: one thread collects garbage, and the small compiler does."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "640m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": SMALL_JAVA,
}

SECONDS = 400
"""A job that takes longer stands still."""

EXECUTOR = "CoarseGrainedExecutorBackend"
"""What stands in the command line of an executor."""

Job = Callable[..., Any]
"""A function of a module that takes the session first; what it gives and takes can be pickled."""


def require_spark() -> None:
    """Skip the test where Spark cannot run, under CI=true a failure."""
    reason = None
    try:
        import pyspark
    except ImportError:
        reason = "pyspark is not installed (pip install 'rmqtool[spark]')"
    else:
        from rmqtool.spark.gateway import JavaError, check_java

        try:
            check_java(pyspark.__version__)
        except JavaError as error:
            reason = f"{error} ({error.hint})"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(SPARK_UNAVAILABLE + reason)
    if reason:
        pytest.skip(SPARK_UNAVAILABLE + reason)


class Session:
    """A session in another process."""

    def __init__(self, master: str, settings: Mapping[str, str], *, installed: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # Not daemonic: pyspark is to end its JVM itself.
        arguments = (theirs, master, {**SETTINGS, **settings}, installed)
        self._process = context.Process(target=_serve, args=arguments)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(30)
        self._kill()

    def _kill(self) -> None:
        if self._process.is_alive():
            kill_with_children(int(self._process.pid or 0))
            self._process.join(30)

    def run(self, job: Job, *arguments: Any) -> Any:
        """What `job` gives; an error in there is a RuntimeError with its whole text.

        A job that stands still is a TimeoutError, and ends the session: jobs after it fail at once.
        """
        self._connection.send((job, arguments))
        if not self._connection.poll(SECONDS):
            self._kill()
            raise TimeoutError(f"{job.__name__} took more than {SECONDS} s")
        works, result = self._connection.recv()
        if not works:
            raise RuntimeError(result)
        return result


def installed_source(folder: Path) -> Path:
    """The package as it is installed, Spark's way in at the top level: links below `folder`; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rmqtool").symlink_to(ROOT / "rmqtool")
    (folder / "pyspark_rocketmq").symlink_to(ROOT / "rmqtool" / "spark" / "pyspark_rocketmq")
    return folder


def _serve(connection: Connection, master: str, settings: Mapping[str, str], installed: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rmqtool-session-"))
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    os.environ["PYTHONPATH"] = str(installed_source(folder / "installed") if installed else ROOT)
    log = (folder / "log").open("wb")
    os.dup2(log.fileno(), 2)  # Spark talks
    try:
        session = _start(master, settings)
        while True:
            try:
                job, arguments = connection.recv()
            except EOFError:
                break
            try:
                connection.send((True, job(session, *arguments)))
            except Exception:  # noqa: BLE001 - the test is told
                connection.send((False, traceback.format_exc()))
        session.stop()
    finally:
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _start(master: str, settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process has started, directly or not, with their command lines."""
    done = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in done.stdout.splitlines()]
    parents = {int(row[0]): int(row[1]) for row in rows}
    commands = {int(row[0]): row[2] if len(row) > 2 else "" for row in rows}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: commands[child] for child in found - {pid}}


def kill_with_children(pid: int) -> None:
    """End a process and all that it has started, whatever they are doing."""
    for number in (pid, *descendants(pid)):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
