"""What goes wrong between machines: connections that are cut, files that are replaced, executors that die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.base import filesystems
from rmqtool.base.errors import ChangedError, Exit
from rmqtool.base.filesystems import file_system, patiently
from rmqtool.base.remote_path import RemoteFile
from rmqtool.export.options import ExportOptions
from rmqtool.export.output import Output
from rmqtool.export.plan import ExportPlan
from rmqtool.export.results import SplitResult
from rmqtool.export.run import run_export
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters
from rmqtool.store.message_reader import make_query
from rmqtool.store.store import open_stores
from tests.building import LogBuilder
from tests.commands.running import Result, rmqtool
from tests.export.exporting import rows_of, run_here
from tests.other_machines.conftest import Place, remote
from tests.other_machines.servers import Proxy, s3_uri

pytestmark = pytest.mark.slow

_LOG = 40
EXAMPLE = Path(__file__).parents[2] / "examples" / "store"
LOG = "commitlog/00000000000000000000"
COMMANDS = (("inspect",), ("verify",), ("query", "--key", "ORD-1010"), ("export", "--engine", "local"))


def test_a_connection_that_is_cut_costs_no_row(s3: Place, s3_place: str, tmp_path: Path) -> None:
    """In the midst of answers: the range is asked for again."""
    builder = LogBuilder(1 << 20).add_all([{"body": bytes([number]) * 5000} for number in range(_LOG)])
    s3.put(builder.write(tmp_path / "store"), "cut/store")
    with Proxy(s3_place, after=30_000, cuts=3) as proxy:
        uri = s3_uri(proxy.place, "cut/store")
        result = rmqtool("export", uri, "-o", tmp_path / "out", "--engine", "local")
        assert proxy.left < 3
    assert result.status == Exit.OK
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == builder.offsets


def test_a_server_that_is_gone_is_told(s3: Place, s3_place: str, tmp_path: Path) -> None:
    """After some tries; nothing is exported."""
    s3.put(LogBuilder(1 << 20).add_all([{"body": b"x" * 5000}] * _LOG).write(tmp_path / "store"), "gone/store")
    with Proxy(s3_place, after=30_000, cuts=10**6) as proxy:
        result = rmqtool("export", s3_uri(proxy.place, "gone/store"), "-o", tmp_path / "out", "--engine", "local")
    assert result.status == Exit.FAILED
    assert "cannot read" in result.err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked for again."""
    monkeypatch.setattr(patiently, "__defaults__", ((),))


def run(command: tuple[str, ...], uri: str, tmp_path: Path) -> Result:
    return rmqtool(command[0], uri, *command[1:], *(("-o", tmp_path / "out") if command[0] == "export" else ()))


@pytest.fixture(scope="module")
def example(s3: Place) -> str:
    """The URI of the example store, which no test changes."""
    return s3.put(EXAMPLE, "faults/example")


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("command", "victim"),
    [
        *((command, LOG) for command in COMMANDS),
        *((command, "consumequeue/orders/0/") for command in COMMANDS[:2]),
        *((command, "config/consumerOffset.json") for command in COMMANDS[:2]),
        *((command, "checkpoint") for command in COMMANDS[:2]),
        *((command, "index/") for command in COMMANDS[:3]),
    ],
)
def test_a_server_that_fails_ends_the_run(
    example: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], victim: str, tmp_path: Path
) -> None:
    """With the first file that it does not give: nothing is called damaged, and no further file is tried."""
    failed: list[str] = []
    original = RemoteFile._read_once

    def read(file: RemoteFile, position: int, size: int) -> bytes:
        if not file.path.key.startswith(f"{remote(example).key}/{victim}"):
            return original(file, position, size)
        failed.append(f"s3://bucket/{file.path.key} at offset {position}")
        raise OSError("AWS Error SLOW_DOWN")

    monkeypatch.setattr(RemoteFile, "_read_once", read)
    done = run(command, example, tmp_path)
    assert (done.status, done.out) == (Exit.FAILED, "")
    assert (
        done.err
        == f"rmqtool: {failed[0]}: cannot read: AWS Error SLOW_DOWN\n  run it again when that machine answers\n"
    )
    assert len(failed) == 1


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_goes_while_it_is_open(
    s3: Place, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], tmp_path: Path
) -> None:
    """That is said, not what the server says of the range."""
    uri = s3.put(EXAMPLE, f"{tmp_path.name}/store")
    path = remote(uri) / LOG
    system, prefix = file_system(path.scheme, path.authority)
    original = RemoteFile._read_once

    def read(file: RemoteFile, position: int, size: int) -> bytes:
        if file.path == path:
            system.delete_file(f"{prefix}{path.key}")
        return original(file, position, size)

    monkeypatch.setattr(RemoteFile, "_read_once", read)
    done = run(command, uri, tmp_path)
    assert (done.status, done.out) == (Exit.FAILED, "")
    assert done.err.startswith(f"rmqtool: {path}: the file was replaced or removed while it was read\n")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError("AWS Error SLOW_DOWN"), "run it again when that machine answers"),
        (PermissionError("AWS Error ACCESS_DENIED"), "check the credentials and their permission to read"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_not_listed(
    example: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], error: OSError, hint: str, tmp_path: Path
) -> None:
    """It is named, and so is the reason."""
    original = filesystems._listed

    def listed(scheme: str, authority: str, key: str, **options: Any) -> Any:
        if key.endswith("/consumequeue"):
            raise error
        return original(scheme, authority, key, **options)

    monkeypatch.setattr(filesystems, "_listed", listed)
    done = run(command, example, tmp_path)
    assert done.status == Exit.FAILED
    assert done.err.startswith("rmqtool: s3://bucket/")
    assert done.err.endswith(f": cannot read: {error}\n  {hint}\n")


def test_a_file_that_is_replaced_ends_the_run(place: Place, tmp_path: Path) -> None:
    """Between plan and reading; nothing is exported, and the next run takes what is there."""
    first = LogBuilder().add_all([{"queue_offset": number} for number in range(_LOG)])
    uri = place.put(first.write(tmp_path / "first"), "replaced/store")
    second = LogBuilder(1 << 16).add_all([{"queue_offset": number, "body": b"other"} for number in range(2 * _LOG)])
    second.write(tmp_path / "second")

    def replaced(plan: ExportPlan) -> list[SplitResult]:
        place.put(tmp_path / "second", "replaced/store")
        return run_here(plan)

    stores = open_stores([uri], BrokerConf())
    query = make_query(None, "decompressed", Filters(), ())
    with Output(tmp_path / "out", "error") as output, pytest.raises(ChangedError, match="replaced or removed"):
        run_export(stores, output, "error", ExportOptions(query), replaced)
    assert not (tmp_path / "out").exists()
    assert rmqtool("export", uri, "-o", tmp_path / "out", "--engine", "local").status == Exit.OK
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == second.offsets
