"""A connection to a name server or a broker, with a time limit on everything."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, UnreadableError, UsageError
from rmqtool.base.files import Closing

_NUMBER_AS_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")
_REST_OF_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def load_json(data: bytes) -> Any:
    """The value of a text; raises ValueError for what is no JSON, or is nested too deeply."""
    try:
        text = data.decode("utf-8", "replace")
        try:
            return json.loads(text)
        except ValueError:
            return json.loads("".join(_with_quotes(text)))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _with_quotes(text: str) -> Iterator[str]:
    """The pieces of a text, strings and what is between them; each character is read once, whatever the text is."""
    start = 0
    while (quote := text.find('"', start)) >= 0:
        yield _NUMBER_AS_KEY.sub(r'\1"\2"\3', text[start:quote])
        string = _REST_OF_STRING.match(text, quote + 1)
        if string is None:
            yield text[quote:]
            return
        yield text[quote : string.end()]
        start = string.end()
    yield _NUMBER_AS_KEY.sub(r'\1"\2"\3', text[start:])


MAX_FRAME_SIZE = 16 << 20
"""Largest frame that a broker takes or gives, bytes (`NettyDecoder`, com.rocketmq.remoting.frameMaxLength)."""

LENGTH_SIZE = 4  # of the length before a frame, bytes
_JSON = 0  # SerializeType
_RESPONSE = 1  # bit of `flag`
_HEADER_WIDTH = 4  # form of the header, 1 byte, and its size
_MAX_JAVA_INT = (1 << 31) - 1


class FrameError(ValueError):
    """Bytes that are no frame; the message says why."""


@dataclass(frozen=True)
class Request:
    """What a peer is asked: a code of `replay.codes`, fields, a body."""

    code: int
    fields: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Response:
    """What a peer answers; `opaque` is the number of the request."""

    opaque: int
    code: int
    remark: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def encode_request(request: Request, opaque: int) -> bytes:
    """The frame of a request, its length included; raises FrameError when no peer takes one of that size."""
    header = {
        "code": request.code,
        "extFields": dict(request.fields),
        "flag": 0,
        "language": "OTHER",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 0,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    size = _HEADER_WIDTH + len(text) + len(request.body)
    if size > MAX_FRAME_SIZE:
        raise FrameError(f"a request of {size} bytes is larger than a frame may be, {MAX_FRAME_SIZE} bytes")
    return size.to_bytes(LENGTH_SIZE, "big") + bytes([_JSON]) + len(text).to_bytes(3, "big") + text + request.body


def frame_size(data: bytes) -> int:
    """The size that the four bytes before a frame give; raises FrameError when it cannot be one."""
    size = int.from_bytes(data[:LENGTH_SIZE], "big")
    if not _HEADER_WIDTH <= size <= MAX_FRAME_SIZE:
        raise FrameError(f"it begins a frame of {size} bytes")
    return size


def decode_response(frame: bytes) -> Response | None:
    """Decode a frame without its length; None for one that is a request of the peer. Raises FrameError."""
    size = int.from_bytes(frame[1:_HEADER_WIDTH], "big")
    if frame[0] != _JSON:
        raise FrameError(f"a header of type {frame[0]}, where JSON was requested")
    if size > len(frame) - _HEADER_WIDTH:
        raise FrameError(f"a header of {size} bytes in a frame of {len(frame)}")
    try:
        header = load_json(frame[_HEADER_WIDTH : _HEADER_WIDTH + size])
    except ValueError as error:
        raise FrameError("a header that is not JSON") from error
    if not isinstance(header, dict):
        raise FrameError("a header that is not an object")
    if not _number(header, "flag") & _RESPONSE:
        return None
    fields = header.get("extFields")
    remark = header.get("remark")
    return Response(
        _number(header, "opaque"),
        _number(header, "code"),
        remark if isinstance(remark, str) else "",
        {str(name): str(value) for name, value in fields.items()} if isinstance(fields, dict) else {},
        frame[_HEADER_WIDTH + size :],
    )


def _number(header: dict[str, Any], name: str) -> int:
    value = header.get(name, 0)
    if type(value) is not int or abs(value) > _MAX_JAVA_INT:
        raise FrameError(f"a header whose {name} is not a number")
    return value


_ACCESS_KEY, _SIGNATURE, _TOKEN = "AccessKey", "Signature", "SecurityToken"  # SessionCredentials
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"  # MixAll.UNIQUE_MSG_QUERY_FLAG: brokers leave it out of what is signed
_LINE = re.compile(r"\s*([A-Za-z]+)\s*[:=]\s*(.*?)\s*")
_MAX_SIZE = 64 << 10  # of a file with keys, bytes


@dataclass(frozen=True)
class Credentials:
    """An access key and its secret."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def signed(fields: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """The fields with the access key and the signature over all values, in the order of their names, and the body."""
    complete = {**fields, _ACCESS_KEY: credentials.access_key}
    if credentials.token:
        complete[_TOKEN] = credentials.token
    content = "".join(complete[name] for name in sorted(complete) if name != UNIQUE_KEY_QUERY).encode() + body
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    return {**complete, _SIGNATURE: base64.b64encode(digest).decode()}


def read_credentials(path: Path) -> Credentials:
    """Read accessKey and secretKey, as in the tools.yml of mqadmin; raises UnreadableError or UsageError."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_SIZE).decode("utf-8", "replace")
    except OSError as error:
        raise UnreadableError(f"cannot be read: {(error.strerror or str(error)).lower()}", file=path) from error
    lines = (_LINE.fullmatch(line.partition(" #")[0]) for line in text.splitlines())
    values = {line[1]: line[2].strip("'\"") for line in lines if line}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    if not (access_key and secret_key):
        raise UsageError("no accessKey and secretKey are in it", file=path, hint="as in conf/tools.yml of mqadmin")
    return Credentials(access_key, secret_key, values.get("securityToken"))


