"""A connection to a name server or a broker, with a time limit on everything."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from rmqtool.base.errors import UsageError
from rmqtool.replay.errors import PeerError
from rmqtool.replay.frames import (
    LENGTH_SIZE,
    FrameError,
    Request,
    Response,
    decode_response,
    encode_request,
    frame_size,
)
from rmqtool.replay.signing import Credentials, signed

_AT_ONCE = 1 << 16  # bytes
_MAX_PORT = 65535


@dataclass(frozen=True)
class Security:
    """How connections are made and requests are signed; `timeout` is that of connecting and of each answer, s."""

    timeout: float = 10.0
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[::1]:port``; raises ValueError."""
    host, separator, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (separator and host and port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


class Connection:
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
            raise PeerError(f"{self.address}: its answer is none of RocketMQ: {error}") from error
        except OSError as error:
            raise self._failed(error) from error
        return [found[number] for number in numbers]

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
