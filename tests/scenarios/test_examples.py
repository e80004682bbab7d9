"""The examples do what their expected output says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unchanged import unchanged

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
STORE = EXAMPLES / "store"
SECONDS = 600


def run(*command: str | Path, **variables: str) -> str:
    """What a program prints; the example store stays as it is."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    with unchanged(STORE):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=ROOT, env=environment
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(name: str) -> str:
    return (EXAMPLES / "expected" / f"{name}.txt").read_text()


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The example store, exported."""
    run(sys.executable, "-m", "rmqtool", "export", STORE, "--output", tmp_path / "out", "--engine", "local")
    return tmp_path / "out"


@pytest.mark.slow
@pytest.mark.spark
def test_with_spark(exported: Path) -> None:
    from tests.spark.sessions import SMALL_JAVA, require_spark

    require_spark()
    settings = f"--conf spark.driver.memory=640m --driver-java-options '{SMALL_JAVA}' pyspark-shell"
    found = run(sys.executable, EXAMPLES / "spark_sql.py", exported, PYSPARK_SUBMIT_ARGS=settings)
    assert found == expected("spark_sql")


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["duckdb_session", "pandas_session", "polars_session"])
def test_other_readers(name: str, exported: Path) -> None:
    assert run(sys.executable, EXAMPLES / f"{name}.py", exported) == expected(name)


@pytest.mark.slow
def test_nightly_export(tmp_path: Path) -> None:
    """Two nights: everything, then nothing new; the second is a Sunday."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rmqtool").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rmqtool "$@"\n')
    (programs / "rmqtool").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    nights = [run(EXAMPLES / "nightly_export.sh", STORE, tmp_path / "out", PATH=path, CHECK=day) for day in ("6", "7")]
    assert "".join(nights) == expected("nightly_export")


def test_every_example_is_run_and_told() -> None:
    """Each script has its expected output and stands in the page of examples; the demo's own is run by make demo."""
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} | {path.stem for path in EXAMPLES.glob("*.sh")}
    assert scripts - {"demo_export"} == {path.stem for path in (EXAMPLES / "expected").iterdir()}
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in scripts - {"demo_export"} if f"`{name}." not in text] == []
