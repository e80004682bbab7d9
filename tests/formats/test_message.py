"""Message units against bytes that a broker encoded, and against their own inverse; flags, hosts, checksums, ids."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqtool.formats.layout import FormatError, parse
from rmqtool.formats.message import (
    BLANK_SIZE,
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    CRC32_PROPERTY_SIZE,
    HEADER_DTYPES,
    HOST_BITS,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    INNER_BATCH,
    MAGIC_CODE_BLANK,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MAX_PROPERTIES_SIZE,
    MAX_TOPIC_SIZE_V1,
    MIN_MESSAGE_SIZE,
    MULTI_TAGS,
    NEED_UNWRAP,
    PREFIX_DTYPE,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Blank,
    body_crc,
    build_blank,
    build_crc32_property,
    build_host,
    build_message,
    compression,
    format_host,
    format_message_id,
    host_size,
    parse_message,
    parse_message_id,
    record_crc,
    stored_record_crc,
    topic_size_width,
    transaction,
)
from tests.formats.samples import HOST_KINDS, MESSAGE, MESSAGE_FIELDS, MESSAGE_WITH_CRC, int64s, message_fields

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


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        (0x0, "none"),
        (0x4, "prepared"),
        (0x8, "commit"),
        (0xC, "rollback"),
        (0x7FFFFFF3, "none"),
        (0x39, "commit"),
        (-1, "rollback"),
    ],
)
def test_transaction(flag: int, name: str) -> None:
    """Bits 2 and 3 alone tell the transaction type."""
    assert transaction(flag) == name


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        (0x000, "none"),
        (0x001, "zlib"),
        (0x101, "lz4"),
        (0x201, "zstd"),
        (0x301, "zlib"),
        (0x401, "unknown"),
        (0x701, "unknown"),
        (0x200, "none"),
        (0x0FD, "zlib"),
        (0xF0FE, "none"),
    ],
)
def test_compression(flag: int, name: str) -> None:
    """Bit 0 decides whether, bits 8 to 10 how a body is compressed; no type means zlib."""
    assert compression(flag) == name


def test_bits_are_those_of_the_broker() -> None:
    """The masks have the values of MessageSysFlag and do not overlap."""
    bits = (
        COMPRESSED,
        MULTI_TAGS,
        TRANSACTION_MASK,
        BORN_HOST_V6,
        STORE_HOST_V6,
        NEED_UNWRAP,
        INNER_BATCH,
        COMPRESSION_TYPE_MASK,
    )
    assert bits == (0x001, 0x002, 0x00C, 0x010, 0x020, 0x040, 0x080, 0x700)
    types = (TRANSACTION_NONE, TRANSACTION_PREPARED, TRANSACTION_COMMIT)
    assert (*types, TRANSACTION_ROLLBACK) == (0x0, 0x4, 0x8, 0xC)


# The IPv4 hosts are those of a message that a broker encoded, the IPv6 host that of a message id it made.
HOSTS = [
    ("0A010203 000015B3", "10.1.2.3", 5555, "10.1.2.3:5555"),
    ("C0A80001 00002A9F", "192.168.0.1", 10911, "192.168.0.1:10911"),
    ("20010DB8000000000000000000000001 00002A9F", "2001:db8::1", 10911, "[2001:db8::1]:10911"),
]


@pytest.mark.parametrize(("stored", "address", "port", "shown"), HOSTS)
def test_golden_hosts(stored: str, address: str, port: int, shown: str) -> None:
    """A host is shown and built as the broker stores it."""
    assert format_host(bytes.fromhex(stored)) == shown
    assert build_host(address, port) == bytes.fromhex(stored)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_a_shown_host_is_the_built_one(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    """Any address and port come back from the stored bytes."""
    shown_address, _, shown_port = format_host(build_host(str(address), port)).rpartition(":")
    assert (ipaddress.ip_address(shown_address.strip("[]")), int(shown_port)) == (address, port)


@pytest.mark.parametrize(
    ("flag", "born", "store"),
    [(0x00, 8, 8), (0x10, 20, 8), (0x20, 8, 20), (0x30, 20, 20), (0x7CF, 8, 8), (-1, 20, 20)],
)
def test_host_size(flag: int, born: int, store: int) -> None:
    """Each host has a bit of its own for IPv6."""
    assert (host_size(flag, BORN_HOST_V6), host_size(flag, STORE_HOST_V6)) == (born, store)


@pytest.mark.parametrize("size", [size for size in range(HOST_V6_SIZE) if size != HOST_V4_SIZE])
def test_a_cut_host_is_a_format_error(size: int) -> None:
    """Anything between the two sizes is refused."""
    with pytest.raises(FormatError):
        format_host(bytes(size))


def test_a_port_of_more_than_two_bytes_is_shown() -> None:
    """Damage in the upper two bytes of a port stays visible."""
    assert format_host(bytes.fromhex("7F000001 00010000")) == "127.0.0.1:65536"


def test_an_ipv4_address_in_ipv6_form() -> None:
    """It is shown as such, by every Python the same."""
    stored = bytes.fromhex("00000000000000000000FFFF C0000201 00002A9F")
    assert format_host(stored) == "[::ffff:192.0.2.1]:10911"


@pytest.mark.parametrize(("body", "expected"), [(b"hello rocketmq", 1932557065), (b"hello", 0x3610A686), (b"", 0)])
def test_golden_body_crcs(body: bytes, expected: int) -> None:
    """`UtilAll#crc32` clears the sign bit."""
    assert body_crc(body) == expected


@given(st.binary())
def test_a_body_crc_is_never_negative(body: bytes) -> None:
    """The stored number fits a signed field without its sign."""
    assert 0 <= body_crc(body) < 1 << 31


@pytest.mark.parametrize(
    ("crc", "digits"), [(1932557065, b"5607552391"), (7, b"7000000000"), (638775120, b"0215778360"), (0, b"0000000000")]
)
def test_golden_crc32_properties(crc: int, digits: bytes) -> None:
    """`MessageDecoder#createCrc32` writes the digits least significant first."""
    assert build_crc32_property(crc) == b"__CRC32#\x01" + digits + b"\x02"


@given(st.integers(0, (1 << 31) - 1), st.binary(max_size=30))
def test_stored_crc_inverts_build(crc: int, record: bytes) -> None:
    """Any CRC comes back from the last 20 bytes, whatever stands before."""
    assert len(build_crc32_property(crc)) == CRC32_PROPERTY_SIZE
    assert stored_record_crc(record + build_crc32_property(crc)) == crc


def test_golden_record_crc() -> None:
    """The CRC of a record that a broker wrote covers all but its last 20 bytes."""
    assert stored_record_crc(MESSAGE_WITH_CRC) == record_crc(MESSAGE_WITH_CRC) == 638775120
    assert body_crc(MESSAGE_FIELDS["body"]) == MESSAGE_FIELDS["body_crc"]


@given(st.integers(0, len(MESSAGE_WITH_CRC) - CRC32_PROPERTY_SIZE - 1), st.integers(1, 255))
def test_record_crc_covers_every_byte(position: int, change: int) -> None:
    """A change of any byte before the property shows."""
    record = bytearray(MESSAGE_WITH_CRC)
    record[position] ^= change
    assert record_crc(bytes(record)) != stored_record_crc(bytes(record))


@given(st.integers(1, CRC32_PROPERTY_SIZE), st.integers(1, 255))
def test_a_damaged_property_is_none_or_other_digits(from_end: int, change: int) -> None:
    """A property that lost its name, a separator or a digit carries no CRC; another digit gives another CRC."""
    record = bytearray(MESSAGE_WITH_CRC)
    record[-from_end] ^= change
    still_digit = 2 <= from_end <= 11 and chr(record[-from_end]).isascii() and chr(record[-from_end]).isdigit()
    found = stored_record_crc(bytes(record))
    assert found != 638775120
    assert (found is not None) == still_digit


@pytest.mark.parametrize(
    "record", [MESSAGE, b"", MESSAGE_WITH_CRC[-19:], MESSAGE_WITH_CRC[:-1], MESSAGE_WITH_CRC + b"\x02"]
)
def test_no_property_at_the_end_means_no_crc(record: bytes) -> None:
    """Only the last 20 bytes count."""
    assert stored_record_crc(record) is None


# Made by running MessageDecoder#createMessageId.
MESSAGE_IDS = [
    ("192.168.0.1", 10911, 1000, "C0A8000100002A9F00000000000003E8"),
    ("2001:db8::1", 10911, 1000, "20010DB800000000000000000000000100002A9F00000000000003E8"),
]


@pytest.mark.parametrize(("address", "port", "offset", "text"), MESSAGE_IDS)
def test_golden_message_ids(address: str, port: int, offset: int, text: str) -> None:
    """Host and offset give the broker's text and come back from it, in lower case too."""
    host = build_host(address, port)
    assert format_message_id(host, offset) == text
    assert parse_message_id(text) == parse_message_id(text.lower()) == (host, offset)


