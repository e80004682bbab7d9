"""Servers that the tests start: S3 and Google's storage by packages of Python, HDFS by Hadoop's own jar, and a proxy.

All listen on 127.0.0.1 only, each on a port that the system gives.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.real_broker.tools import HarnessUnavailable, tool

UNAVAILABLE = "no server: "
"""How the reason begins for which a test with a server was skipped."""

BUCKET = "bucket"
_S3 = """
import logging, sys
from functools import cache
from moto import backends
from moto.core import serialize
from moto.server import ThreadedMotoServer
modules = frozenset(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: modules  # for each request it would list its own directory
serialize.parse_to_aware_datetime = cache(serialize.parse_to_aware_datetime)  # a third of what a listing takes
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_GOOGLE = """
import http.server, sys
http.server.HTTPServer = http.server.ThreadingHTTPServer  # pyarrow has several connections at once
from gcp_storage_emulator.server import create_server
server = create_server("127.0.0.1", 0, in_memory=True, default_bucket=sys.argv[1])
server.start()
print("port", server._api._httpd.server_address[1], flush=True)
sys.stdin.read()
server.stop()
"""
_MINI_CLUSTER = "org.apache.hadoop:hadoop-client-minicluster"
_JAVA = ("-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def s3_server() -> Iterator[str]:
    """An S3 server with an empty bucket; gives host and port."""
    if find_spec("moto") is None:
        unavailable("the package moto is not installed (pip install 'rmqtool[test]')")
    with server([sys.executable, "-c", _S3]) as port:
        from pyarrow.fs import S3FileSystem

        place = f"127.0.0.1:{port}"
        system = S3FileSystem(access_key="key", secret_key="secret", endpoint_override=place, scheme="http",
                              region="us-east-1", allow_bucket_creation=True, connect_timeout=60,
                              request_timeout=60)  # fmt: skip
        system.create_dir(BUCKET)
        yield place


def s3_uri(place: str, name: str) -> str:
    """The URI of a name in the bucket; `place` is host and port."""
    return f"s3://key:secret@{BUCKET}/{name}?endpoint_override={place}&scheme=http&region=us-east-1"


@contextmanager
def google_server() -> Iterator[str]:
    """A server of Google Cloud Storage with an empty bucket; gives host and port."""
    if find_spec("gcp_storage_emulator") is None:
        unavailable("the package gcp-storage-emulator is not installed (pip install 'rmqtool[test]')")
    with server([sys.executable, "-c", _GOOGLE, BUCKET]) as port:
        yield f"127.0.0.1:{port}"


def google_uri(place: str, name: str) -> str:
    """The URI of a name in the bucket; `place` is host and port."""
    return f"gs://anonymous@{BUCKET}/{name}?scheme=http&endpoint_override={place}&retry_limit_seconds=5"


@contextmanager
def hdfs_cluster(folder: Path) -> Iterator[str]:
    """HDFS of one data node; gives the URI of its root."""
    if find_spec("hdfs_native") is None or find_spec("pyspark") is None:
        unavailable("the packages hdfs-native and pyspark are not installed (pip install 'rmqtool[test]')")
    try:
        command = [tool("java"), *_JAVA, "-cp", os.pathsep.join(map(str, _jars())), str(_MAIN), str(folder / "dfs")]
    except (HarnessUnavailable, subprocess.CalledProcessError) as error:
        unavailable(str(error))
    with server(command, folder / "hdfs.log") as port:
        yield f"hdfs://127.0.0.1:{port}"


_MAIN = Path(__file__).with_name("MiniHdfs.java")


def _jars() -> list[Path]:
    """Hadoop's client as Spark brings it, and its cluster for tests of the same version, which Maven fetches once."""
    import pyspark

    jars = sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))
    version = next(match[1] for jar in jars if (match := re.fullmatch(r"hadoop-client-api-(.*)\.jar", jar.name)))
    group, name = _MINI_CLUSTER.split(":")
    repository = Path.home() / ".m2/repository"  # Maven asks the system for the home, not HOME
    cluster = repository / group.replace(".", "/") / name / version / f"{name}-{version}.jar"
    if not cluster.exists():
        goal = ["dependency:get", f"-Dartifact={_MINI_CLUSTER}:{version}", "-Dtransitive=false"]
        subprocess.run([tool("mvn"), "-B", "-q", f"-Dmaven.repo.local={repository}", *goal], check=True, timeout=300)
    return [cluster, *jars]


@contextmanager
def server(command: list[str], log: Path | None = None, started: bytes = b"port ") -> Iterator[str]:
    """A process that prints that it has `started`, and what follows, its port, say; it ends with its input."""
    with open(log or os.devnull, "wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdin
    assert process.stdout
    try:
        line = next((line for line in process.stdout if started in line), None)
        if line is None:
            raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:] if log else ''}")
        yield line.partition(started)[2].decode().strip()
    finally:
        process.stdin.close()
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def unavailable(reason: str) -> NoReturn:
    """Skip the test; fail where CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(UNAVAILABLE + reason)
    pytest.skip(UNAVAILABLE + reason)


class Proxy:
    """Passes connections on to a server, and cuts `cuts` of them after so many bytes of an answer."""

    def __init__(self, place: str, after: int, cuts: int) -> None:
        host, _, port = place.partition(":")
        self._target = (host, int(port))
        self._after = after
        self.left = cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: Any) -> None:
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._sockets:
            end.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                server = socket.create_connection(self._target)
                self._sockets.append(server)
                self._start(self._pass, client, server, None)
                self._start(self._pass, server, client, self._after)

    def _pass(self, source: socket.socket, target: socket.socket, after: int | None) -> None:
        size = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                size += len(data)
                if after is not None and size > after and self.left > 0:
                    self.left -= 1
                    target.sendall(data[: len(data) // 2])
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
