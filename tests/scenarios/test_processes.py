"""The program as a process: signals, pipes, a full disk, a closed output."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.store.lock import lock_holder
from tests.building import LogBuilder
from tests.commands.running import (
    MAX_SECONDS,
    ROOT,
    check_json,
    environment,
    finish,
    spawn,
    wait_until_it_reads,
)
from tests.copies import copied
from tests.unchanged import unchanged

pytestmark = pytest.mark.slow

BIG = 40_000
RUN = "from rmqtool.__main__ import main\nmain()\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several MiB, so that a listing fills every buffer on its way."""
    log = LogBuilder(file_size=1 << 20)
    return log.add_all([{"body": bytes(BIG)}] * 120).write(tmp_path_factory.mktemp("processes") / "store")


@pytest.fixture(autouse=True)
def _unchanged(store: Path) -> object:
    with unchanged(store):
        yield


def test_an_interrupt_while_modules_load() -> None:
    """Ctrl-C in the first moments ends it as quietly as later."""
    interrupting = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from rmqtool.__main__ import main\n"
        "main()"
    )
    process = subprocess.run([sys.executable, "-c", interrupting], cwd=ROOT, capture_output=True, check=False)
    assert (process.returncode, process.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_fault_of_our_own_is_no_answer(store: Path, options: list[str]) -> None:
    """Python's own exit status for it would be 1, which means findings, or that nothing was found."""
    broken = (
        "import sys, rmqtool.store.store\n"
        "from rmqtool.__main__ import main\n"
        "rmqtool.store.store.Store.commit_log = lambda *_: {}['no such']\n"
        "main()"
    )
    command = [sys.executable, "-c", broken, "inspect", str(store), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.FAILED
    assert "Traceback" in done.stderr
    if options:
        check_json(done.stdout)
        assert "KeyError" in json.loads(done.stdout)["error"]["message"]
    else:
        assert (done.stdout, "KeyError" in done.stderr.splitlines()[-2]) == ("", True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("arguments", [["{}", "--scan"], ["{}/commitlog", "--json"]])
def test_signals_end_it(store: Path, arguments: list[str], number: signal.Signals, status: int) -> None:
    """A scan or a listing ends with its own status and without a word about it, long before a block is read."""
    process = spawn("inspect", *(argument.format(store) for argument in arguments), "--limit-rate", "4K")
    wait_until_it_reads(process, store / "commitlog")
    process.send_signal(number)
    found = finish(process)
    assert (found.status, found.err) == (status, "")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_terminal_closes(store: Path, jobs: str) -> None:
    """The kernel tells all processes of the terminal; none stays, and what cannot be said any more is no error."""
    ours, theirs = pty.openpty()
    arguments: list[str | Path] = ["rebuild-cq", store, "--dry-run", "--limit-rate", "64K", "--jobs", jobs]
    process = spawn(*arguments, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=lambda: become_leader(theirs))
    os.close(theirs)
    wait_until_it_reads(process, store / "commitlog")
    os.close(ours)
    assert process.wait(MAX_SECONDS) == 129
    assert not group_members(process.pid)


def become_leader(terminal: int) -> None:
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def group_members(group: int) -> list[int]:
    return [number for number in map(int, filter(str.isdigit, os.listdir("/proc"))) if group_of(number) == group]


def group_of(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return None


def test_who_wants_it_to_go_on(store: Path) -> None:
    """Under nohup it does."""
    process = spawn("inspect", store, "--scan", "--limit-rate", "3M", preexec_fn=ignore_hangup)
    wait_until_it_reads(process, store / "commitlog")
    process.send_signal(signal.SIGHUP)
    assert finish(process).status == Exit.OK


def ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


MOMENTS = {
    "while the interpreter ends": (
        "import threading\nthreading._register_atexit(lambda: os.kill(os.getpid(), signal.{name}))\n"
    ),
    "while something is cleared away": (
        "import rmqtool.inspect.overview as overview\n"
        "class Cleared:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.{name}); time.sleep(0)\n"
        "def overview_of(*_):\n"
        "    Cleared()\n"
        "    time.sleep(60)\n"
        "overview.overview_of = overview_of\n"
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_between_two_commands_of_python(store: Path, moment: str, name: str) -> None:
    """Python drops an interrupt in these moments with a message; here it counts, or comes too late to matter."""
    code = "import os, signal, sys, time\n" + MOMENTS[moment].format(name=name) + RUN
    command = [sys.executable, "-c", code, "inspect", str(store), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=MAX_SECONDS)
    assert done.stderr == ""
    if moment == "while the interpreter ends":
        assert (done.returncode, done.stdout[:1]) == (Exit.OK, "{")
    else:
        assert done.returncode == {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}[name]


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    """The first line is there before the rest is read, and when the reader goes the listing ends and says nothing."""
    store = LogBuilder(file_size=1 << 16).add_all([{"body": bytes(BIG)}] * 120).write(tmp_path / "store")
    process = spawn("inspect", store / "commitlog", "--json", "--limit-rate", "64K")  # all of it takes two minutes
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    found = finish(process)
    assert line.startswith(b'{"kind":"message"')
    assert (found.status, found.err) == (Exit.OK, "")


@pytest.mark.parametrize("options", [["--json"], pytest.param(["--body-format", "json"], marks=pytest.mark.rare)])
def test_a_signal_while_nobody_reads(tmp_path: Path, options: list[str]) -> None:
    """It interrupts a write, which goes on after it, also where PYTHONUNBUFFERED has Python write without a buffer."""
    outputs, store = [], LogBuilder(file_size=1 << 18).add_all([{"body": bytes(BIG)}] * 10).write(tmp_path / "store")
    for unbuffered in ("", "1"):
        process = spawn("inspect", store / "commitlog", *options, env=environment(PYTHONUNBUFFERED=unbuffered))
        assert process.stdout is not None
        room, deadline = fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ), time.monotonic() + MAX_SECONDS
        while struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, bytes(4)))[0] < room:
            assert time.monotonic() < deadline, "the pipe does not become full"
            time.sleep(0.01)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)  # or the write might go on before it is interrupted
        outputs.append(finish(process).out)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 10 * BIG


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "line", ["--help", "inspect {}", "inspect {} --json", "inspect {}/commitlog", "inspect / --json"]
)
def test_a_reader_that_is_gone(store: Path, line: str) -> None:
    """Where nobody reads any more, nothing is said, and the status is 0."""
    read, write = os.pipe()
    os.close(read)
    process = spawn(*line.format(store).split(), stdout=write)
    os.close(write)
    found = finish(process)
    assert "Traceback" not in found.err
    assert "Exception" not in found.err
    assert found.status == Exit.OK


@pytest.mark.one_in(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("line", ["--version", "inspect {}", "inspect {} --json", "inspect {}/commitlog", "--json no"])
def test_a_full_disk(store: Path, line: str) -> None:
    """Output that cannot be written gives 4 and one line that says why."""
    with Path("/dev/full").open("wb") as full:
        found = finish(spawn(*line.format(store).split(), stdout=full, env=environment(RMQTOOL_QUIET="1")))
    assert found.status == Exit.FAILED
    assert found.err == "rmqtool: standard output cannot be written: no space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", [(), pytest.param(("--json",), marks=pytest.mark.rare)])
def test_what_is_done_is_said_where_output_cannot_be_written(
    store: Path, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """A repair, an undo, an export and a salvage have done their work; each names it."""
    root = copied(store, tmp_path / "copy")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=6000000\nmaxHashSlotNum=50\nmaxIndexNum=1000\n")
    commands: tuple[tuple[list[str | Path], str], ...] = (
        (["rebuild-cq", root, "--yes", "--broker-conf", conf], "is already written: the store is as planned"),
        (["undo", root, "--yes"], "is put back"),
        (["export", root, "-o", tmp_path / "out", "--engine", "local"], "out is complete"),
        (["salvage", root, "-o", tmp_path / "new", "--broker-conf", conf], "new is complete"),
    )
    for words, done in commands:
        with Path("/dev/full").open("wb") as full:
            found = finish(spawn(*words, *form, stdout=full, env=environment()))
        assert (found.status, done in found.err) == (Exit.FAILED, True), (words, found.err)


def test_a_closed_output(store: Path) -> None:
    """Without a standard output it exits with 4 and says so."""
    command = f'"{sys.executable}" -m rmqtool inspect "$0" >&-'
    done = subprocess.run(["sh", "-c", command, store], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == Exit.FAILED
    assert done.stderr == b"rmqtool: standard output is closed\n"


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.rare)])
def test_output_is_utf_8_everywhere(tmp_path: Path, encoding: str) -> None:
    """Names are UTF-8 whatever the locale says, and what is no UTF-8 in a file name is escaped."""
    store = tmp_path / "store"
    for name in (b"\xe8\xae\xa2\xe5\x8d\x95", b"\xff\xfe"):
        (store / "consumequeue" / os.fsdecode(name) / "0").mkdir(parents=True)
    found = finish(spawn("inspect", store, "-q", env=environment(PYTHONIOENCODING=encoding)))
    assert (found.status, found.err) == (Exit.OK, "")
    assert "订单 " in found.out
    assert "\\udcff\\udcfe" in found.out


def test_completion() -> None:
    """A shell gets its script, and the commands that fit."""
    script = finish(spawn(env=environment(_RMQTOOL_COMPLETE="bash_source"), cwd=ROOT))
    assert "complete " in script.out
    asked = {"_RMQTOOL_COMPLETE": "bash_complete", "COMP_WORDS": "rmqtool ins", "COMP_CWORD": "1"}
    assert finish(spawn(env=environment(**asked))).out == "plain,inspect\n"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_rebuild_that_is_ended_says_what_it_leaves(
    store: Path, tmp_path: Path, number: signal.Signals, status: int, jobs: str
) -> None:
    """While the log is read nothing is written yet."""
    store = copied(store, tmp_path / "store")
    process = spawn("rebuild-cq", store, "--yes", "--limit-rate", "64K", "--jobs", jobs)
    deadline = time.monotonic() + MAX_SECONDS
    while lock_holder(store) is None:  # it looks at the log before it holds the store, too
        assert time.monotonic() < deadline, "it does not hold the store"
        time.sleep(0.01)
    wait_until_it_reads(process, store / "commitlog")
    process.send_signal(number)
    found = finish(process)
    assert (found.status, found.out) == (status, "")
    assert found.err == "interrupted: the store is as it was\n"