@given(st.sampled_from((8, 20)).flatmap(lambda size: st.binary(min_size=size, max_size=size)), int64s)
def test_a_parsed_id_is_the_formatted_one(host: bytes, offset: int) -> None:
    """Any host and offset come back."""
    assert parse_message_id(format_message_id(host, offset)) == (host, offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "C0A8",
        "C0A8000100002A9F00000000000003E",
        "C0A8000100002A9F00000000000003E80",
        "A" * 55,
        "G" * 32,
        " " * 32,
        "C0A80001 00002A9F 0000000000003E",
        "-0A8000100002A9F00000000000003E8",
        "\N{FULLWIDTH LATIN CAPITAL LETTER A}" * 32,
    ],
)
def test_what_is_no_message_id_is_a_format_error(text: str) -> None:
    """Other lengths and other characters are refused, spaces too."""
    with pytest.raises(FormatError, match="a message id has"):
        parse_message_id(text)


@given(st.text(max_size=60) | st.text("0123456789ABCDEF \n", min_size=32, max_size=32))
def test_any_text_gives_an_id_or_a_format_error(text: str) -> None:
    """What is accepted is the id's own text."""
    try:
        host, offset = parse_message_id(text)
    except FormatError:
        return
    assert format_message_id(host, offset) == text.upper()


@pytest.mark.parametrize(("host", "offset"), [(b"", 0), (bytes(9), 0), (bytes(8), 1 << 63)])
def test_what_does_not_fit_has_no_message_id(host: bytes, offset: int) -> None:
    """A host of another size or a too large offset raises FormatError."""
    with pytest.raises(FormatError):
        format_message_id(host, offset)
