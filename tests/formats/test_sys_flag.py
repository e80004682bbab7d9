"""The bits of the sys flag."""

from __future__ import annotations

import pytest

from rmqtool.formats import sys_flag
from rmqtool.formats.sys_flag import compression, transaction


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
        sys_flag.COMPRESSED,
        sys_flag.MULTI_TAGS,
        sys_flag.TRANSACTION_MASK,
        sys_flag.BORN_HOST_V6,
        sys_flag.STORE_HOST_V6,
        sys_flag.NEED_UNWRAP,
        sys_flag.INNER_BATCH,
        sys_flag.COMPRESSION_TYPE_MASK,
    )
    assert bits == (0x001, 0x002, 0x00C, 0x010, 0x020, 0x040, 0x080, 0x700)
    types = (sys_flag.TRANSACTION_NONE, sys_flag.TRANSACTION_PREPARED, sys_flag.TRANSACTION_COMMIT)
    assert (*types, sys_flag.TRANSACTION_ROLLBACK) == (0x0, 0x4, 0x8, 0xC)