class PeerError(RmqtoolError):
    """A name server or a broker that cannot be reached, does not answer in time, or answers what is no answer.

    Whether it has done what it was asked for is not known then.
    """

    kind = "peer"


class RefusedError(PeerError):
    """A request that a name server or a broker refuses; `code` and `remark` are those of its answer."""

    kind = "refused"

    def __init__(self, message: str, code: int, remark: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.remark = remark


_AT_ONCE = 1 << 16  # bytes
_MAX_PORT = 65535


@dataclass(frozen=True)
class Security:
    """How connections are made and requests are signed; `timeout` is that of connecting and of each answer, s."""

    timeout: float = 10.0
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None


def whole_number(text: object, digits: int = 19) -> int | None:
    """The number that a text of a peer is; None for what is none, or has more `digits` than it may have."""
    is_number = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= digits
    return int(str(text)) if is_number else None


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[::1]:port``; raises ValueError."""
    host, separator, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (separator and host and port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


class Connection(Closing):
    """One open connection; raises PeerError when it cannot be made. After any PeerError it must not be used again."""

    def __init__(self, address: str, security: Security) -> None:
        self.address = address
        self._security = security
        self._opaque = 0
        deadline = time.monotonic() + security.timeout
        try:
            host, port = parse_address(address)
            self._socket: socket.socket = socket.create_connection((host, port), timeout=security.timeout)
        except (OSError, ValueError, UnicodeError, OverflowError) as error:
            raise PeerError(f"{address} cannot be reached: {_reason(error)}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket.settimeout(max(0.01, deadline - time.monotonic()))
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
        except (OSError, ValueError) as error:
            self._socket.close()
            hint = "is TLS on there, and is its certificate signed by the authority of --tls-ca?"
            raise PeerError(f"{address}: no TLS connection: {_reason(error)}", hint=hint) from error

    def call(self, request: Request) -> Response:
        """Send one request and wait for its answer."""
        return self.exchange([request])[0]

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        """Send requests together and wait for the answer to each; raises PeerError."""
        return self.answers(self.send(requests))

    def send(self, requests: Sequence[Request]) -> list[int]:
        """Send requests, without waiting; their numbers, for `answers`."""
        first = self._opaque + 1
        self._opaque += len(requests)
        numbers = list(range(first, self._opaque + 1))
        pairs = zip(numbers, requests, strict=True)
        try:
            data = b"".join(encode_request(self._signed(request), number) for number, request in pairs)
            self._socket.settimeout(self._security.timeout)
            self._socket.sendall(data)
        except (OSError, ValueError) as error:
            raise self._failed(error) from error
        return numbers

    def answers(self, numbers: Sequence[int]) -> list[Response]:
        """The answers to requests that were sent, in their order, all within the time limit."""
        deadline = time.monotonic() + self._security.timeout
        found: dict[int, Response] = {}
        wanted = set(numbers)
        try:
            while len(found) < len(wanted):
                size = frame_size(self._read(LENGTH_SIZE, deadline))
                response = decode_response(self._read(size, deadline))
                if response is not None and response.opaque in wanted:
                    found[response.opaque] = response
        except FrameError as error:
            self.close()
            raise PeerError(f"{self.address}: its answer is not from RocketMQ: {error}") from error
        except OSError as error:
            raise self._failed(error) from error
        return [found[number] for number in numbers]

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _signed(self, request: Request) -> Request:
        credentials = self._security.credentials
        if credentials is None:
            return request
        return Request(request.code, signed(request.fields, request.body, credentials), request.body)

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining)
            piece = self._socket.recv(min(size - len(data), _AT_ONCE))
            if not piece:
                raise ConnectionResetError("it has closed the connection")
            data += piece
        return bytes(data)

    def _failed(self, error: Exception) -> PeerError:
        self.close()
        if isinstance(error, TimeoutError):
            return PeerError(f"{self.address} has not answered within {self._security.timeout:g} s")
        return PeerError(f"the connection to {self.address} is cut: {_reason(error)}")


def tls_context(authority: str | None, certificate: str | None, key: str | None, *, verifies: bool) -> ssl.SSLContext:
    """How TLS connections are made; raises UsageError for files that do not fit.

    Certificates of brokers rarely name their hosts: with an `authority` of their own, its signature is what counts.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
        if authority is not None or not verifies:
            context.check_hostname = False
        if not verifies:
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise UsageError(f"the certificates cannot be used: {_reason(error)}") from error
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the time limit"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror.lower()
    return str(error)


QUERY_MESSAGE = 12
GET_BROKER_CONFIG = 26
GET_BROKER_RUNTIME_INFO = 28
GET_ROUTEINFO_BY_TOPIC = 105
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320

SUCCESS = 0
SYSTEM_ERROR = 1
SYSTEM_BUSY = 2
MESSAGE_ILLEGAL = 13
SERVICE_NOT_AVAILABLE = 14
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
QUERY_NOT_FOUND = 22
FLOW_CONTROL = 215

STORED_ALL_THE_SAME: Mapping[int, str] = {
    10: "flush-disk-timeout",
    11: "slave-not-available",
    12: "flush-slave-timeout",
}
"""Answers to a send that say that it is stored, but not as safely as the broker is configured (`SendStatus`)."""

_MEANINGS: Mapping[int, str] = {
    SYSTEM_ERROR: "an error in the broker",
    SYSTEM_BUSY: "the broker is too busy",
    3: "the broker does not know this request",
    MESSAGE_ILLEGAL: "the message is not allowed: it is too large, or its properties or topic are too long",
    SERVICE_NOT_AVAILABLE: "the broker cannot store messages now",
    15: "the broker does not support this",
    NO_PERMISSION: "it is not permitted",
    TOPIC_NOT_EXIST: "the broker does not have this topic",
    26: "the broker does not have this consumer group",
    FLOW_CONTROL: "the broker limits the rate",
}
_NOT_SIGNED = re.compile(
    r"AclException|signature|accessKey|access key|whitelist|SecretKey|username cannot be null|^User:\S+ is not found"
)
_SIGN = "name a file with accessKey and secretKey that may write: --acl-file tools.yml"
_MAY_NOT_READ = "let the key also read the topic (SUB, mqadmin updateAcl), or send without looking up: --no-look-up"
_HINTS: Mapping[int, str] = {
    SYSTEM_BUSY: "send more slowly: --rate 100/s",
    MESSAGE_ILLEGAL: "raise maxMessageSize of the broker, or leave the message out",
    SERVICE_NOT_AVAILABLE: "its disk is full (CL, CQ: how full), or it is a slave or shuts down: see its store.log",
    NO_PERMISSION: "the topic or the broker may be read only (mqadmin updateTopicPerm), "
    "or the key may not write (mqadmin updateAcl)",
    TOPIC_NOT_EXIST: "create the topic on the target first (mqadmin updateTopic)",
    26: "create the group on the target first (mqadmin updateSubGroup)",
}
_LONGEST_REMARK = 300  # characters: remarks of old brokers are whole stack traces


def refusal(response: Response, what: str) -> RefusedError:
    """The error for an answer that is not SUCCESS; `what` was asked of whom, such as ``broker-a: a message``."""
    remark = " ".join(response.remark.split())
    remark = remark if len(remark) <= _LONGEST_REMARK else f"{remark[:_LONGEST_REMARK]}..."
    meaning = _MEANINGS.get(response.code, "it is refused")
    hint = _HINTS.get(response.code)
    if _NOT_SIGNED.search(remark):
        meaning, hint = "the access key or its signature is not accepted", _SIGN
    said = f": {remark}" if remark else ""
    return RefusedError(f"{what}: {meaning} (code {response.code}{said})", response.code, response.remark, hint=hint)


def look_up_refusal(response: Response, what: str) -> RefusedError:
    """The error for a look-up that is refused: it takes another permission than a message that is sent."""
    error = refusal(response, what)
    if response.code == NO_PERMISSION and error.hint == _HINTS[NO_PERMISSION]:
        error.hint = _MAY_NOT_READ
    return error
