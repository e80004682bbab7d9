"""Offset message ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.host import build_host
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message_id import format_message_id, parse_message_id
from tests.formats.samples import int64s

# Made by running MessageDecoder#createMessageId.
GOLDEN = [
    ("192.168.0.1", 10911, 1000, "C0A8000100002A9F00000000000003E8"),
    ("2001:db8::1", 10911, 1000, "20010DB800000000000000000000000100002A9F00000000000003E8"),
]


@pytest.mark.parametrize(("address", "port", "offset", "text"), GOLDEN)
def test_golden_message_ids(address: str, port: int, offset: int, text: str) -> None:
    """Host and offset give the broker's text and come back from it, in lower case too."""
    host = build_host(address, port)
    assert format_message_id(host, offset) == text
    assert parse_message_id(text) == parse_message_id(text.lower()) == (host, offset)


@given(st.sampled_from((8, 20)).flatmap(lambda size: st.binary(min_size=size, max_size=size)), int64s)
def test_parse_inverts_format(host: bytes, offset: int) -> None:
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
