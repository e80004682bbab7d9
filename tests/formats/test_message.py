"""Message units against bytes that a broker encoded, and against their own inverse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqtool.formats.layout import FormatError, parse
from rmqtool.formats.message import (
    BLANK_SIZE,
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_BLANK,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MAX_PROPERTIES_SIZE,
    MAX_TOPIC_SIZE_V1,
    MIN_MESSAGE_SIZE,
    PREFIX_DTYPE,
    Blank,
    build_blank,
    build_message,
    parse_message,
    topic_size_width,
)
from tests.formats.samples import HOST_KINDS, MESSAGE, MESSAGE_FIELDS, MESSAGE_WITH_CRC, message_fields

SIZES = {"message_size": 168, "body_size": 5, "topic_size": 9, "properties_size": 63}


def fields_of(message: Any) -> dict[str, Any]:
    """Fields of a parsed message as a plain dict."""
    return {name: value for name, value in message.items() if not name.startswith("_")}


def without_sizes(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that `build_message` takes."""
    return {name: value for name, value in fields.items() if name not in SIZES}


def with_bytes(data: bytes, position: int, replacement: bytes) -> bytes:
    """Replace the bytes of `data` at `position`."""
    return data[:position] + replacement + data[position + len(replacement) :]


def test_parse_golden_message() -> None:
    """Every field of the broker's V1 message is read."""
    assert fields_of(parse_message(MESSAGE)) == {**MESSAGE_FIELDS, **SIZES}


def test_build_golden_message() -> None:
    """The fields give the broker's bytes back, sizes computed and V1 by default."""
    fields = {name: value for name, value in MESSAGE_FIELDS.items() if name != "magic_code"}
    assert build_message(**fields) == MESSAGE


def test_parse_golden_message_with_crc_property() -> None:
    """The CRC property counts in both the record's and the properties' size."""
    message = parse_message(MESSAGE_WITH_CRC)
    assert (message.message_size, message.properties_size) == (188, 83)
    assert message.properties == MESSAGE_FIELDS["properties"] + b"__CRC32#\x010215778360\x02"


def test_v2_message_is_v1_with_a_two_byte_topic_size() -> None:
    """V2 differs from V1 in the magic code, the size and the width of the topic length."""
    expected = with_bytes(MESSAGE, 0, bytes.fromhex("000000A9 DAA320AB"))
    expected = expected[:93] + b"\x00" + expected[93:]
    assert build_message(**{**MESSAGE_FIELDS, "magic_code": MAGIC_CODE_V2}) == expected
    assert parse_message(expected).topic == b"TopicTest"


@pytest.mark.slow
@given(message_fields())
def test_parse_inverts_build(fields: dict[str, Any]) -> None:
    """Both versions and all kinds of hosts come back as they were, and the sizes are those of the bytes."""
    data = build_message(**fields)
    parsed = fields_of(parse_message(data))
    assert without_sizes(parsed) == fields
    assert parsed["message_size"] == len(data)
    assert [parsed[f"{name}_size"] for name in ("body", "topic", "properties")] == [
        len(fields[name]) for name in ("body", "topic", "properties")
    ]


@given(message_fields())
def test_build_inverts_parse(fields: dict[str, Any]) -> None:
    """What is parsed builds the same bytes again."""
    data = build_message(**fields)
    assert build_message(**without_sizes(fields_of(parse_message(data)))) == data


@given(message_fields(), st.binary(max_size=10))
def test_bytes_behind_the_message_do_not_matter(fields: dict[str, Any], rest: bytes) -> None:
    """A message is parsed in the middle of a log, from any kind of buffer."""
    data = build_message(**fields)
    assert fields_of(parse_message(memoryview(bytearray(data + rest)))) == fields_of(parse_message(data))


@pytest.mark.slow
@given(message_fields())
@example(MESSAGE_FIELDS)
def test_every_truncation_is_a_format_error(fields: dict[str, Any]) -> None:
    """A message cut anywhere raises FormatError."""
    data = build_message(**fields)
    for size in range(len(data)):
        with pytest.raises(FormatError):
            parse_message(data[:size])


def parse_or_reject(data: bytes) -> None:
    """Parse; whatever is returned must lie within `data`."""
    try:
        message = parse_message(data)
    except FormatError:
        return
    bits = message.sys_flag & HOST_BITS
    used = HEADER_DTYPES[bits].itemsize + topic_size_width(message.magic_code) + 2
    assert used + len(message.body) + len(message.topic) + len(message.properties) <= len(data)
    assert min(message.body_size, message.topic_size, message.properties_size) >= 0


@given(st.binary(max_size=300))
def test_random_bytes_give_a_message_or_a_format_error(data: bytes) -> None:
    """Noise never raises anything but FormatError."""
    parse_or_reject(data)


