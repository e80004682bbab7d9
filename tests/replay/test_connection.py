"""Connections to peers that answer late, wrongly or not at all: an error that says so, in time, and never a hang."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.base.errors import UsageError
from rmqtool.replay.connection import (
    Connection,
    Credentials,
    PeerError,
    Request,
    Security,
    parse_address,
    read_credentials,
    tls_context,
)
from tests.replay.captured import CERTIFICATE
from tests.replay.fake_cluster import FakeCluster

SHORT = Security(timeout=0.3)
ROUTE = Request(105, {"topic": "orders"})


@contextmanager
def peer(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A peer that reads a request and then does as `answer` says; its address."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def _drip(connection: socket.socket) -> None:
    """A byte now and then, so that no single wait is too long."""
    try:
        for byte in struct.pack(">I", 1000) + bytes(1000):
            connection.sendall(bytes([byte]))
            time.sleep(0.05)
    except OSError:
        return


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda connection: None, "is cut"),
        (lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not from RocketMQ"),
        (lambda connection: connection.sendall(bytes(100)), "not from RocketMQ"),
        (lambda connection: connection.sendall(struct.pack(">II", 6, 2) + b"{"), "is cut"),
        (lambda connection: connection.sendall(struct.pack(">II", 6, 2) + b"{}"), "is cut"),
        (lambda connection: connection.sendall(struct.pack(">I", 0xFFFFFFFF)), "not from RocketMQ"),
        (lambda connection: connection.sendall(struct.pack(">II", 6, 99) + b"{}"), "not from RocketMQ"),
        (_drip, "has not answered within 0.3 s"),
    ],
)
def test_an_answer_that_is_none(answer: Callable[[socket.socket], None], says: str) -> None:
    with peer(answer) as address, Connection(address, SHORT if answer is _drip else Security()) as connection:
        with pytest.raises(PeerError, match=says) as caught:
            connection.call(ROUTE)
        assert address in str(caught.value)


def test_silence() -> None:
    with (
        FakeCluster(fault=lambda _: "silence") as cluster,
        Connection(cluster.address, SHORT) as connection,
        pytest.raises(PeerError, match=r"has not answered within 0\.3 s"),
    ):
        connection.call(ROUTE)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(PeerError, match="cannot be reached: connection refused"):
        Connection(address, SHORT)


@pytest.mark.parametrize("address", ["nowhere", "host:", ":9876", "host:port", "host:0", "host:65536", "h:²"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(address)


def test_addresses() -> None:
    assert parse_address(" broker:10911 ") == ("broker", 10911)
    assert parse_address("[::1]:9876") == parse_address("::1:9876") == ("::1", 9876)


def test_answers_come_in_any_order() -> None:
    """Those of requests that are under way together, and one that nobody waits for any more."""
    with FakeCluster() as cluster, Connection(cluster.address, Security()) as connection:
        requests = [Request(105, {"topic": topic}) for topic in ("orders", "nowhere", "orders")]
        assert [response.code for response in connection.exchange(requests)] == [0, 17, 0]
        numbers = connection.send(requests)
        assert [response.code for response in connection.answers(numbers[::-1])] == [0, 17, 0]
        connection.send(requests[1:2])
        assert connection.call(requests[0]).code == 0


def test_requests_are_signed() -> None:
    security = Security(credentials=Credentials("me", "secret"))
    with FakeCluster() as cluster, Connection(cluster.address, security) as connection:
        connection.call(ROUTE)
        assert cluster.asked[0].fields["AccessKey"] == "me"
        assert cluster.asked[0].fields["Signature"]
    assert "secret" not in repr(security)


def test_keys_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("# keys\naccessKey: me # that is me\nsecretKey: 'a:b=c'\n")
    assert read_credentials(file) == Credentials("me", "a:b=c")
    file.write_text("accessKey=me\n")
    with pytest.raises(UsageError, match="no accessKey and secretKey"):
        read_credentials(file)


def _server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.mark.slow
def test_tls() -> None:
    """With the authority that signed the certificate, or with any where nothing is verified; else not."""
    with FakeCluster(tls=_server_tls()) as cluster:
        for context in (
            tls_context(str(CERTIFICATE), None, None, verifies=True),
            tls_context(None, None, None, verifies=False),
        ):
            with Connection(cluster.address, Security(tls=context)) as connection:
                assert connection.call(ROUTE).code == 0
        unknown = tls_context(None, None, None, verifies=True)
        with pytest.raises(PeerError, match="no TLS connection"):
            Connection(cluster.address, Security(tls=unknown))
        with Connection(cluster.address, SHORT) as connection, pytest.raises(PeerError):
            connection.call(ROUTE)


def test_tls_to_a_peer_without() -> None:
    context = tls_context(None, None, None, verifies=False)
    with FakeCluster() as cluster, pytest.raises(PeerError, match="no TLS connection"):
        Connection(cluster.address, Security(timeout=0.5, tls=context))


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(UsageError, match="certificates cannot be used"):
        tls_context(str(tmp_path / "none.pem"), None, None, verifies=True)
