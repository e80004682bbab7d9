"""`rmqtool export` on Spark: the output is that of the local engine, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder
from tests.commands.running import ROOT, check_json, environment, rmqtool, spawn
from tests.conftest import GoldenStore
from tests.export.exporting import check, export, oracle_row, rows_of, sorted_properties
from tests.golden import stores
from tests.spark.sessions import EXECUTOR, SECONDS, SMALL_JAVA, descendants, kill_with_children, require_spark
from tests.unchanged import unchanged

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STORE = "5.5.0-killed"


@pytest.fixture(autouse=True)
def spark_is_there() -> None:
    require_spark()


def finished(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        kill_with_children(process.pid)
        raise
    return process.returncode, out.decode(), err.decode()


def assert_gone(pids: set[int]) -> None:
    """Soon none of these processes is there any more."""
    deadline = time.monotonic() + 30
    while pids & set(descendants(1)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert pids & set(descendants(1)) == set()


def wait_for(pattern: str, output: Path, process: subprocess.Popen[bytes]) -> None:
    """Until a file of the output fits `pattern`."""
    deadline = time.monotonic() + SECONDS
    while not any(output.glob(pattern)):
        assert process.poll() is None, finished(process)
        assert time.monotonic() < deadline
        time.sleep(0.1)


def in_splits(builder: LogBuilder) -> list[str]:
    """Fill a log, and export it so that a dozen files come one after the other, in as many seconds."""
    builder.add_all({"body": bytes(1 << 19), "queue_offset": number} for number in range(24))
    return ["--split-size", "1MiB", "--limit-rate", "8MiB"]  # for each of them a block of 4 MiB is read


def test_the_output_is_that_of_the_local_engine(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Rows and manifest, bodies decoded by one process for each task; a check decodes again.

    Nothing but the result is printed, and how many bodies could not be decoded; nothing is left behind.
    """
    store, output = golden_store(STORE), tmp_path / "spark"
    numbers = "while read -r a; do case $a in e*) echo ${#a};; *) echo;; esac; done"  # of those that begin with {
    decoder = ["--decoder", f"lines:sh -c '{numbers}'"]
    options = ["--include", "prepared,rolled-back", "--columns", "*,body_decode_error", *decoder]
    here = rmqtool("export", store, "--output", tmp_path / "local", "--engine", "local", *options)
    with unchanged(store):
        process = spawn("export", store, "--output", output, *options, "--json", "--master", "local[2]",
                        env=environment(TMPDIR=str(tmp_path)))  # fmt: skip
        status, out, err = finished(process)
    assert (status, err) == (here.status, here.err)
    assert status == Exit.LOSSY
    assert "bodies could not be decoded; the first: commitlog/" in err
    check_json(out)
    rows = rows_of(output)
    assert rows == rows_of(tmp_path / "local")
    assert {row["body"][:1] for row in rows if row["body_decoded"]} == {b"{"}
    expected = [oracle_row(record) for record in stores.oracle(STORE)["records"]]
    found = [{name: row[name] for name in expected[0]} for row in rows]
    assert sorted_properties(found) == sorted_properties(expected)
    local, spark = (json.loads((tmp_path / name / "_manifest.json").read_text()) for name in ("local", "spark"))
    assert spark["wrong_bodies"]
    for name in local.keys() - {"files", "runs", "bytes"}:
        assert spark[name] == local[name], name
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("rmqtool-")] == []
    checked = rmqtool("export", store, "--check", output, *decoder)
    assert (checked.status, "the export matches the log" in checked.out) == (Exit.OK, True)


@pytest.mark.rare
def test_an_executor_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    """Two executors in processes and directories of their own; one is killed when files are being written."""
    builder, output = LogBuilder(1 << 24), tmp_path / "out"
    options = in_splits(builder)
    store = builder.write(tmp_path / "store")
    relative = os.path.relpath(store, ROOT), os.path.relpath(output, ROOT)
    process = spawn("export", relative[0], "--output", relative[1], *options,
                    "--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=512m",
                    "--conf", f"spark.executor.extraJavaOptions={SMALL_JAVA}",
                    "-q", env=environment())  # fmt: skip
    wait_for("_temporary/*/*.parquet", output, process)
    started = descendants(process.pid)
    executors = [pid for pid, command in started.items() if EXECUTOR in command]
    os.kill(executors[0], signal.SIGKILL)
    status, _, err = finished(process)
    assert_gone(set(started))
    assert (status, err) == (Exit.OK, "")
    assert [row["physical_offset"] for row in rows_of(output)] == builder.offsets
    assert check(store, output) == []


