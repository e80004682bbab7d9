"""Places on other machines: a name below one of them, and the copying of a directory to there."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqtool.base.filesystems import file_system
from rmqtool.base.paths import path_of
from rmqtool.base.remote_path import RemotePath
from tests.other_machines.azure import azure_server, azure_uri
from tests.other_machines.servers import google_server, google_uri, hdfs_cluster, s3_server, s3_uri


class Place(NamedTuple):
    """Where a server keeps things: its kind, and the `uri` of a name."""

    kind: str
    uri: Callable[[str], str]

    def put(self, directory: Path, name: str) -> str:
        """Copy a directory, or a file, to a name; its URI."""
        path = remote(self.uri(name))
        system, prefix = file_system(path.scheme, path.authority)
        found = [directory, *directory.rglob("*")]
        goals = {each: f"{prefix}{path.key}/{each.relative_to(directory)}".removesuffix("/.") for each in found}
        for each, goal in goals.items():
            if each.is_dir():
                system.create_dir(goal, recursive=True)

        def copy(file: Path) -> None:
            with system.open_output_stream(goals[file]) as output:
                output.write(file.read_bytes())

        with ThreadPoolExecutor(_HDFS_COPIES_AT_ONCE if self.kind == "hdfs" else 1) as pool:
            list(pool.map(copy, (each for each in found if each.is_file())))
        return self.uri(name)


@cache
def kept(place: Place, store: Path) -> str:
    """The URI of a copy of a golden store, made once, which no test changes."""
    return place.put(store, f"kept/{store.name}")


def remote(uri: str) -> RemotePath:
    """The path of a URI, which is one of another machine."""
    path = path_of(uri)
    assert isinstance(path, RemotePath)
    return path


_HDFS_COPIES_AT_ONCE = 16  # one in three waits half a second; Google's test server takes only one at once


@pytest.fixture(scope="session")
def s3_place() -> Iterator[str]:
    """Host and port of an S3 server."""
    with s3_server() as place:
        yield place


@pytest.fixture(scope="session")
def s3(s3_place: str) -> Place:
    return Place("s3", lambda name: s3_uri(s3_place, name))


@pytest.fixture(scope="session")
def gs() -> Iterator[Place]:
    with google_server() as place:
        yield Place("gs", lambda name: google_uri(place, name))


@pytest.fixture(scope="session")
def abfs() -> Iterator[Place]:
    with azure_server() as place:
        yield Place("abfs", lambda name: azure_uri(place, name))


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as root:
        yield Place("hdfs", lambda name: f"{root}/{name}")


@pytest.fixture(params=["s3", "gs", pytest.param("abfs", marks=pytest.mark.rare), "hdfs"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of server."""
    found: Place = request.getfixturevalue(request.param)
    return found


class _Denying(http.server.BaseHTTPRequestHandler):
    """An S3 server that allows nothing; `asked` are the requests."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def denying() -> Iterator[tuple[str, list[str]]]:
    """Host and port of a server that denies everything, and what it was asked for."""
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Denying", (_Denying,), {"asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
