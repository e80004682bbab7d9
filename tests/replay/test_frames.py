"""Frames, batches and signatures, held against bytes of RocketMQ's own classes; and bytes that are no frame."""

from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.replay.connection import (
    LENGTH_SIZE,
    MAX_FRAME_SIZE,
    UNIQUE_KEY_QUERY,
    Credentials,
    FrameError,
    Request,
    decode_response,
    encode_request,
    frame_size,
    load_json,
    signed,
)
from rmqtool.replay.requests import BatchError, Part, pack, unpack
from tests.replay.captured import VERSIONS, answer, frames

PROPERTIES = {"UNIQ_KEY_OF": "one", "KEYS": "K-one", "WAIT": "true", "TAGS": "web"}


def _parts(frame: bytes) -> tuple[dict[str, object], bytes]:
    """Header and body of a request."""
    size = struct.unpack(">I", frame[4:8])[0] & 0xFFFFFF
    return json.loads(frame[8 : 8 + size]), frame[8 + size :]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_that_of_the_client(version: str) -> None:
    """The same lengths, code, fields and body; the order of names in JSON and the language are our own."""
    known = frames(version)
    ours = encode_request(Request(310, known["fields"], b"one"), 0)
    theirs = bytes.fromhex(known["send"])
    (header, body), (their_header, their_body) = _parts(ours), _parts(theirs)
    assert body == their_body
    assert header | {"language": "JAVA"} == their_header
    assert frame_size(ours[:LENGTH_SIZE]) == len(ours) - LENGTH_SIZE
    assert frame_size(theirs[:LENGTH_SIZE]) == len(theirs) - LENGTH_SIZE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_signature_is_that_of_the_client(version: str) -> None:
    known = frames(version)
    credentials = Credentials("rmqtool", "12345678")
    assert signed(known["fields"], b"one", credentials) == known["signed_fields"]
    assert signed(known["fields"], b"two", credentials) != known["signed_fields"]
    # Brokers leave this one out of what they sign.
    queried = signed({**known["fields"], UNIQUE_KEY_QUERY: "true"}, b"one", credentials)
    assert queried["Signature"] == known["signed_fields"]["Signature"]


def test_a_batch_is_that_of_the_client() -> None:
    batch = bytes.fromhex(frames("5.5.0")["batch"])
    second = {**PROPERTIES, "UNIQ_KEY_OF": "zwöi", "KEYS": "K-zwöi"}
    parts = [Part(7, b"one", PROPERTIES), Part(7, "zwöi".encode(), second)]
    assert pack(parts) == batch
    assert unpack(batch) == parts
    # 4.9.1 to 5.1.4 leave out the last separator of the properties.
    assert unpack(bytes.fromhex(frames("4.9.7")["batch"])) == parts


@given(st.binary(max_size=200))
def test_no_bytes_crash_a_batch(data: bytes) -> None:
    with suppress(BatchError):
        assert unpack(pack(unpack(data))) == unpack(data)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "code"), [("sent", 0), ("no_topic", 17), ("not_found", 22), ("send_no_topic", 17)])
def test_an_answer_is_decoded(version: str, name: str, code: int) -> None:
    data = answer(version, name)
    assert frame_size(data[:LENGTH_SIZE]) == len(data) - LENGTH_SIZE
    response = decode_response(data[LENGTH_SIZE:])
    assert response is not None
    assert (response.opaque, response.code) == (7, code)
    assert bool(response.remark) == bool(code)


def test_fields_of_an_answer() -> None:
    response = decode_response(answer("4.9.7", "batch_sent")[LENGTH_SIZE:])
    assert response is not None
    assert response.fields["msgId"] == "7F00000100002A9F00000000000000C5,7F00000100002A9F000000000000018A"
    assert response.fields["queueOffset"] == "1"


def test_keys_without_quotes() -> None:
    """A name server of any release writes them so when it is not asked for standard JSON."""
    response = decode_response(answer("4.9.7", "route")[LENGTH_SIZE:])
    assert response is not None
    assert b"{0:" in response.body
    assert load_json(response.body)["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    assert load_json(b'{"a,1:":"{2:3}\\"{4:5}", 6 : {-7:8}}') == {"a,1:": '{2:3}"{4:5}', "6": {"-7": 8}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a',
        b"[1,",
        b"\xff",
        b"[" * 100_000,
        b'{1:"' + b'\\"' * 200_000,
        b"1" * 9999,
        b'{1:"' + b"order paid shipped " * 50_000,
    ],
)
def test_text_that_is_no_json(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_json(data)


@pytest.mark.parametrize("size", [0, 3, MAX_FRAME_SIZE + 1, 0x48545450, 0xFFFFFFFF])
def test_a_size_that_is_none(size: int) -> None:
    with pytest.raises(FrameError):
        frame_size(struct.pack(">I", size))


def test_a_request_that_no_frame_holds() -> None:
    with pytest.raises(FrameError, match="larger than a frame"):
        encode_request(Request(310, {}, bytes(MAX_FRAME_SIZE)), 1)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">I", 99) + b"{}",
        struct.pack(">I", 2 | 1 << 24) + b"{}",
        struct.pack(">I", 2) + b"xx",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 24) + b'{"flag":1,"code":"zero"}',
        struct.pack(">I", 23) + b'{"flag":1,"opaque":1e9}',
        struct.pack(">I", 30) + b'{"flag":1,"code":999999999999}',
    ],
)
def test_a_frame_that_is_none(frame: bytes) -> None:
    with pytest.raises(FrameError):
        decode_response(frame)


def test_a_request_of_the_peer_is_no_answer() -> None:
    assert decode_response(struct.pack(">I", 10) + b'{"code":1}') is None


@given(st.binary(min_size=4, max_size=100))
def test_no_bytes_crash_a_frame(data: bytes) -> None:
    with suppress(FrameError):
        assert decode_response(data) is None
