"""A name server and a broker on one port: it keeps messages in memory, and fails where a test wants it."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rmqtool.formats.properties import decode_properties, encode_properties
from rmqtool.replay.requests import unpack
from tests.building import message

BROKER = "fake"
WAITING = {"DELAY": "SCHEDULE_TOPIC_XXXX", "TIMER_DELIVER_MS": "rmq_sys_wheel_timer"}
"""Where messages with a property wait for their delivery."""
Fault = Callable[["Asked"], str | bytes | tuple[int, str] | None]
"""What goes wrong with a request: ``cut-before`` or ``cut-after`` it is carried out, ``silence``, bytes that are no
answer, or a code and a remark; None where all goes well."""


@dataclass
class Asked:
    """A request, and how many of its code came before."""

    code: int
    fields: dict[str, str]
    body: bytes
    number: int


@dataclass
class Stored:
    """A message that the broker has."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    properties: dict[str, str]
    body: bytes
    fields: dict[str, str]


@dataclass
class FakeCluster:
    """`topics` are queues by topic; those of `read_only` may not be written.

    `positions` are what the broker says about its log in turn, the last one from then on: its end, and how far its
    index is behind.
    """

    topics: dict[str, int] = field(default_factory=lambda: {"orders": 4})
    read_only: set[str] = field(default_factory=set)
    fault: Fault = lambda _: None
    release: str = "V4_9_7"
    settings: dict[str, str] = field(default_factory=lambda: {"maxMessageSize": "4194304"})
    tls: ssl.SSLContext | None = None
    positions: list[tuple[str, str]] = field(default_factory=lambda: [("100", "0")])
    stored: list[Stored] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> FakeCluster:
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._server.close()

    def codes(self) -> list[int]:
        """The codes of all requests."""
        return [each.code for each in self.asked]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection:
                while self._answer_one(connection):
                    pass
        except (OSError, ValueError, struct.error):  # the other end is gone, or speaks something else
            return

    def _answer_one(self, connection: socket.socket) -> bool:
        head = _exactly(connection, 4)
        if len(head) < 4:
            return False
        frame = _exactly(connection, struct.unpack(">I", head)[0])
        size = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
        header = json.loads(frame[4 : 4 + size])
        with self._lock:
            number = sum(each.code == header["code"] for each in self.asked)
            asked = Asked(header["code"], header["extFields"], frame[4 + size :], number)
            self.asked.append(asked)
            fault = self.fault(asked)
            if fault == "cut-before":
                return False
            answer = fault if isinstance(fault, tuple) else self._carry_out(asked)
        if fault == "cut-after":
            return False
        if fault == "silence":
            return True
        if isinstance(fault, bytes):
            connection.sendall(fault)
            return True
        connection.sendall(_frame(header["opaque"], *answer))
        return True

    def _carry_out(self, asked: Asked) -> tuple[Any, ...]:
        """Code, remark, fields, body."""
        if asked.code == 105:
            return self._route(asked.fields["topic"])
        if asked.code == 28:
            end, behind = self.positions.pop(0) if len(self.positions) > 1 else self.positions[0]
            table = {"brokerVersionDesc": self.release, "commitLogMaxOffset": end, "dispatchBehindBytes": behind}
            return 0, "", {}, json.dumps({"table": table}).encode()
        if asked.code == 26:
            return 0, "", {}, "".join(f"{name}={value}\n" for name, value in self.settings.items()).encode()
        if asked.code == 12:
            return self._query(asked.fields)
        return self._store(asked)

    def _route(self, topic: str) -> tuple[Any, ...]:
        if topic not in self.topics:
            return 17, f"No topic route info in name server for the topic: {topic}"
        permission = 4 if topic in self.read_only else 6
        queues = {"brokerName": BROKER, "perm": permission, "readQueueNums": 1, "writeQueueNums": self.topics[topic]}
        route = {"brokerDatas": [{"brokerAddrs": {"0": self.address}, "brokerName": BROKER}], "queueDatas": [queues]}
        return 0, "", {}, json.dumps(route).replace('"0":', "0:").encode()  # as name servers before 4.9.4

    def _query(self, fields: dict[str, str]) -> tuple[Any, ...]:
        found = [
            each for each in self.stored
            if each.topic == fields["topic"] and each.properties.get("UNIQ_KEY") == fields["key"]
            and int(fields["beginTimestamp"]) < time.time() * 1000  # all were stored a moment ago
        ]  # fmt: skip
        if not found:
            return 22, "can not find message, maybe time range not correct"
        records = (
            message(each.physical_offset, topic=each.topic, queue_id=each.queue_id, queue_offset=each.queue_offset,
                    body=each.body, properties=each.properties)
            for each in found
        )  # fmt: skip
        return 0, "", {}, b"".join(records)

    def _store(self, asked: Asked) -> tuple[Any, ...]:
        fields, topic, queue_id = asked.fields, asked.fields["b"], int(asked.fields["e"])
        if topic not in self.topics:
            return 17, f"topic[{topic}] not exist, apply first please!"
        if asked.code == 320:
            parts = [(part.properties, part.body) for part in unpack(asked.body)]
        else:
            parts = [(decode_properties(fields["i"].encode()), asked.body)]
        first = sum((each.topic, each.queue_id) == (topic, queue_id) for each in self.stored)
        ids = []
        for number, (properties, body) in enumerate(parts):
            offset = sum(len(each.body) + len(encode_properties(each.properties)) + 91 for each in self.stored)
            waits = next((topic for name, topic in WAITING.items() if name in properties), topic)
            self.stored.append(Stored(waits, queue_id, first + number, offset, dict(properties), body, fields))
            ids.append(f"{offset:032X}")
        return 0, "", {"msgId": ",".join(ids), "queueId": str(queue_id), "queueOffset": str(first)}


def _frame(opaque: int, code: int, remark: str = "", fields: Any = None, body: bytes = b"") -> bytes:
    header = {
        "code": code,
        "flag": 1,
        "language": "JAVA",
        "opaque": opaque,
        "remark": remark,
        "extFields": fields or {},
    }
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return data
        data += piece
    return data
