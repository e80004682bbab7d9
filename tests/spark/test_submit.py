"""Started by spark-submit, which has its own JVM, master and settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import environment
from tests.conftest import GoldenStore
from tests.export.exporting import manifest_of, rows_of
from tests.spark.sessions import SECONDS, require_spark
from tests.spark.shared_classes import SMALL_JAVA

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TELLING = """\
import sys
from rmqtool.spark.session import spark_context
master, *settings = sys.argv[1:]
with spark_context(master or None, dict(setting.split("=") for setting in settings)) as context:
    conf = context.getConf()
    print(context.master, conf.get("spark.rmqtool.one"), conf.get("spark.rmqtool.two"))
    print(context.parallelize([1], 1).map(lambda _: __import__("rmqtool").__name__).first())
"""
PROGRAM = "from rmqtool.__main__ import main; main()\n"


@pytest.fixture(autouse=True)
def spark_is_there() -> None:
    require_spark()


def submit(script: str, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `script` on a master of two cores, with a setting."""
    import pyspark

    program, file = Path(pyspark.__file__).parent / "bin" / "spark-submit", folder / "submit.py"
    file.write_text(script)
    settings = ("--master", "local[2]", "--conf", "spark.rmqtool.one=a", "--conf", "spark.ui.enabled=false")
    command = [str(program), "--driver-java-options", SMALL_JAVA, *settings, str(file), *map(str, arguments)]
    env = environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        (("", "spark.rmqtool.two=c"), "local[2] a c"),
        pytest.param(("local[1]", "spark.rmqtool.one=b"), "local[1] b None", marks=pytest.mark.rare),
    ],
)
def test_what_was_said_to_spark_submit_counts(ours: tuple[str, ...], found: str, tmp_path: Path) -> None:
    """Its master and settings, unless we are told others; and workers find the package."""
    done = submit(TELLING, tmp_path, *ours)
    assert done.stdout.splitlines() == [found, "rmqtool"], done.stderr


@pytest.mark.rare
def test_an_export(golden_store: GoldenStore, tmp_path: Path) -> None:
    """As documented: a file that ends with .py and calls the program."""
    done = submit(PROGRAM, tmp_path, "export", golden_store("5.3.3-single"), "--output", tmp_path / "out")
    assert done.returncode == os.EX_OK, done.stderr
    assert len(rows_of(tmp_path / "out")) == manifest_of(tmp_path / "out")["rows"] > 0
