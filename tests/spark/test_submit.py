"""Started by spark-submit, which has its own JVM, master and settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import ROOT, Result, environment, rmqtool
from tests.conftest import GoldenStore
from tests.export.exporting import manifest_of, rows_of
from tests.other_machines.servers import s3_server, s3_uri
from tests.spark.comparing import assert_same, compared_stores
from tests.spark.sessions import SECONDS, SMALL_JAVA, require_spark

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
COMMANDS = """
import json
from tests.commands.running import rmqtool
for line in open(f"{__file__}.lines"):
    print(json.dumps(rmqtool(*json.loads(line)).__dict__))
"""
"""After `TELLING`: runs the command lines of a file."""
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
    env = environment(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=str(ROOT))
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


def submit_commands(folder: Path, *commands: list[str]) -> list[Result]:
    """Run command lines with Spark, one after the other; the settings of spark-submit hold for the first context."""
    engine = ["--engine", "spark", "--master", "local[2]", "--conf", "spark.app.name=another"]
    (folder / "submit.py.lines").write_text("".join(f"{json.dumps([*words, *engine])}\n" for words in commands))
    done = submit(TELLING + COMMANDS, folder, "", "spark.rmqtool.two=c")
    assert done.stdout.splitlines()[:2] == ["local[2] a c", "rmqtool"], done.stderr
    assert done.returncode == os.EX_OK, done.stdout
    return [Result(**json.loads(line)) for line in done.stdout.splitlines()[2:]]


def test_what_was_said_to_spark_submit_counts(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Its master and settings; and each command prints what it does without Spark, one after the other in one JVM."""
    verification = ["verify", str(golden_store("5.3.3-killed")), "--json"]
    comparison, stores = compared_stores(tmp_path)
    verified, compared = submit_commands(tmp_path, verification, comparison)
    assert verified == rmqtool(*verification)
    here = rmqtool(*comparison)
    assert (compared.status, compared.err) == (here.status, here.err)
    assert_same(compared.document["result"], here.document["result"], stores)


@pytest.mark.rare
def test_an_export_to_another_machine(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Its check finds it whole."""
    store = golden_store("4.9.7-trimmed")
    with s3_server() as place:
        uri = s3_uri(place, "by-spark/out")
        (exported,) = submit_commands(tmp_path, ["export", str(store), "-o", uri])
        checked = rmqtool("export", store, "--check", uri)
    assert (exported.status, checked.status) == (Exit.OK, Exit.OK)


@pytest.mark.rare
def test_what_we_are_told_counts_more(tmp_path: Path) -> None:
    """Another master, and another value of a setting; workers find the package."""
    done = submit(TELLING, tmp_path, "local[1]", "spark.rmqtool.one=b")
    assert done.stdout.splitlines() == ["local[1] b None", "rmqtool"], done.stderr


@pytest.mark.rare
def test_an_export(golden_store: GoldenStore, tmp_path: Path) -> None:
    """As documented: a file that ends with .py and calls the program."""
    done = submit(PROGRAM, tmp_path, "export", golden_store("5.3.3-single"), "--output", tmp_path / "out")
    assert done.returncode == os.EX_OK, done.stderr
    assert len(rows_of(tmp_path / "out")) == manifest_of(tmp_path / "out")["rows"] > 0
