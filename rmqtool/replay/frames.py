"""Frames of the remoting protocol with a header in JSON (`RemotingCommand`, `RemotingSerializable`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from construct import Bytes, Int8ub, Int24ub, Int32ub, Struct

from rmqtool.replay.lenient_json import load_json

MAX_FRAME_SIZE = 16 << 20
"""Largest frame that a broker takes or gives, bytes (`NettyDecoder`, com.rocketmq.remoting.frameMaxLength)."""

LENGTH = Int32ub * "bytes of the frame after this field"
LENGTH_SIZE = 4
_JSON = 0  # SerializeType
_RESPONSE = 1  # bit of `flag`
_HEADER_WIDTH = 4
_MAX_JAVA_INT = (1 << 31) - 1

Head = Struct(
    "serialize_type" / Int8ub * "form of the header: 0 is JSON",
    "header_size" / Int24ub * "size of the header, bytes",
    "header" / Bytes(lambda context: context.header_size) * "the header",
)


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
    head: bytes = Head.build({"serialize_type": _JSON, "header_size": len(text), "header": text})
    size = len(head) + len(request.body)
    if size > MAX_FRAME_SIZE:
        raise FrameError(f"a request of {size} bytes is larger than a frame may be, {MAX_FRAME_SIZE} bytes")
    return bytes(LENGTH.build(size)) + head + request.body


def frame_size(data: bytes) -> int:
    """The size that the four bytes before a frame give; raises FrameError when it cannot be one."""
    size: int = LENGTH.parse(data)
    if not _HEADER_WIDTH <= size <= MAX_FRAME_SIZE:
        raise FrameError(f"it begins a frame of {size} bytes")
    return size


def decode_response(frame: bytes) -> Response | None:
    """Decode a frame without its length; None for one that is a request of the peer. Raises FrameError."""
    size = int.from_bytes(frame[1:_HEADER_WIDTH], "big")
    if frame[0] != _JSON:
        raise FrameError(f"a header of type {frame[0]}, where JSON was asked for")
    if size > len(frame) - _HEADER_WIDTH:
        raise FrameError(f"a header of {size} bytes in a frame of {len(frame)}")
    try:
        header = load_json(Head.parse(frame).header)
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
