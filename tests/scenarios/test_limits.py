"""Little memory, few files: everything works from 256 MiB of address space and 64 descriptors; below, a sentence."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.file_name import file_name
from tests.building import START_TIME, write_sparse
from tests.commands.running import ROOT, Result, environment, finish, rmqtool, spawn
from tests.deriving import derive
from tests.golden import stores
from tests.unchanged import unchanged
from tests.verify.small_store import StoreBuilder

pytestmark = pytest.mark.slow

MEMORY = 256 << 20
FILES = 64
QUEUES = 90  # more than there are descriptors
READING = ("verify", "verify -j 3", "rebuild-cq --dry-run", "rebuild-cq --dry-run -j 3", "rebuild-index --dry-run",
           "clean --dry-run --now 1795346684051", "inspect --scan")  # fmt: skip


def limits(memory: int | None = MEMORY, files: int = FILES) -> Callable[[], None]:
    """What a process does to itself before it becomes the program."""

    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    return limit


def limited(*arguments: str | Path, memory: int | None = MEMORY, files: int = FILES) -> Result:
    """Run a command line in a process that has not more."""
    return finish(spawn(*arguments, preexec_fn=limits(memory, files), env=environment()))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log file of 1 GiB, as brokers make them, many queues, and an index file of the usual size.

    What was written of the log, zeros most of it, is half of what a process may take; after it is a hole.
    """
    builder = StoreBuilder(file_size=1 << 30)
    for number in range(2 * QUEUES):
        builder.put(
            f"topic-{number % QUEUES}", 0, store_timestamp=START_TIME + number, properties={"KEYS": f"k{number}"}
        )
    root = tmp_path_factory.mktemp("limits") / "large"
    written = bytes(builder.files[0]).ljust(MEMORY // 2, b"\0")
    write_sparse(root / "commitlog" / file_name(0), {0: written}, builder.file_size)
    return derive(root)


@pytest.fixture(scope="module", params=["large", "5.3.3-clean"])
def store(request: pytest.FixtureRequest, large: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "large":
        return large
    return stores.unpack(request.param, tmp_path_factory.mktemp("golden"))


def answer(found: Result) -> Any:
    """What a command line has found out."""
    of_disk = ("disks", "forecast", "trigger")  # which others use meanwhile
    result = {name: value for name, value in found.document["result"].items() if name not in of_disk}
    return found.status, result, [finding["code"] for finding in found.document["findings"]]


@pytest.mark.one_in(9)
@pytest.mark.parametrize("line", READING)
def test_reading_needs_little(store: Path, line: str) -> None:
    """The answer is that of a process that has all it wants."""
    command, *options = line.split()
    with unchanged(store) if not store.name.startswith("large") else nullcontext():
        found = limited(command, store, *options, "--json")
        assert found.err == ""
        assert answer(found) == answer(rmqtool(command, store, *options, "--json"))


def test_a_query_needs_little(large: Path) -> None:
    found = limited("query", large, "--key", "k7", "--topic", "topic-7", "--json")
    assert (found.status, found.err) == (Exit.OK, "")
    assert found.lines[0]["topic"] == "topic-7"


def test_repairs_need_little(large: Path, tmp_path: Path) -> None:
    """Queues and index are made again, and taken back."""
    store = tmp_path / "store"
    subprocess.run(["cp", "-r", "--sparse=always", large, store], check=True)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    conf = tmp_path / "broker.conf"
    conf.touch()  # a broker with the default sizes
    for command in ("rebuild-cq", "rebuild-index"):
        found = limited(command, store, "--yes", "--json", "-j", "3", "--broker-conf", str(conf))
        assert (found.status, found.err) == (Exit.OK, "")
        assert found.document["result"]["state"] == "done"
    assert rmqtool("verify", store, "--json").document["result"]["verdict"] == "clean"
    for _ in range(2):
        assert limited("undo", store, "--yes").status == Exit.OK
    assert not (store / "consumequeue").exists()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [100, 150, 200, 255])
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_too_little_memory_is_said(large: Path, memory: int, command: str) -> None:
    """No library ends the process with a status of its own, and nobody sees a traceback."""
    found = limited(command, large, memory=memory << 20)
    assert (found.status, found.out) == (Exit.FAILED, "")
    assert found.err.splitlines()[0] == f"rmqtool: {memory} MiB of address space are too little: 256 MiB are needed"
    assert "ulimit -v" in found.err


def test_what_needs_no_memory_is_there(large: Path) -> None:
    assert limited("explain", "commitlog.body-crc", memory=100 << 20).status == Exit.OK
    assert limited("--version", memory=100 << 20).status == Exit.OK


def test_too_few_files_are_said(large: Path) -> None:
    found = limited("verify", large, "--json", memory=None, files=7)
    assert found.status == Exit.FAILED
    assert found.document["error"]["kind"] == "exhausted"
    assert found.document["error"]["message"] == "too many open files: the limit is 7"
    assert "ulimit -n" in found.document["error"]["hint"]


BREAKING = """
import sys
{patch}
from rmqtool.__main__ import main
main()
"""
IN_PARTS = """
import os
import rmqtool.verify.log_pass, rmqtool.rebuild.log_pass
ours = os.getpid()
def fails(*_):
    if {where}:
        {error}
    return kept(*_)
{target}, kept = fails, {target}
"""
TARGETS = {
    "verify": "rmqtool.verify.log_pass.PartCheck.do",
    "rebuild-cq": "rmqtool.rebuild.log_pass.RunReader.items",
}
ERRORS = {
    "raise MemoryError": "out of memory",
    "import pyarrow; raise pyarrow.ArrowMemoryError('malloc of size 8 failed')": "out of memory",
    'raise RuntimeError("can\'t start new thread")': "the system cannot start more threads",
    "raise ImportError('libx.so: failed to map segment from shared object')": "out of memory",
    "raise OSError(12, 'Cannot allocate memory')": "out of memory",
    "raise OSError(24, 'Too many open files')": "too many open files",
}


def run_broken(patch: str, *arguments: str | Path) -> Result:
    command = [sys.executable, "-c", BREAKING.format(patch=patch), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("command", TARGETS)
def test_what_gives_out_in_between_is_said(large: Path, command: str, error: str) -> None:
    patch = IN_PARTS.format(where="True", error=error, target=TARGETS[command])
    options = ["--dry-run"] if command != "verify" else []
    found = run_broken(patch, command, large, "--json", *options)
    assert (found.status, found.err) == (Exit.FAILED, "")
    assert found.document["error"]["kind"] == "exhausted"
    assert found.document["error"]["message"].startswith(ERRORS[error])
    assert "raise" in found.document["error"]["hint"] or "fewer" in found.document["error"]["hint"]


def test_what_gives_out_in_another_process_is_said(tmp_path: Path) -> None:
    """The process that helps has no memory; its parent says so."""
    builder = StoreBuilder(file_size=1 << 16)
    for number in range(400):
        builder.put("orders", 0, store_timestamp=START_TIME + number, body=bytes(2000))
    store = derive(builder.write(tmp_path / "store"))
    patch = IN_PARTS.format(where="os.getpid() != ours", error="raise MemoryError", target=TARGETS["verify"])
    small = "import rmqtool.verify.verification as verification\n"
    small += "import dataclasses\nkept_request = verification.VerifyRequest\n"
    small += "verification.VerifyRequest = lambda **given: kept_request(**{**given, 'part_size': 1 << 16})\n"
    wait = "import time, rmqtool.base.parallel as parallel\nkept_do_parts = parallel.do_parts\n"
    wait += "def slow(*given):\n    for step in kept_do_parts(*given):\n        time.sleep(1)\n        yield step\n"
    wait += "parallel.do_parts = slow\n"
    found = run_broken(patch + small + wait, "verify", store, "-j", "2", "--json")
    assert (found.status, found.err) == (Exit.FAILED, "")
    assert found.document["error"]["message"].startswith("out of memory")


@pytest.mark.parametrize("command", ["verify", "rebuild-cq"])
def test_no_more_processes(large: Path, command: str) -> None:
    """Where the system starts none, this one does all."""
    patch = "import os, errno\ndef fork():\n    raise BlockingIOError(errno.EAGAIN, 'no more')\nos.fork = fork"
    options = ["--dry-run"] if command != "verify" else []
    found = run_broken(patch, command, large, "--json", "-j", "4", *options)
    assert (found.status, found.err) == (Exit.OK, "")
    json.loads(found.out)


def test_a_usual_process_saves_nothing() -> None:
    """Where memory is not limited, libraries and blocks are as they are measured."""
    code = (
        "import os\n"
        "from rmqtool.base.limits import settle_memory\n"
        "settle_memory()\n"
        "from rmqtool.scan.block import block_size\n"
        "print(block_size() >> 10, os.environ.get('ARROW_DEFAULT_MEMORY_POOL'))"
    )
    for memory, expected in ((None, "4096 None"), (MEMORY, "1024 system")):
        command = [sys.executable, "-c", code]
        env = {**environment(), "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=env,
                              preexec_fn=limits(memory))  # fmt: skip
        assert (done.stdout.strip(), done.stderr) == (expected, "")
    assert os.environ.get("ARROW_DEFAULT_MEMORY_POOL") is None
