"""The checksums of a body and of a whole record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.crc import CRC32_PROPERTY_SIZE, body_crc, build_crc32_property, record_crc, stored_record_crc
from tests.formats.samples import MESSAGE, MESSAGE_FIELDS, MESSAGE_WITH_CRC


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
