"""What may be wrong on another machine: no bucket, nothing there, no permission, a file that goes or changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.filesystems import file_system
from rmqtool.base.remote_path import RemoteFile
from tests.commands.running import Result, rmqtool
from tests.other_machines.conftest import Place, remote
from tests.other_machines.servers import s3_uri

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "store"
LOG = "commitlog/00000000000000000000"
COMMANDS = (("inspect",), ("verify",), ("query", "--key", "ORD-1010"), ("export", "--engine", "local"))
PLACES = [pytest.param(command, id=command[0]) for command in COMMANDS]


def run(command: tuple[str, ...], uri: str, tmp_path: Path) -> Result:
    return rmqtool(command[0], uri, *command[1:], *(("-o", tmp_path / "out") if command[0] == "export" else ()))


@pytest.mark.parametrize("command", PLACES)
def test_no_bucket(s3_place: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """It is named, not the whole path."""
    uri = s3_uri(s3_place, "store").replace("@bucket/", "@buckett/")
    done = run(command, uri, tmp_path)
    assert done.status == Exit.FAILED
    assert done.err == "rmqtool: s3://buckett: no such bucket\n  check its name and the endpoint\n"


@pytest.mark.parametrize("command", PLACES)
def test_nothing_there(s3: Place, command: tuple[str, ...], tmp_path: Path) -> None:
    """No key begins so; or there is a directory without anything."""
    done = run(command, s3.uri("nothing/store"), tmp_path)
    assert (done.status, done.err) == (Exit.FAILED, "rmqtool: s3://bucket/nothing/store: no such file or directory\n")
    path = remote(s3.uri("empty/store"))
    system, prefix = file_system(path.scheme, path.authority)
    system.create_dir(f"{prefix}{path.key}", recursive=True)
    done = run(command, s3.uri("empty/store"), tmp_path)
    assert done.status == Exit.NOT_A_STORE
    assert "rmqtool: s3://bucket/empty/store: not a RocketMQ store: neither commitlog/ nor consumequeue/" in done.err


@pytest.mark.parametrize("command", PLACES)
def test_no_permission(denying: tuple[str, list[str]], command: tuple[str, ...], tmp_path: Path) -> None:
    """It is said at once, without asking again and again, and without the secret."""
    place, asked = denying
    done = run(command, s3_uri(place, "store"), tmp_path)
    assert done.status == Exit.FAILED
    assert done.err.startswith("rmqtool: s3://bucket/store: cannot read: ")
    assert "ACCESS_DENIED" in done.err
    assert done.err.endswith("\n  check the credentials and their permission to read\n")
    assert "secret" not in done.err
    assert len(asked) <= 4


def vanish(system: Any, path: str) -> None:
    system.delete_file(path)


def cut(system: Any, path: str) -> None:
    with system.open_input_stream(path) as file:
        data = file.read()
    with system.open_output_stream(path) as file:
        file.write(data[: len(data) // 3])


@pytest.fixture(scope="module")
def example(s3: Place) -> str:
    """The URI of the example store; who changes a file there puts it back."""
    return s3.put(EXAMPLE, "changes/example")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("change", [vanish, cut])
@pytest.mark.parametrize(
    ("command", "victim"),
    [
        *((command, LOG) for command in COMMANDS),
        *((command, "consumequeue/orders/0/00000000000000000000") for command in COMMANDS[:2]),
        *((command, "config/topics.json") for command in COMMANDS[:2]),
        (("verify",), "index/"),
        (("query", "--key", "ORD-1010"), "index/"),
        (("inspect",), "index/"),
    ],
)
def test_a_file_that_goes_or_is_cut(
    example: str,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    victim: str,
    change: Callable[[Any, str], None],
    tmp_path: Path,
) -> None:
    """Between listing and reading: the run ends, and calls nothing damaged; the next begins with what is there."""
    key, (system, prefix) = remote(example).key, file_system("s3", remote(example).authority)
    done: list[str] = []
    original = RemoteFile._open

    def open_changed(file: RemoteFile) -> Any:
        if not done and file.path.key.startswith(f"{key}/{victim}"):
            done.append(file.path.key)
            change(system, f"{prefix}{file.path.key}")
        return original(file)

    monkeypatch.setattr(RemoteFile, "_open", open_changed)
    found = run(command, example, tmp_path)
    assert done
    again = run(command, example, tmp_path)
    with system.open_output_stream(f"{prefix}{done[0]}") as file:
        file.write((EXAMPLE / done[0].removeprefix(f"{key}/")).read_bytes())
    assert (found.status, found.out) == (Exit.FAILED, "")
    assert found.err == (
        f"rmqtool: s3://bucket/{done[0]}: the file was replaced or removed while it was read\n"
        "  run it again: it starts with the present files\n"
    )
    assert "replaced" not in again.err
