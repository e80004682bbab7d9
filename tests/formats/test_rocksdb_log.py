"""The logs of a RocksDB database: the oldest log that a MANIFEST asks for, and what is none."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_log import crc32c, first_damage, oldest_log, payloads

FULL, FIRST, MIDDLE, LAST = range(1, 5)
COMPARATOR = b"\x01\x1aleveldb.BytewiseComparator"
BLOCK, HEADER = 1 << 15, 7


def record(kind: int, data: bytes) -> bytes:
    """A record of a log."""
    crc = crc32c(bytes([kind]) + data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, "little") + len(data).to_bytes(2, "little") + bytes([kind]) + data


def manifest(*edits: bytes) -> bytes:
    return b"".join(record(FULL, edit) for edit in edits)


@pytest.mark.parametrize(
    ("edits", "oldest"),
    [
        ((), 0),
        ((b"",), 0),
        ((COMPARATOR, b"\x02\x0a\x09\x00\x03\x0c\x04\x02"), 0),
        ((b"\x09\x00\x03\x0c\x0a\x0a\x04\x02",), 10),
        ((b"\x0a\x12", b"\x0a\x08"), 18),
        ((COMPARATOR + b"\x0a\xac\x02",), 300),
        ((b"\x81\x40\x02ID\x89\x40\x01\x01\x0a\x07",), 7),
        ((b"\x02\x0a\x67\x00\x0a\x0a",), 0),  # of a table, after which no such field comes
    ],
)
def test_the_oldest_log(edits: tuple[bytes, ...], oldest: int) -> None:
    """The greatest number that any change gives."""
    assert oldest_log(manifest(*edits)) == oldest
    assert oldest_log(manifest(*edits) + bytes(100)) == oldest  # allocated in advance


@pytest.mark.parametrize("edit", [b"\x0a", b"\x0a\xff", b"\x0a" + b"\xff" * 12, b"\xff", b"\x01\x05abc"])
def test_a_change_that_is_none(edit: bytes) -> None:
    """It ends in the middle of a field."""
    with pytest.raises(FormatError):
        oldest_log(manifest(b"\x0a\x05", edit))


def test_a_change_in_parts() -> None:
    """A record that does not fit into its block goes on in the next ones."""
    text = b"x" * (2 * BLOCK)
    edit = b"\x01\x80\x80\x04" + text + b"\x0a\x2a"  # 4 << 14 bytes
    room = BLOCK - HEADER
    parts = [record(FIRST, edit[:room]), record(MIDDLE, edit[room : 2 * room]), record(LAST, edit[2 * room :])]
    assert oldest_log(b"".join(parts)) == 42
    assert list(payloads(b"".join(parts))) == [edit]
    for wrong in (parts[:2], parts[1:], [parts[0], parts[0], *parts[1:]]):
        assert first_damage(b"".join(wrong)) is None
        with pytest.raises(FormatError):
            oldest_log(b"".join(wrong))


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit(at: int, bit: int) -> None:
    """It is found, wherever it is."""
    data = bytearray(manifest(COMPARATOR, b"\x0a\x12", b"\x02\x14\x09\x00\x03\x16\x0a\x14"))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(FormatError):
        oldest_log(bytes(data))


@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """As a file, and as a change in a whole record: a number or a FormatError."""
    for content in (data, manifest(data)):
        with suppress(FormatError):
            assert oldest_log(content) >= 0
