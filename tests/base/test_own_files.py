"""Files and directories of one process: whole or not there, and removed when a killed process has left them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from rmqtool.base import new_files
from rmqtool.base.new_files import own_directory, whole_file
from tests.rooms import ROOT

PREFIX = "rmqtool-test-"
_HOLDING = {
    "directory": f"own_directory({PREFIX!r})",
    "file": "whole_file(pathlib.Path(sys.argv[1]))",
}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(params=sorted(_HOLDING))
def holder(request: pytest.FixtureRequest, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has such a directory or file."""
    program = f"""
import pathlib, sys
from rmqtool.base.new_files import own_directory, whole_file
with {_HOLDING[request.param]}:
    print("there", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, temporary / "report.html"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process
        process.kill()


def _again(temporary: Path) -> None:
    """Make both once more; they leave nothing themselves."""
    with own_directory(PREFIX):
        pass
    with whole_file(temporary / "report.html") as file:
        file.write(b"whole")
    (temporary / "report.html").unlink()


def test_what_a_living_process_has_stays(holder: subprocess.Popen[str], temporary: Path) -> None:
    (left,) = temporary.iterdir()
    _again(temporary)
    assert [*temporary.iterdir()] == [left]


def test_what_a_killed_process_has_left_goes(holder: subprocess.Popen[str], temporary: Path) -> None:
    (left,) = temporary.iterdir()
    if left.is_dir():
        (left / "CURRENT").symlink_to(__file__)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert left.exists()
    _again(temporary)
    assert [*temporary.iterdir()] == []
    assert Path(__file__).exists()


def test_what_is_not_ours_stays(temporary: Path) -> None:
    """Other names, links, and what belongs to another user."""
    for name in (f"{PREFIX}short", f"{PREFIX}too-long-a-name", ".report.html.12345.partial", "report.html.1234abcd"):
        (temporary / name).mkdir()
    (temporary / f"{PREFIX}abcdefgh").symlink_to(temporary)
    (temporary / ".report.html.0123abcd.rmqtool-new").symlink_to(temporary)
    before = sorted(temporary.iterdir())
    _again(temporary)
    assert sorted(temporary.iterdir()) == before


def test_of_another_user(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary / f"{PREFIX}abcdefgh").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    _again(temporary)
    assert (temporary / f"{PREFIX}abcdefgh").is_dir()


def test_a_file_is_there_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"before")
    with suppress(KeyboardInterrupt), whole_file(path) as file:
        file.write(b"a part")
        file.flush()
        raise KeyboardInterrupt
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"report.html": b"before"}
    with whole_file(path, 0o600) as file:
        file.write(b"all")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"report.html": b"all"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_taken_for_left_before_it_is_locked(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process comes between the making and the lock: it is made again."""
    locks = iter([True])
    flock = fcntl.flock

    def removed_first(descriptor: int, operation: int) -> None:
        if next(locks, False):
            Path(f"/proc/self/fd/{descriptor}").resolve().rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with own_directory(PREFIX) as path:
        assert [str(each) for each in temporary.iterdir()] == [path]


@pytest.mark.parametrize("kind", sorted(_HOLDING))
def test_a_signal_while_it_is_made(temporary: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """It is raised when what was made can be removed."""

    def interrupted(descriptor: int, operation: int) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(fcntl, "flock", interrupted)
    made: AbstractContextManager[object] = own_directory(PREFIX)
    if kind == "file":
        made = whole_file(temporary / "report.html")
    with pytest.raises(KeyboardInterrupt), made:
        raise AssertionError
    assert [*temporary.iterdir()] == []


def test_without_locks(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is removed, for somebody may use it."""

    def no_lock(descriptor: int, operation: int) -> None:
        raise OSError(os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", no_lock)
    (temporary / f"{PREFIX}abcdefgh").mkdir()
    _again(temporary)
    assert [each.name for each in temporary.iterdir()] == [f"{PREFIX}abcdefgh"]


def test_taken_for_left_before_it_is_opened(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another process, between its making and its opening: another one is made."""
    made: list[str] = []

    def make(**words: str | None) -> str:
        made.append(tempfile.mkdtemp(**words))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(new_files, "mkdtemp", make)
    with own_directory(PREFIX) as directory:
        assert directory == made[1]
        assert os.path.isdir(directory)
    assert list(temporary.iterdir()) == []
