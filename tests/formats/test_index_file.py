"""Index files: geometry, hash, header and units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.index_file import (
    DEFAULT_SLOTS,
    DEFAULT_UNITS,
    HEADER_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    UNIT_DTYPE,
    UNIT_SIZE,
    file_size,
    key_hash,
    unit_position,
)
from rmqtool.formats.java import string_hash
from rmqtool.formats.layout import decode_units

HEADER = bytes.fromhex("0000018BCFE5687B 0000018BCFE56C63 00000000000003E8 0000000000000490 00000001 00000003")
UNITS = bytes.fromhex("62B4514C 00000000000003E8 00000000 00000000  62B4514C 0000000000000490 00000001 00000001")


def test_default_geometry() -> None:
    """A file of the default configuration has 420,000,040 bytes: header, slots, units."""
    assert file_size(DEFAULT_SLOTS, DEFAULT_UNITS) == 420_000_040
    assert (HEADER_SIZE, UNIT_SIZE) == (40, 20)
    assert SLOT_DTYPE.str == ">i4"


@pytest.mark.parametrize(
    ("slots", "number", "expected"), [(DEFAULT_SLOTS, 0, 20_000_040), (DEFAULT_SLOTS, 1, 20_000_060), (3, 2, 92)]
)
def test_unit_position(slots: int, number: int, expected: int) -> None:
    """Units follow the slots; the unused unit 0 takes a place."""
    assert unit_position(slots, number) == expected


@pytest.mark.parametrize(
    ("topic", "key", "expected"),
    [("TopicTest", "key1", 1655984460), ("%RETRY%g", "AC1100", 1412503584), ("", "", 35)],
)
def test_golden_key_hashes(topic: str, key: str, expected: int) -> None:
    """`IndexFile#indexKeyHashMethod`: the absolute value of the hash of topic, number sign and key."""
    assert key_hash(topic, key) == expected


def test_smallest_hash_becomes_zero() -> None:
    """`Integer.MIN_VALUE`, which Java's abs leaves negative, is stored as 0."""
    assert string_hash("TopicTest#aXA4ptp") == -(1 << 31)
    assert key_hash("TopicTest", "aXA4ptp") == 0


@given(st.text(max_size=10), st.text(max_size=10))
def test_a_key_hash_is_never_negative(topic: str, key: str) -> None:
    """The stored hash fits a signed field without its sign."""
    assert 0 <= key_hash(topic, key) < 1 << 31


def test_header() -> None:
    """Each field of the header stands where IndexHeader puts it."""
    assert np.frombuffer(HEADER, HEADER_DTYPE).tolist() == [(1700000000123, 1700000001123, 1000, 1168, 1, 3)]


def test_units() -> None:
    """Each field of a unit stands where IndexFile#putKey puts it; a partial last unit is left out."""
    expected = [(1655984460, 1000, 0, 0), (1655984460, 1168, 1, 1)]
    for rest in (0, UNIT_SIZE - 1):
        assert decode_units(UNIT_DTYPE, UNITS + UNITS[:rest]).tolist() == expected
