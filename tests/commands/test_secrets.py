"""Users of a broker and their passwords, which are in clear in RocksDB: no command shows or packs them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from rmqtool.rebuild.staged import write_database
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied

PASSWORD = "hunter2-and-more"
USER = b'{"password":"%s","userStatus":1,"userType":1,"username":"admin"}' % PASSWORD.encode()
NAME = "more/5.5.0-rocksdb"


@pytest.fixture
def store(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store with users and rights where `authConfigPath` has them, in tables and in a write-ahead log."""
    root = copied(unpacked(NAME), tmp_path / "store")
    write_users(root / "config" / "auth" / "users")
    return root


def write_users(directory: Path) -> None:
    directory.mkdir(parents=True)
    write_database(directory, {"default": {b"admin": USER, b"bad": USER[:-2]}})
    (directory / "000099.log").write_bytes(USER)


def output_of(*words: str | Path) -> str:
    done = rmqtool(*words)
    return done.out + done.err


@pytest.mark.parametrize("place", ["", "config", "config/auth", "config/auth/users"])
@pytest.mark.parametrize("options", [(), ("--json",), ("-v",), ("--hex",), ("--format", "csv")])
def test_inspect(store: Path, place: str, options: tuple[str, ...]) -> None:
    """Whatever of the path is given, and however it is shown."""
    shown = output_of("inspect", store / place, *options)
    assert PASSWORD not in shown
    assert PASSWORD.encode().hex() not in shown
    if place.endswith("users") and not options:
        assert "admin" in shown


def test_users_by_name(store: Path) -> None:
    """Given their directory, who they are, and nothing of a row that cannot be decoded, or of rights."""
    shown = rmqtool("inspect", store / "config" / "auth" / "users", "--json").lines
    assert [(line["key"]["name"], line["value"]) for line in shown] == [
        ("admin", {"userType": "Super", "userStatus": "enable", "password": "(not shown)"}),
        ("bad", {"value": "(not shown)"}),
    ]
    rights = store / "config" / "auth" / "acls"
    rights.mkdir()
    write_database(rights, {"default": {b"User:admin": b'{"subject":"User:admin","userType":"hunter2"}'}})
    [line] = rmqtool("inspect", rights, "--json").lines
    assert line["value"] == {"value": "(not shown)"}


def test_files_of_the_database(store: Path) -> None:
    """A table and a log alone are no listing."""
    for path in (store / "config" / "auth" / "users").iterdir():
        for options in ((), ("--hex",)):
            shown = output_of("inspect", path, *options)
            assert PASSWORD not in shown
            assert PASSWORD.encode().hex() not in shown.replace(" ", "")


def test_a_copy_under_another_name(tmp_path: Path) -> None:
    """The rows show what it is."""
    write_users(tmp_path / "copy")
    for options in ((), ("--json",)):
        shown = output_of("inspect", tmp_path / "copy", *options)
        assert PASSWORD not in shown
        assert PASSWORD.encode().hex() not in shown


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "pending", "report", "diff", "export", "bundle", "clean"])
def test_other_commands(store: Path, tmp_path: Path, command: str) -> None:
    """None of them reads it, or packs it."""
    more: dict[str, list[str | Path]] = {
        "report": ["-o", tmp_path / "page.html"],
        "bundle": ["-o", tmp_path / "bundle.tar.gz"],
        "diff": [store],
        "export": ["--output", tmp_path / "exported"],
        "clean": ["--dry-run"],
    }
    shown = output_of(command, store, *more.get(command, []))
    assert PASSWORD not in shown
    for path in tmp_path.rglob("*"):
        if path.is_file() and store not in path.parents:
            data = path.read_bytes()
            if path.suffix == ".gz":
                with tarfile.open(path) as archive:
                    members = [member for member in archive if member.isfile()]
                    data = b"".join(file.read() for each in members if (file := archive.extractfile(each)))
            assert PASSWORD.encode() not in data
