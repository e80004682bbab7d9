"""Run command lines and check what every one of them owes: time, schema, an untouched store."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
import jsonschema_rs
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from rmqtool.cli import cli, run
from tests.findings.made import check_sentences
from tests.unchanged import unchanged

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schema"
MAX_SECONDS = 240
"""What takes longer hangs: no command line of a test takes more than a few seconds, but others use the machine too."""
SAMPLE = 20
_SCHEMA_NAMES = {"inspect": "inspect-store", "rmqtool": "inspect-store"}  # others are named as their command
KILLED_AT_A_DELETION = """
import os, sys
from rmqtool.transaction import system
unlink, left = system.System.unlink, [int(sys.argv[1])]
def killed(self, path):
    if ".rmqtool" not in str(path):
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
    unlink(self, path)
system.System.unlink = killed
from rmqtool.cli import run
sys.exit(run(sys.argv[2:]))
"""
"""The program; it ends at the deletion of the number that stands before its arguments, as a kill would end it."""
_KILLED_AT_A_CALL = """
import os, sys
from rmqtool.base import new_files
from rmqtool.cli import run
from rmqtool.transaction import system

def dies_at_a_call(left):
    def killed(call):
        def counted(*arguments, **named):
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return call(*arguments, **named)
        return counted
    os.pwrite, os.ftruncate, os.utime = killed(os.pwrite), killed(os.ftruncate), killed(os.utime)
    for name in ("make_directory", "rename", "sync", "unlink", "remove_directory", "sync_all"):
        setattr(system.System, name, killed(getattr(system.System, name)))

answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
run([*sys.argv[1:], "--dry-run"])  # loads what the command needs
for line in sys.stdin:
    process = os.fork()
    if not process:
        dies_at_a_call(int(line))
        os._exit(run(sys.argv[1:]))
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers, flush=True)
"""


class HangError(Exception):
    """A command line took too long."""


@dataclass(frozen=True)
class Result:
    """What a command line left: exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document, which is valid."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines, which are valid."""
        return [json.loads(line) for line in self.out.splitlines()]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]


def rmqtool(*arguments: str | Path, every: int | None = None) -> Result:
    """Run a command line in this process; what it prints as JSON must be valid, see `check_json`."""
    data = io.BytesIO()
    out, err = io.TextIOWrapper(data, encoding="utf-8", newline=""), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), _alarm():
        status = run([str(argument) for argument in arguments])
    out.flush()
    result = Result(status, data.getvalue().decode(), err.getvalue())
    if "--json" in arguments and not {"--columns", "--int64", "--redact"} & set(arguments):
        check_json(result.out, every, "query" if "query" in arguments else "listing")
    return result


