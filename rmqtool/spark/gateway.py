"""The JVM of Spark, started in the background: it takes seconds, in which everything else is prepared."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

from rmqtool.base.errors import RmqtoolError

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_FIRST_SPARK_ON_24 = (4, 2)  # before, Hadoop's `Subject#getSubject` fails there
_SECONDS = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_NO_JAVA_HINT = f"install Java {OLDEST_JAVA} or later, or use --engine local, which does not need it"


class JavaError(RmqtoolError):
    """There is no Java that Spark could run on."""

    kind = "java"


def check_java(spark_version: str) -> None:
    """Raise JavaError unless Spark will find a Java that it can run on."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home, "bin", "java") if home else shutil.which("java")
    if program is None:
        raise JavaError("Spark needs Java, and there is none on this machine", hint=_NO_JAVA_HINT)
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False,
                              stdin=subprocess.DEVNULL)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        if home:
            message = f"JAVA_HOME is {home}, and no Java can be started there"
            raise JavaError(
                message, hint="set JAVA_HOME to the directory that contains bin/java, or unset it"
            ) from error
        raise JavaError(f"{program} cannot be started", hint=_NO_JAVA_HINT) from error
    match = _VERSION.search(done.stderr + done.stdout)
    major = int(match[1]) if match else 0
    if major < OLDEST_JAVA:
        shown = f"Java {major}" if major else "no Java that prints its version"
        message = f"Spark {spark_version} needs Java {OLDEST_JAVA} or later, and {program} is {shown}"
        raise JavaError(message, hint=f"set JAVA_HOME to a newer one; {_NO_JAVA_HINT}")
    if major >= 24 and tuple(map(int, re.findall(r"\d+", spark_version)[:2])) < _FIRST_SPARK_ON_24:
        message = f"Spark {spark_version} does not run on Java {major}"
        raise JavaError(message, hint="set JAVA_HOME to Java 17 or 21, or install pyspark 4.2 or later")


_CLOSING_SECONDS = 10
_ENDING_SECONDS = 0.5
_POLL_SECONDS = 0.05
_ENDED = -1


def spark_conf(settings: Mapping[str, str]) -> Any:
    """A SparkConf of these settings and no others."""
    from pyspark import SparkConf

    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf


def is_submitted() -> bool:
    """Whether spark-submit has started this process, and the JVM before it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _Process(Popen[bytes]):
    """pyspark waits until a status is not 0, and would wait for ever for a JVM that has ended with 0."""

    def poll(self) -> int | None:
        status = super().poll()
        return _ENDED if status == 0 else status


class Launch:
    """A JVM that starts in a thread of its own and writes to the file `log`; under spark-submit, the existing one."""

    def __init__(self, settings: Mapping[str, str], log: Path) -> None:
        self._settings = settings
        self._log = log
        self._process: _Process | None = None
        self._gateway: Any = None
        self._failed: BaseException | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether this has started a process, which is gone after `close`."""
        return self._process is not None

    @property
    def ended_without_error(self) -> bool:
        """Whether the JVM has ended as if all were done."""
        return self._process is not None and self._process.returncode == 0

    @property
    def was_ended(self) -> bool:
        """Whether a signal has ended the JVM, which may still be on its way: its connections end before it does."""
        if self._process is None:
            return False
        with suppress(TimeoutExpired):
            self._process.wait(_ENDING_SECONDS)
        return self._process.returncode in (-signal.SIGKILL, -signal.SIGTERM)

    def gateway(self) -> Any:
        """Wait for the JVM; py4j's way to it. Raises JavaError, and what pyspark raises."""
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._gateway

    def close(self) -> None:
        """End the JVM, whatever state it is in; one that was there before stays. Twice is harmless."""
        self._given_up = True
        while self._thread.is_alive():
            if self._process is not None:
                self._process.kill()
            self._thread.join(_POLL_SECONDS)
        if self._process is None:
            return
        with suppress(Exception):
            self._gateway.shutdown()
        if self._process.stdin is not None:
            self._process.stdin.close()  # the JVM ends with its standard input
        try:
            self._process.wait(_CLOSING_SECONDS)
        except BaseException:  # noqa: BLE001 - it takes too long, or we are interrupted once more
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        try:
            self._launch()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._failed = error

    def _launch(self) -> None:
        from pyspark import __version__, java_gateway

        if not is_submitted():
            check_java(__version__)
        conf = spark_conf(self._settings)
        popen, java_gateway.Popen = java_gateway.Popen, self._start
        try:
            with self._log.open("ab", 0) as file:
                self._gateway = java_gateway.launch_gateway(conf, popen_kwargs={"stdout": file, "stderr": file})
        finally:
            java_gateway.Popen = popen

    def _start(self, command: list[str], **options: Any) -> _Process:
        if self._given_up:
            raise RuntimeError("nobody waits for the JVM any more")
        self._process = _Process(command, **options)
        return self._process
