"""Java's text rules, against values that a JDK gave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.java import decode_text, string_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagA || TagB", 1359775119),
        ("中文标签", 622041809),
        ("😀tag", 1276941143),
        ("TopicTest#key1", -1655984460),
        ("%RETRY%g#AC1100", -1412503584),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_golden_string_hashes(text: str, expected: int) -> None:
    """`String#hashCode` of a JDK, characters beyond the BMP as two units."""
    assert string_hash(text) == expected


@given(st.text(st.characters(), max_size=30), st.text(st.characters(), max_size=30))
def test_hash_of_a_concatenation(left: str, right: str) -> None:
    """The hash is a polynomial in 31 over UTF-16 units, modulo 2**32, as a signed number."""
    shift = pow(31, len(right.encode("utf-16-be", "surrogatepass")) // 2, 1 << 32)
    whole = string_hash(left + right)
    assert -(1 << 31) <= whole < 1 << 31
    assert (whole - string_hash(left) * shift - string_hash(right)) % (1 << 32) == 0


def test_a_lone_surrogate_counts_as_itself() -> None:
    """Half a pair, which Java strings may hold, is hashed as one unit."""
    assert string_hash("\ud83d") == 0xD83D
    assert string_hash("\ud83d") * 31 + string_hash("\ude00") == string_hash("😀")


@pytest.mark.parametrize(
    ("stored", "expected"),
    # `new String(bytes, UTF_8)` of JDK 17 and 25
    [
        ("E4 B8 AD E6 96 87", "中文"),
        ("F0 9F 98 80", "😀"),
        ("41 FF 42", "A\ufffdB"),
        ("41 80 42", "A\ufffdB"),
        ("C0 80", "\ufffd\ufffd"),
        ("C2", "\ufffd"),
        ("C2 41", "\ufffdA"),
        ("E4 B8", "\ufffd"),
        ("E4 B8 41", "\ufffdA"),
        ("E4 01 41", "\ufffd\x01A"),
        ("E0 80 80", "\ufffd\ufffd\ufffd"),
        ("ED A0 80", "\ufffd"),
        ("ED BF BF", "\ufffd"),
        ("ED A0 BD ED B8 80", "\ufffd\ufffd"),
        ("41 ED A0 80 42", "A\ufffdB"),
        ("ED A0", "\ufffd"),
        ("ED A0 41", "\ufffdA"),
        ("ED 9F", "\ufffd"),
        ("E4 ED A0 80", "\ufffd\ufffd"),
        ("F0 80 80 80", "\ufffd\ufffd\ufffd\ufffd"),
        ("F0 9F 98", "\ufffd"),
        ("F0 9F 98 41", "\ufffdA"),
        ("F4 90 80 80", "\ufffd\ufffd\ufffd\ufffd"),
        ("F5 80", "\ufffd\ufffd"),
    ],
)
def test_golden_texts(stored: str, expected: str) -> None:
    """Invalid UTF-8 gives as many replacement characters as a JDK writes."""
    assert decode_text(bytes.fromhex(stored)) == expected


@given(st.text())
def test_valid_text_is_decoded(text: str) -> None:
    """Text that is UTF-8 comes back unchanged."""
    assert decode_text(text.encode()) == text


@given(st.text(max_size=5), st.binary(max_size=8), st.text(max_size=5))
def test_ascii_ends_damage(before: str, damage: bytes, after: str) -> None:
    """What is invalid between two separators stays between them."""
    whole = decode_text(before.encode() + b"\x02" + damage + b"\x02" + after.encode())
    assert whole == f"{before}\x02{decode_text(damage)}\x02{after}"
