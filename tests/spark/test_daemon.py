"""Where the daemon of Python workers takes pyspark from."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from rmqtool.spark.daemon import prefer_installed


@pytest.fixture
def home() -> str:
    """The directory that Spark calls its home, where pyspark is installed with pip."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        pytest.skip("pyspark is not installed")
    return str(Path(found.origin).parent)


def _paths_of(home: str) -> list[str]:
    return [os.path.join(home, "python", "lib", "pyspark.zip"), os.path.join(home, "jars", "spark-core_2.13-4.jar")]


def test_compiled_modules_come_before_zips(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's zips and jars are passed over; everything else stays in its order."""
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", [before[0], *_paths_of(home), *before[1:]])
    monkeypatch.setenv("SPARK_HOME", home)
    prefer_installed()
    assert sys.path == before


def test_another_spark_keeps_its_own_pyspark(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed pyspark is not that of a Spark that stands elsewhere."""
    paths = [*_paths_of(str(tmp_path)), *sys.path]
    monkeypatch.setattr(sys, "path", list(paths))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    prefer_installed()
    assert sys.path == paths


def test_without_an_installed_pyspark_the_zips_stay(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is passed over that is the only one."""
    paths = [*_paths_of(home), *sys.path]
    monkeypatch.setattr(sys, "path", list(paths))
    monkeypatch.setenv("SPARK_HOME", home)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    prefer_installed()
    assert sys.path == paths


def test_without_a_home_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that some other way was found to start are left alone."""
    paths = ["/a/pyspark.zip", *sys.path]
    monkeypatch.setattr(sys, "path", list(paths))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    prefer_installed()
    assert sys.path == paths
