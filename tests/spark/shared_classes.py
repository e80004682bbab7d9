"""The classes of Spark as a JVM has loaded them: each of the JVMs that tests start takes them from one archive."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.real_broker.shared_classes import archive_of, making, taking
from tests.real_broker.tools import HarnessUnavailable, cached
from tests.real_broker.tools import cache as folder_of_cache

SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Of a JVM that lives for seconds: one thread collects garbage, and the small compiler does."""

_DRIVER_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options of the JVM that spark-submit starts, and pyspark by it; they are added to others."""
_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 400


@cache
def executor_options() -> str:
    """Options for the JVMs of executors; those of drivers that this process starts have them by its environment.

    Empty where no archive can be made; the first call on a machine makes it, which takes half a minute.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    try:
        archive = archive_of(folder_of_cache() / "spark", f"{pyspark.__version__} {home}")
        folder = cached(archive.with_suffix(""), lambda fresh: _make(fresh / archive.name, home), "lock-of-spark")
    except (HarnessUnavailable, subprocess.SubprocessError):
        return ""
    options = " ".join(taking(folder / archive.name))
    os.environ[_DRIVER_OPTIONS] = f"{os.environ.get(_DRIVER_OPTIONS, '')} {options}".strip()
    return options


def _make(archive: Path, home: Path) -> None:
    """Have a JVM do what tests do; it waits for the program that it runs, and ends by itself."""
    program, options = str(home / "bin" / "spark-submit"), " ".join([SMALL_JAVA, *making(archive)])
    command = [program, "--master", "local[1]", "--driver-java-options", options, "--conf", "spark.ui.enabled=false"]
    settings = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(_ROOT)}
    subprocess.run(
        [*command, __file__],
        env={**os.environ, **settings},
        capture_output=True,
        timeout=_SECONDS,
        check=True,
    )


def _use_spark(session: Any) -> None:
    """Read and write, by SQL and by functions of Python."""
    from rmqtool.spark import register

    register(session)
    messages = session.read.format("rocketmq").load(str(_ROOT / "examples" / "store"))
    with TemporaryDirectory() as folder:
        messages.write.parquet(f"{folder}/rows")
        session.read.parquet(f"{folder}/rows").where("queue_id = 0").groupBy("topic").count().collect()
    session.sparkContext.parallelize(range(4), 2).map(str).collect()


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    _session = SparkSession.builder.getOrCreate()
    _use_spark(_session)
    _session.stop()
