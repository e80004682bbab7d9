"""The Java that Spark will start, checked beforehand, so that a problem is reported in one sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from rmqtool.base.errors import RmqtoolError

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_FIRST_SPARK_ON_24 = (4, 2)  # before, Hadoop's `Subject#getSubject` fails there
_SECONDS = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_NO_JAVA_HINT = f"install Java {OLDEST_JAVA} or later, or take --engine local, which needs none"


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
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if home:
            message = f"JAVA_HOME is {home}, and no Java can be started there"
            raise JavaError(message, hint="set JAVA_HOME to the directory that holds bin/java, or unset it") from error
        raise JavaError(f"{program} cannot be started", hint=_NO_JAVA_HINT) from error
    match = _VERSION.search(done.stderr + done.stdout)
    major = int(match[1]) if match else 0
    if major < OLDEST_JAVA:
        shown = f"Java {major}" if major else "no Java that prints its version"
        message = f"Spark {spark_version} needs Java {OLDEST_JAVA} or later, and {program} is {shown}"
        raise JavaError(message, hint=f"set JAVA_HOME to a newer one; {_NO_JAVA_HINT}")
    if major >= 24 and _major_minor(spark_version) < _FIRST_SPARK_ON_24:
        message = f"Spark {spark_version} does not run on Java {major}"
        raise JavaError(message, hint="set JAVA_HOME to Java 17 or 21, or install pyspark 4.2 or later")


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])
