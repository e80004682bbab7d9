"""Names of mapped files and index files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.file_name import MAX_OFFSET, file_name, is_index_name, start_offset_of


@pytest.mark.parametrize(
    ("offset", "name"),
    [(0, "00000000000000000000"), (1073741824, "00000000001073741824"), (MAX_OFFSET, "09223372036854775807")],
)
def test_golden_names(offset: int, name: str) -> None:
    """`UtilAll#offset2FileName` writes 20 digits."""
    assert file_name(offset) == name
    assert start_offset_of(name) == offset


@given(st.integers(0, MAX_OFFSET))
def test_start_offset_inverts_name(offset: int) -> None:
    """Any offset comes back from its name."""
    assert start_offset_of(file_name(offset)) == offset


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0" * 19,
        "0" * 21,
        "0000000000000000000a",
        "00000000000000000000\n",
        "+0000000000000000000",
        " 0000000000000000000",
        "0000000000000000_000",
        "00000000000000000000.delete",
        "09223372036854775808",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 20,
    ],
)
def test_what_is_no_name_has_no_offset(name: str) -> None:
    """Other names, and offsets beyond a signed 64-bit number, are not a mapped file's."""
    assert start_offset_of(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20231114221320123", True),
        ("2023111422132012", False),
        ("202311142213201234", False),
        ("2023111422132012x", False),
        ("20231114221320123\n", False),
        ("\N{ARABIC-INDIC DIGIT TWO}" * 17, False),
        ("", False),
    ],
)
def test_index_names(name: str, expected: bool) -> None:
    """An index file's name has 17 digits."""
    assert is_index_name(name) is expected