def test_a_jvm_that_is_killed_is_named(tmp_path: Path) -> None:
    """As by the system when memory is short: one sentence without a trace, and nothing is exported."""
    builder, output = LogBuilder(1 << 24), tmp_path / "out"
    options = in_splits(builder)
    store = builder.write(tmp_path / "store")
    process = spawn("export", store, "--output", output, "--master", "local[2]", *options, "-q", env=environment())
    wait_for("_temporary/*/*.parquet", output, process)
    started = descendants(process.pid)
    (jvm,) = (pid for pid, command in started.items() if "org.apache.spark.deploy.SparkSubmit" in command)
    os.kill(jvm, signal.SIGKILL)
    status, _, err = finished(process)
    assert_gone(set(started))
    sentence, hint = err.splitlines()[:2]
    assert (status, sentence) == (Exit.FAILED, "rmqtool: Spark's JVM was ended from outside")
    assert "memory limit" in hint
    assert not output.exists()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, Exit.INTERRUPTED), pytest.param(signal.SIGTERM, Exit.TERMINATED, marks=pytest.mark.rare)],
)
def test_an_interruption_leaves_nothing_half(
    number: signal.Signals, status: Exit, golden_store: GoldenStore, tmp_path: Path
) -> None:
    """What was exported before is as it was; Java is gone, and says nothing."""
    builder, output = LogBuilder(1 << 24), tmp_path / "out"
    options = in_splits(builder)
    store = builder.write(tmp_path / "store")
    export(golden_store("5.3.3-single"), output)
    before = rows_of(output)
    process = spawn("export", store, "--output", output, "--mode", "overwrite", "--master", "local[2]",
                    *options, env=environment(TMPDIR=str(tmp_path)))  # fmt: skip
    wait_for("_temporary/*/*.parquet", output, process)
    started = set(descendants(process.pid))
    process.send_signal(number)
    found, out, err = finished(process)
    assert_gone(started)
    assert (found, out) == (status, "")
    assert "Traceback" not in err
    assert rows_of(output) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("rmqtool-")] == []


def fake_java(folder: Path, text: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)
    return folder


def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has a shell and no Java."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "bash", "dirname", "ps"):
        program = shutil.which(name)
        if program:
            (programs / name).symlink_to(program)
    kept = {name: value for name, value in environment().items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(programs)}


def test_what_is_wrong_with_java_is_a_sentence(golden_store: GoldenStore, tmp_path: Path) -> None:
    """None, a wrong JAVA_HOME, one that is too old: exit 4, at once, with what to do."""
    old = fake_java(tmp_path / "old", 'openjdk version "1.8.0_402"')
    silent = fake_java(tmp_path / "silent", "nothing")
    for variables, text in (
        (without_java(tmp_path), "Spark needs Java, and there is none on this machine"),
        (environment(JAVA_HOME="/nowhere"), "JAVA_HOME is /nowhere, and no Java can be started there"),
        (environment(JAVA_HOME=str(old)), f"needs Java 17 or later, and {old}/bin/java is Java 8"),
        (environment(JAVA_HOME=str(silent)), "no Java that prints its version"),
    ):
        with patch.dict(os.environ, variables, clear=True):
            done = rmqtool("export", golden_store("5.3.3-single"), "-o", tmp_path / "out", "--engine", "spark")
        assert (done.status, done.out) == (Exit.FAILED, "")
        assert text in done.err.splitlines()[0]
        assert len(done.err.splitlines()) == 2
        assert not (tmp_path / "out").exists()


def test_a_missing_pyspark_is_a_sentence(golden_store: GoldenStore, tmp_path: Path) -> None:
    """And the engine that needs none works."""
    (tmp_path / "pyspark.py").write_text("raise ImportError('hidden')")
    variables = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    for engine, expected in (("spark", Exit.FAILED), ("local", Exit.OK)):
        arguments = ["export", str(golden_store("5.3.3-single")), "--output", str(tmp_path / "out"), "--engine", engine]
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqtool", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd=tmp_path,
        )
        status, _, err = finished(process)
        assert status == expected
        assert engine == "local" or "pyspark is not installed" in err


