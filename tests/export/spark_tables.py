"""Tables as Spark reads them, with the jars of Delta and Iceberg, in a process of its own.

Those jars follow Spark's releases by months: they run with the pyspark that they are made for, which is fetched beside
them into the cache of the harness.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.real_broker.classes import fetch_jars
from tests.real_broker.tools import HarnessUnavailable, cache, cached
from tests.spark.sessions import SETTINGS, SPARK_UNAVAILABLE, require_spark

PYSPARK = "4.1.4"
"""The newest that both have jars for."""

_JARS = ("io.delta:delta-spark_4.1_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
_GROUPS = "-DincludeGroupIds=io.delta,org.apache.iceberg,io.unitycatalog"  # the rest is what Spark has
_SECONDS = 500
_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

settings, tables = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
for into, (kind, path, options) in tables.items():
    session.read.format(kind).options(**options).load(path).coalesce(1).write.parquet(into)
"""
_SETTINGS = {
    **SETTINGS,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def read_by_spark(tables: Mapping[str, tuple[str, Path, Mapping[str, Any]]], scratch: Path) -> dict[str, pa.Table]:
    """What Spark reads: by a name of ours, from a kind of table, its path and options of the reader."""
    require_spark()
    try:
        pyspark = cached(cache() / f"pyspark-{PYSPARK}", _install)
        jars = cached(cache() / "jars-of-tables" / "-".join(artifact.rpartition(":")[2] for artifact in _JARS), _fetch)
    except HarnessUnavailable as error:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{SPARK_UNAVAILABLE}{error}")
    settings = {**_SETTINGS, "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))}
    wanted = {str(scratch / name): (kind, str(path), options) for name, (kind, path, options) in tables.items()}
    environment = {**os.environ, "PYTHONPATH": str(pyspark), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(settings), json.dumps(wanted)],
        env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=scratch,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: pq.read_table(scratch / name) for name in tables}


def _fetch(into: Path) -> None:
    fetch_jars(_JARS, into, _GROUPS)


def _install(into: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(into)]
    command.append(f"pyspark=={PYSPARK}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise HarnessUnavailable(f"pyspark {PYSPARK} cannot be installed: {done.stderr[-1000:]}")
