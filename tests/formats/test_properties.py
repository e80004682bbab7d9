"""Message properties, against the broker's rule written out and its own results."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import (
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
    split_keys,
    tags_code,
)
from tests.formats.samples import MESSAGE_FIELDS

PIECES = (
    b"\x01",
    b"\x02",
    b"A",
    b"B",
    b"TAGS",
    b"\x00",
    "é".encode(),
    "😀".encode(),
    b"\xff",
    b"\xed\xa0\x80",
    b"\xe4\xb8",
)
MIN_SEGMENT = 3

names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1, max_size=8)


def by_index_of(text: str) -> dict[str, str]:
    """`MessageDecoder#string2messageProperties` of 4.9.1 and later, step by step."""
    properties = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        end = len(text) if end < 0 else end
        if end - index >= MIN_SEGMENT:
            separator = text.find("\x01", index)
            if index < separator < end - 1:
                properties[text[index:separator]] = text[separator + 1 : end]
        index = end + 1
    return properties


def test_golden_properties() -> None:
    """The properties of a message that a broker encoded are read."""
    assert decode_properties(MESSAGE_FIELDS["properties"]) == {
        TAGS: "TagA",
        KEYS: "k1 k2",
        UNIQUE_KEY: "0A010203000100000000000000000000",
    }


def test_golden_odd_properties() -> None:
    """Empty names and values, a separator in a value, duplicates and a missing end are read as a broker does."""
    data = b"A\x011\x02B\x01\x02\x01x\x02C\x01a\x01b\x02A\x012\x02D\x015"
    assert decode_properties(data) == {"A": "2", "C": "a\x01b", "D": "5"}


@given(st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join))
@example(b"\x02\x02\x01\x02A\x01\x02\x01A\x02A\x01B")
@example(b"A\x01\x01\x02")
def test_decode_follows_the_brokers_rule(data: bytes) -> None:
    """Splitting bytes finds what the broker's search over characters finds, in the same order."""
    assert list(decode_properties(data).items()) == list(by_index_of(decode_text(data)).items())


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded(data: bytes) -> None:
    """Noise is decoded as the broker decodes it."""
    assert decode_properties(data) == by_index_of(decode_text(data))


@pytest.mark.parametrize("trailing_separator", [True, False])
@given(properties=st.dictionaries(names, values, max_size=6))
def test_decode_inverts_encode(trailing_separator: bool, properties: dict[str, str]) -> None:
    """Names and values come back in their order, with and without the last separator."""
    data = encode_properties(properties, trailing_separator=trailing_separator)
    assert list(decode_properties(data).items()) == list(properties.items())
    assert data.endswith(b"\x02") == (trailing_separator and bool(properties))


def test_encode_golden_properties() -> None:
    """The bytes are the broker's, and 4.9.1 to 5.1.4 leave out just the last one."""
    properties = {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "0A010203000100000000000000000000"}
    assert encode_properties(properties) == MESSAGE_FIELDS["properties"]
    assert encode_properties(properties, trailing_separator=False) == MESSAGE_FIELDS["properties"][:-1]


def test_separators_are_those_of_the_encoding() -> None:
    """The numbers that others search for are the bytes that stand between names and values."""
    assert encode_properties({"A": "1"}) == b"A%c1%c" % (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (None, []),
        ("", []),
        (" ", []),
        ("k1", ["k1"]),
        ("k1 k2", ["k1", "k2"]),
        ("  k1   k2 ", ["k1", "k2"]),
        ("a\tb", ["a\tb"]),
    ],
)
def test_split_keys(keys: str | None, expected: list[str]) -> None:
    """Keys are what stands between single spaces, empty ones left out."""
    assert split_keys(keys) == expected


@pytest.mark.parametrize(("tags", "expected"), [(None, 0), ("", 0), ("TagA", 2598919), ("TagA || TagB", 1359775119)])
def test_tags_code(tags: str | None, expected: int) -> None:
    """The code is the hash of the whole text, 0 without tags."""
    assert tags_code(tags) == expected
