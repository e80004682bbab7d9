"""Unique keys of clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.layout import FormatError
from rmqtool.formats.unique_key import parse_unique_key

REST = "FFFE 80000001 9A7EC7FF FFFF"  # what follows the address, each number with its highest bit set
REST_FIELDS = (0xFFFE, -(1 << 31) + 1, 0x9A7EC7FF, 0xFFFF)


@pytest.mark.parametrize("address", ["0A010203", "20010DB8000000000000000000000001"])
def test_unique_key(address: str) -> None:
    """The parts stand where MessageClientIDSetter puts them; only the class loader's hash is signed."""
    fields = parse_unique_key((address + REST).replace(" ", ""))
    assert fields.address == bytes.fromhex(address)
    assert (fields.process_id, fields.class_loader_hash, fields.ms_in_month, fields.counter) == REST_FIELDS


@pytest.mark.parametrize(
    "text", ["", "0A01", "0" * 31, "0" * 33, "0" * 55, "0" * 57, "x" * 32, " " * 32, "0A010203 0001 0000 0000 0000 000"]
)
def test_what_is_no_unique_key_is_a_format_error(text: str) -> None:
    """Other lengths and other characters are refused, spaces too."""
    with pytest.raises(FormatError):
        parse_unique_key(text)


@given(st.text(max_size=60) | st.text("0123456789ABCDEF \n", min_size=32, max_size=32))
def test_any_text_gives_a_key_or_a_format_error(text: str) -> None:
    """What is accepted is hex digits from the first to the last."""
    try:
        fields = parse_unique_key(text)
    except FormatError:
        return
    assert bytes.fromhex(text)[: len(fields.address)] == fields.address
    assert set(text) <= set("0123456789abcdefABCDEF")