def command_named(name: str) -> click.Command:
    """A command of the program, loaded."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def inspect(store: Path, *options: str | Path, part: str = "", every: int | None = None) -> Result:
    """Run inspect on a store or a part of it, and assert that the store is as before."""
    with unchanged(store):
        return rmqtool("inspect", store / part, *options, every=every)


def query(store: Path, *options: str | Path, every: int | None = None) -> Result:
    """Run query on a store, and assert that the store is as before."""
    with unchanged(store):
        return rmqtool("query", store, *options, every=every)


def listing(store: Path, *options: str | Path, part: str = "commitlog", every: int | None = None) -> Result:
    """Run inspect on a commit log, as JSON lines."""
    return inspect(store, "--json", *options, part=part, every=every)


def spawn(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start the program in a process of its own, standard output and error in pipes unless told otherwise."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "rmqtool", *map(str, arguments)]
    return subprocess.Popen(command, **{"cwd": ROOT, "stdin": subprocess.DEVNULL, **pipes, **options})


@contextmanager
def killed_at_a_call(*arguments: str | Path) -> Iterator[Callable[[int], int]]:
    """Give a function that runs the program and ends it at the write, rename or removal of a number, as a kill would.

    It returns the exit status, 9 for one that was ended. Each run is a process of its own, a copy of one that has
    loaded all modules.
    """
    command = [sys.executable, "-c", _KILLED_AT_A_CALL, *map(str, arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdin
        assert process.stdout
        ask, answers = process.stdin, process.stdout

        def run_until(number: int) -> int:
            ask.write(f"{number}\n")
            ask.flush()
            return int(answers.readline())

        yield run_until


def wait_until_it_reads(process: subprocess.Popen[bytes], directory: Path, jobs: int = 1) -> None:
    """Return when a process of its own has opened a file in `directory`; with several `jobs`, so many of its own."""
    deadline = time.monotonic() + MAX_SECONDS
    while sum(_reads(number, directory) for number in _with_children(process.pid, jobs)) < jobs:
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, f"it reads nothing in {directory}"
        time.sleep(0.01)


def _with_children(process: int, jobs: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text() if jobs > 1 else ""
    return [process, *map(int, children.split())]


def _reads(process: int, directory: Path) -> bool:
    return any(opened.is_relative_to(directory) for opened in _open_files(process))


def _open_files(process: int) -> Iterator[Path]:
    """The files that a process has open; it may close them, or end, while we look."""
    with suppress(FileNotFoundError):
        for link in list(Path(f"/proc/{process}/fd").iterdir()):
            with suppress(FileNotFoundError):
                yield Path(os.readlink(link))


def finish(process: subprocess.Popen[bytes]) -> Result:
    """Wait for a process to end; one that does not is killed."""
    try:
        out, err = process.communicate(timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Result(process.returncode, (out or b"").decode(), (err or b"").decode())


def answered(answer: bytes, *arguments: str | Path) -> Result:
    """Answer the question that the program asks at a terminal; Ctrl-C is sent as a signal."""
    ours, terminal = pty.openpty()
    process = spawn(*arguments, stdin=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    asked = b""
    while not asked.rstrip().endswith((b"[y/N]:", b"to agree:")):
        asked += os.read(ours, 1024)
    os.write(ours, answer)
    if answer == b"\x03":
        _press_ctrl_c(process)
    result = finish(process)
    with suppress(OSError):  # EIO: the other side is closed
        while part := os.read(ours, 1024):
            asked += part
    os.close(ours)
    return Result(result.status, result.out, asked.decode())


def _press_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """Until it ends: Python does not hear a signal that comes just before it begins to read."""
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
            return


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without settings for terminals, and with `variables`."""
    unwanted = ("NO_COLOR", "COLUMNS", "LINES", "TERM", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted and "RMQTOOL" not in name}
    return {**kept, "PAGER": "cat", **variables}


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of one schema in docs/schema."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    definitions = schema.pop("$defs")
    return Draft202012Validator({**_without_references(schema, definitions), "$defs": definitions})


def _without_references(schema: Any, definitions: dict[str, Any], within: tuple[str, ...] = ()) -> Any:
    """The same schema with definitions in place of references, which take half the time of a validation."""
    if isinstance(schema, list):
        return [_without_references(each, definitions, within) for each in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {key: _without_references(value, definitions, within) for key, value in schema.items() if key != "$ref"}
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if not name or name in within:
        return {**rest, "$ref": schema["$ref"]} if name else rest
    body = _without_references(definitions[name], definitions, (*within, name))
    return {**rest, "allOf": [body]} if rest else body


def check_json(text: str, every: int | None = None, lines_schema: str = "listing") -> None:
    """Assert that a document, or each line of a listing, is what the schema of its command says.

    Of messages one of `every` is looked at, by default about twenty of them.
    """
    if text.startswith("{\n"):
        document = json.loads(text)
        name = _SCHEMA_NAMES.get(document["command"], document["command"])
        if not _fast_validator(name).is_valid(document):
            validator(name).validate(document)
            pytest.fail(f"one of two validators refuses a document of {name}")
        check_sentences(document)
        return
    lines = text.splitlines()
    step = every or 1 + len(lines) // SAMPLE
    for number, line in enumerate(lines):
        found = json.loads(line)
        is_checked = number % step == 0 or found["kind"] != "message"
        if is_checked and not _fast_validator(lines_schema, found["kind"]).is_valid(found):
            _line_validator(lines_schema, found["kind"]).validate(found)
            pytest.fail(f"one of two validators refuses a line of {lines_schema}")


@cache
def _fast_validator(name: str, kind: str = "") -> jsonschema_rs.Draft202012Validator:
    """One that is compiled, and takes a hundredth of the time; what it refuses, the other one says why."""
    schema = _line_validator(name, kind).schema if kind else validator(name).schema
    return jsonschema_rs.Draft202012Validator(schema)


@cache
def _line_validator(name: str, kind: str) -> Draft202012Validator:
    """That of lines of one kind: without the rules for all other kinds, which take most of the time."""
    schema = validator(name).schema
    rules = [rule for rule in schema["allOf"] if rule["if"]["properties"]["kind"]["const"] == kind]
    return Draft202012Validator({**schema, "allOf": rules})


def errors_of(name: str, value: object) -> Sequence[str]:
    """What is wrong with `value` by one of the schemas."""
    return [error.message for error in validator(name).iter_errors(value)]


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise HangError(f"longer than {MAX_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