def test_what_spark_says_when_it_cannot_start_is_told(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A setting that the JVM refuses: its own words, and where its log is."""
    process = spawn("export", golden_store("5.3.3-single"), "--output", tmp_path / "out", "--master", "local[1]",
                    "--conf", "spark.driver.memory=lots", env=environment(TMPDIR=str(tmp_path)))  # fmt: skip
    status, _, err = finished(process)
    assert status == Exit.FAILED
    assert "lots" in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_jvm_that_ends_without_an_error_is_not_waited_for(golden_store: GoldenStore, tmp_path: Path) -> None:
    """As one does that was only asked for its version, by a variable: exit 4, and nothing is left."""
    process = spawn("export", golden_store("5.3.3-single"), "--output", tmp_path / "out", "--engine", "spark",
                    env=environment(TMPDIR=str(tmp_path), PYSPARK_SUBMIT_ARGS="--version pyspark-shell"))  # fmt: skip
    status, out, err = finished(process)
    assert (status, out) == (Exit.FAILED, "")
    sentence, hint = err.splitlines()
    assert sentence.endswith("Spark's JVM ended before it was ready, and reported no error")
    assert "PYSPARK_SUBMIT_ARGS is '--version pyspark-shell': unset it" in hint
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_before_spark_is_up_ends_it(tmp_path: Path) -> None:
    """The JVM starts while the output is looked at: where that is refused, nobody waits for it and nothing stays."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "something").touch()
    process = spawn("export", ROOT / "examples" / "store", "--output", tmp_path / "out", "--engine", "spark",
                    env=environment(TMPDIR=str(tmp_path)))  # fmt: skip
    status, out, err = finished(process)
    assert (status, out) == (Exit.USAGE, "")
    assert "the output directory is not empty" in err
    assert not list(tmp_path.glob("rmqtool-spark-*"))
    assert_gone({pid for pid, command in descendants(1).items() if str(tmp_path) in command})


@pytest.mark.parametrize(
    ("python", "text"),
    [
        ("python9", "the workers have no program python9"),
        pytest.param("/bin/false", "the workers' Python, /bin/false, does not start", marks=pytest.mark.rare),
    ],
)
def test_what_is_wrong_with_the_workers_is_a_sentence(
    python: str, text: str, golden_store: GoldenStore, tmp_path: Path
) -> None:
    """A Python that is not there, and one that is none: exit 4, and nothing is left."""
    process = spawn("export", golden_store("5.3.3-single"), "--output", tmp_path / "out", "--master", "local[1]",
                    env=environment(PYSPARK_PYTHON=python))  # fmt: skip
    status, out, err = finished(process)
    assert (status, out) == (Exit.FAILED, "")
    assert text in err.splitlines()[0]
    assert "PYSPARK_PYTHON" in err.splitlines()[1]
    assert len(err.splitlines()) == 2
    assert not (tmp_path / "out").exists()


BAD_DISK = """
import errno, os, sys
if "pyspark.worker" in sys.orig_argv:
    preadv = os.preadv
    def read(number, buffers, *others):
        if os.readlink(f"/proc/self/fd/{number}") == BAD:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(number, buffers, *others)
    os.preadv = read
"""


def test_worker_errors_are_ours(tmp_path: Path) -> None:
    """A file that only a worker finds unreadable is told as without Spark, with file and offset."""
    store, output, modules = tmp_path / "store", tmp_path / "out", tmp_path / "modules"
    LogBuilder(1 << 14).add_all({"queue_offset": number} for number in range(400)).write(store)
    last = max((store / "commitlog").iterdir())
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(f"BAD = {str(last)!r}\n{BAD_DISK}")
    process = spawn("export", store, "--output", output, "--master", "local[1]",
                    env=environment(PYTHONPATH=str(modules)))  # fmt: skip
    status, _, err = finished(process)
    assert status == Exit.FAILED
    assert err.splitlines()[0].startswith(f"rmqtool: {last} at offset 0: ")
    assert err.splitlines()[0].endswith("cannot read: input/output error")
    assert not output.exists()