@given(st.integers(0, len(MESSAGE) - 1), st.binary(min_size=1, max_size=8))
def test_damaged_bytes_give_a_message_or_a_format_error(position: int, damage: bytes) -> None:
    """A message with some bytes overwritten never raises anything but FormatError."""
    parse_or_reject(with_bytes(MESSAGE, position, damage))


@pytest.mark.parametrize(
    ("field", "position", "stored"),
    [
        ("body", 84, "FFFFFFFF"),
        ("body", 84, "7FFFFFFF"),
        ("topic", 93, "80"),
        ("properties", 103, "8000"),
        ("properties", 103, "0040"),
    ],
    ids=["body negative", "body too long", "topic negative in V1", "properties negative", "properties too long"],
)
def test_a_length_that_leads_out_is_a_format_error(field: str, position: int, stored: str) -> None:
    """A negative length or one that passes the end is refused, and the error names the field."""
    with pytest.raises(FormatError, match=rf"-> {field}\b"):
        parse_message(with_bytes(MESSAGE, position, bytes.fromhex(stored)))


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": bytes(MAX_TOPIC_SIZE_V1 + 1)},
        {"properties": bytes(MAX_PROPERTIES_SIZE + 1)},
        {"queue_id": 1 << 31},
        {"queue_offset": 1 << 63},
        {"born_host": bytes(20)},
        {"sys_flag": HOST_BITS},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_values_that_do_not_fit_are_not_built(fields: dict[str, Any]) -> None:
    """A value too large for its field, or a host of the wrong kind, raises FormatError."""
    with pytest.raises(FormatError):
        build_message(**{**MESSAGE_FIELDS, **fields})


def test_largest_topics_and_properties_are_built() -> None:
    """V1 takes a topic of 127 bytes, V2 one of 255, both 32767 bytes of properties."""
    largest = {**MESSAGE_FIELDS, "properties": bytes(MAX_PROPERTIES_SIZE)}
    for magic_code, size in ((MAGIC_CODE_V1, MAX_TOPIC_SIZE_V1), (MAGIC_CODE_V2, 255)):
        message = parse_message(build_message(**{**largest, "magic_code": magic_code, "topic": bytes(size)}))
        assert (message.topic_size, message.properties_size) == (size, MAX_PROPERTIES_SIZE)


def test_header_offsets_are_the_documented_ones() -> None:
    """Fields stand where MessageDecoder's constants say, and each IPv6 host moves the later ones by 12 bytes."""
    names = ("queue_offset", "physical_offset", "sys_flag", "store_timestamp", "store_host", "body_size")
    offsets = {
        bits: [dtype.fields[name][1] for name in names] + [dtype.itemsize]
        for bits, dtype in HEADER_DTYPES.items()
        if dtype.fields
    }
    assert offsets == {
        0x00: [20, 28, 36, 56, 64, 84, 88],
        0x10: [20, 28, 36, 68, 76, 96, 100],
        0x20: [20, 28, 36, 56, 64, 96, 100],
        0x30: [20, 28, 36, 68, 76, 108, 112],
    }


def test_prefix_ends_before_the_first_host() -> None:
    """The prefix is the part of the header that no host moves."""
    assert PREFIX_DTYPE.itemsize == 48
    assert PREFIX_DTYPE.names == (HEADER_DTYPES[0].names or ())[: len(PREFIX_DTYPE.names or ())]


def test_header_dtype_reads_the_golden_message() -> None:
    """NumPy reads the same header as construct."""
    [header] = np.frombuffer(MESSAGE, HEADER_DTYPES[0], count=1)
    read = {name: header[name].tobytes() if "host" in name else int(header[name]) for name in header.dtype.names}
    assert read == {name: value for name, value in {**MESSAGE_FIELDS, **SIZES}.items() if name in read}
    assert len(read) == 15


@pytest.mark.parametrize("bits", HOST_KINDS)
def test_smallest_message(bits: int) -> None:
    """An empty message has 91 bytes, 12 more for each IPv6 host, and one more in V2."""
    hosts = {"born_host": bytes(20 if bits & 0x10 else 8), "store_host": bytes(20 if bits & 0x20 else 8)}
    empty = {**MESSAGE_FIELDS, **hosts, "sys_flag": bits, "body": b"", "topic": b"", "properties": b""}
    size = 91 + 12 * bits.bit_count()
    assert len(build_message(**empty)) == size
    assert len(build_message(**{**empty, "magic_code": MAGIC_CODE_V2})) == size + 1
    assert MIN_MESSAGE_SIZE == 91


def test_golden_blank() -> None:
    """A blank is its size and the blank magic code."""
    data = bytes.fromhex("000003E8 CBD43194")
    assert build_blank(1000) == data
    assert fields_of(parse(Blank, data)) == {"size": 1000, "magic_code": MAGIC_CODE_BLANK}
    assert len(data) == BLANK_SIZE
