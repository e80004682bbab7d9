"""Machines that do not answer, refuse, or have no such bucket: a command ends in time with one sentence."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqtool
from rmqtool.base import filesystems
from rmqtool.base.errors import Exit, UnreachableError
from tests.commands.running import MAX_SECONDS
from tests.commands.running import rmqtool as run
from tests.other_machines.azure import azure_uri
from tests.other_machines.servers import google_uri, s3_uri

COMMANDS = (("inspect",), ("verify",), ("query", "--key", "ORD-1"), ("export", "--engine", "local"))
Uri = Callable[[str], str]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def silent(listener: socket.socket) -> str:
    """Its place."""
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is enough after a moment, and so are tries."""
    for name in ("FIRST_ANSWER", "_SILENCE_SECONDS", "_RETRY_SECONDS"):
        monkeypatch.setattr(filesystems, name, 0.3)


def uri_of_s3(place: str) -> str:
    return s3_uri(place, "store")


def uri_of_google(place: str) -> str:
    return google_uri(place, "store").partition("&retry")[0]


def uri_of_azure(place: str) -> str:
    return azure_uri(place, "store")


def uri_of_hdfs(place: str) -> str:
    pytest.importorskip("hdfs_native")
    return f"hdfs://{place}/store"


KINDS = [uri_of_s3, uri_of_google, uri_of_azure, uri_of_hdfs]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("uri", KINDS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_answer(silent: str, uri: Uri, command: tuple[str, ...], tmp_path: Path) -> None:
    """The sentence names the place, and what to check."""
    more = ("-o", tmp_path / "out") if command[0] == "export" else ()
    done = run(command[0], uri(silent), *command[1:], *more)
    assert done.status == Exit.FAILED
    sentence, hint = done.err.splitlines()
    assert sentence.startswith(f"rmqtool: {uri(silent).partition(':')[0]}://")
    assert "cannot connect: " in sentence
    assert hint.startswith("  check the network, ")
    assert "key:secret" not in done.err
    assert "sig=" not in done.err


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("uri", KINDS)
def test_refused(uri: Uri) -> None:
    """Nobody listens on port 1."""
    done = run("inspect", uri("127.0.0.1:1"))
    assert done.status == Exit.FAILED
    assert "cannot connect: " in done.err
    assert "\n  check the network, " in done.err


@pytest.mark.usefixtures("at_once")
def test_the_library(silent: str) -> None:
    """It raises the same."""
    with pytest.raises(UnreachableError, match="gs://bucket: cannot connect"):
        rmqtool.open(uri_of_google(silent))


@pytest.mark.slow
@pytest.mark.parametrize("uri", [uri_of_s3, uri_of_google, uri_of_hdfs])
def test_ctrl_c(listener: socket.socket, silent: str, uri: Uri) -> None:
    """It ends the process at once, whatever the library waits for."""
    command = [sys.executable, "-m", "rmqtool", "verify", uri(silent)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    with asked_by_library(listener):
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED
    assert time.monotonic() - begin < 10
    assert told == b""


def asked_by_library(listener: socket.socket) -> socket.socket:
    """The connection over which the first question has come; before it, ours may try whether there is anybody."""
    listener.settimeout(MAX_SECONDS)
    while True:
        connection, _ = listener.accept()
        connection.settimeout(MAX_SECONDS)
        if connection.recv(1):
            return connection
        connection.close()


def test_limits_that_the_uri_sets(silent: str) -> None:
    """They stay."""
    from pyarrow.fs import FileSystem

    system, _ = FileSystem.from_uri(google_uri(silent, "store"))
    assert filesystems._with_limits(system, "gs").__reduce__() == system.__reduce__()
    system, _ = FileSystem.from_uri(uri_of_google(silent))
    _, (options,) = filesystems._with_limits(system, "gs").__reduce__()
    assert options["retry_time_limit"].total_seconds() == filesystems._RETRY_SECONDS
