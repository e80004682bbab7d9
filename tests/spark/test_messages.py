"""What Spark says, as a sentence. No Java runs here."""

from __future__ import annotations

import pickle
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from rmqtool.base.errors import UsageError
from rmqtool.spark import engine, session
from rmqtool.spark.options import OPTIONS, parse_options
from rmqtool.spark.session import failure, package_zip
from tests.rooms import ROOT, modules_under

MISMATCH = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
  pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different \
version: 3.9 than that in driver: 3.11, PySpark cannot run with different minor versions.
"""
MISSING = """: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Traceback (most recent call last):
ModuleNotFoundError: No module named 'pyarrow'
"""
NO_PROGRAM = """Caused by: java.io.IOException: Cannot run program "python3.99": error=2, No such file or directory"""
NO_DAEMON = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout.
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)
"""
NO_MASTER = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.driverTmpDir()" because the return value of \
"org.apache.spark.SparkEnv$.get()" is null
"""
OTHER = """An error occurred while calling o0.x.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.X(X.scala:1)
Caused by: java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (MISMATCH, f"the workers' Python is 3.9, not {sys.version_info[0]}.{sys.version_info[1]} as here"),
        (MISSING, "the workers' Python has no module pyarrow"),
        (NO_PROGRAM, "the workers have no program python3.99"),
        ("... No space left on device ...", "no space is left on a disk that Spark uses"),
        (NO_DAEMON, "the workers' Python, "),
        (NO_MASTER, "Spark was ended while it started: its master does not answer"),
        (OTHER, "Spark failed: Java heap space"),
        ("", "Spark failed: no reason is given"),
    ],
)
def test_what_a_failed_job_means(text: str, sentence: str) -> None:
    """One line, and what to do where that is known."""
    error = failure(RuntimeError(text))
    assert error.message.startswith(sentence)
    assert "\n" not in error.message
    assert error.hint or "Spark failed" in error.message


def test_many_tasks_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, in order, in at most so many groups; and what they give comes back as one."""
    monkeypatch.setattr(engine, "_MAX_TASKS", 3)
    for count in range(1, 8):
        groups = list(engine._groups(range(count)))
        assert [task for group in groups for task in group] == list(range(count))
        assert len(groups) == min(count, 3)
        assert all(groups)
    worker = partial(engine._done, _doubled, _summed)
    assert engine._checked([worker(pickle.dumps([1, 2])), worker(pickle.dumps([3]))]) == [6, 6]
    with pytest.raises(UsageError, match="odd"):
        engine._checked([worker(pickle.dumps([1])), worker(pickle.dumps([2, 13]))])


def _doubled(task: int) -> int:
    if task > 10:
        raise UsageError("odd")
    return 2 * task


def _summed(results: list[int]) -> list[int]:
    return [sum(results)]


@pytest.mark.slow
def test_the_zip_for_workers_holds_the_package(tmp_path: Path) -> None:
    """All of it, the formats too."""
    path = package_zip(str(tmp_path))
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    modules = modules_under(ROOT).values()
    assert names == {f"{one.name.replace('.', '/')}{'/__init__' if one.is_package else ''}.py" for one in modules}


def test_every_option_is_documented() -> None:
    """In docs/export.md, in its own spelling."""
    text = (ROOT / "docs" / "export.md").read_text()
    assert [name for name in OPTIONS if f"`{name}`" not in text] == []


def test_no_path_is_told() -> None:
    """As after CREATE TABLE ... USING, where Spark loses all options."""
    with pytest.raises(UsageError, match="no store is given"):
        parse_options({})


class _Context:
    """A context as far as its Python is looked at."""

    def __init__(self, master: str, **conf: str) -> None:
        self.master = master
        self._conf = conf

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {name.replace("_", "."): value for name, value in self._conf.items()}


def test_workers_of_another_environment_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the PATH has another python3 first, and nobody says which one to take."""
    other = tmp_path / "python3"
    other.touch()
    other.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert session.other_python(_Context("local[2]")) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.other_python(_Context("local[2]")) == str(other)
    assert session.other_python(_Context("spark://host:7077")) is None
    assert session.other_python(_Context("local[2]", spark_pyspark_python="python3")) is None
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert session.other_python(_Context("local[2]")) is None
