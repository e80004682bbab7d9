"""A peer that answers what a fuzzer gives: a name server or a broker of the cluster that a replay sends to."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence

from rmqtool.replay.cluster import Cluster, Sought, parse_route
from rmqtool.replay.connection import Connection, Request, Security, refusal
from tests.fuzz import seeds as stores

_ADDRESS = "broker:10911"
_SECURITY = Security(timeout=0.05)
_RUNTIME = {"table": {"brokerVersionDesc": "V5_5_0", "commitLogMaxOffset": "4096", "dispatchBehindBytes": "0"}}
_ROUTE = {
    "brokerDatas": [{"brokerName": "broker", "brokerAddrs": {"0": _ADDRESS}}],
    "queueDatas": [{"brokerName": "broker", "writeQueueNums": 4, "readQueueNums": 4, "perm": 6}],
}
_CONF = b"maxMessageSize=65536\nmessageDelayLevel=1s 5s\ntimerMaxDelaySec=60\ntimerWheelEnable=true\n"


class _Answered(Connection):
    """A connection whose peer has sent `data`, and closed it."""

    def __init__(self, data: bytes) -> None:
        self.address = _ADDRESS
        self._security = _SECURITY
        self._opaque = 0
        self._socket, peer = socket.socketpair()
        with peer:
            peer.setblocking(False)
            peer.send(data)

    def send(self, requests: Sequence[Request]) -> list[int]:
        """Nobody is there to send to."""
        first = self._opaque + 1
        self._opaque += len(requests)
        return [*range(first, self._opaque + 1)]


def _frame(opaque: int, body: bytes, code: int = 0) -> bytes:
    header = json.dumps({"code": code, "flag": 1, "opaque": opaque, "extFields": {"a": "b"}}).encode()
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + b"\0" + len(header).to_bytes(3, "big") + header + body


def read(data: bytes) -> None:
    """Take `data` for the stream of a peer, or as the body of its answers, by the first byte."""
    if not data:
        return
    kind, body = data[0] % 4, data[1:]
    stream = body if kind == 0 else _frame(1, body) + _frame(2, body)
    if kind == 1:
        _route(body)
        return
    with _Answered(stream) as connection, Cluster((_ADDRESS,), _SECURITY) as cluster:
        cluster._connections[_ADDRESS] = connection
        cluster._routes["orders"] = parse_route("orders", json.dumps(_ROUTE).encode())
        if kind == 3:
            cluster.find([Sought("orders", "broker", "key", 0)])
        else:
            cluster.facts("broker", _ADDRESS)
            if kind == 0:
                refusal(connection.call(Request(1, {})), "a message")


def _route(body: bytes) -> None:
    try:
        parse_route("orders", body)
    except ValueError:
        return


def seeds() -> Iterator[bytes]:
    """A stream of two answers, a route, what brokers say of themselves, and messages."""
    runtime = json.dumps(_RUNTIME).encode()
    yield b"\0" + _frame(1, runtime) + _frame(2, _CONF) + _frame(3, b"", 1)
    yield b"\1" + json.dumps(_ROUTE).encode()
    yield b'\1{brokerDatas:[{"brokerName":"b","brokerAddrs":{0:"b:1"}}],"queueDatas":[]}'
    yield b"\2" + runtime
    yield b"\2" + _CONF
    yield from (b"\3" + record for record in stores.records(6))
    yield b"\3" + stores.log(3)
