"""Consume queue units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.consume_queue import (
    MAX_EXT_ADDRESS,
    UNIT_SIZE,
    build_unit,
    decode_units,
    is_ext_address,
    is_pre_blank,
    is_written,
)
from rmqtool.formats.layout import FormatError
from tests.formats.samples import int32s, int64s

UNIT = bytes.fromhex("00000000000003E8 000000A8 000000000027A807")  # of the golden message, tag TagA
PRE_BLANK = bytes.fromhex("0000000000000000 7FFFFFFF 0000000000000000")
NEVER_WRITTEN = bytes(20)
NEGATIVE_OFFSET = bytes.fromhex("FFFFFFFFFFFFFFFF 000000A8 0000000000000000")
NEGATIVE_SIZE = bytes.fromhex("00000000000003E8 FFFFFFFF 0000000000000000")
AT_ZERO = bytes.fromhex("0000000000000000 00000001 0000000000000000")


def test_golden_unit() -> None:
    """A unit is position, whole size and tags code."""
    assert decode_units(UNIT).tolist() == [(1000, 168, 2598919)]
    assert build_unit(1000, 168, 2598919) == UNIT
    assert len(UNIT) == UNIT_SIZE


@given(st.lists(st.tuples(int64s, int32s, int64s), max_size=8))
def test_decode_inverts_build(units: list[tuple[int, int, int]]) -> None:
    """Any units come back from their bytes."""
    assert decode_units(b"".join(build_unit(*unit) for unit in units)).tolist() == units


@pytest.mark.parametrize("rest", range(UNIT_SIZE))
def test_a_partial_last_unit_is_left_out(rest: int) -> None:
    """Only whole units count, from any kind of buffer."""
    data = UNIT * 2 + UNIT[:rest]
    for raw in (data, bytearray(data), memoryview(data)):
        assert decode_units(raw).tolist() == [(1000, 168, 2598919)] * 2


def test_units_are_a_view() -> None:
    """Decoding copies nothing."""
    data = bytearray(UNIT)
    units = decode_units(data)
    data[7] = 0
    assert units["physical_offset"].tolist() == [768]


def test_written_and_pre_blank() -> None:
    """The broker's test lets pre-blank units pass, but not zeros or negative numbers."""
    units = decode_units(UNIT + PRE_BLANK + NEVER_WRITTEN + NEGATIVE_OFFSET + NEGATIVE_SIZE + AT_ZERO)
    np.testing.assert_array_equal(is_written(units), [True, True, False, False, False, True])
    np.testing.assert_array_equal(is_pre_blank(units), [False, True, False, False, False, False])


@pytest.mark.parametrize(
    ("tags_code", "expected"),
    [
        (-(1 << 63), True),
        (MAX_EXT_ADDRESS, True),
        (-2147483649, True),
        (-2147483648, False),
        (0, False),
        (1 << 62, False),
    ],
)
def test_ext_addresses(tags_code: int, expected: bool) -> None:
    """Exactly what is below every 32-bit hash is an address."""
    assert is_ext_address(tags_code) is expected


@pytest.mark.parametrize("unit", [(1 << 63, 0, 0), (0, 1 << 31, 0), (0, 0, -(1 << 63) - 1)])
def test_values_that_do_not_fit_are_not_built(unit: tuple[int, int, int]) -> None:
    """A value too large for its field raises FormatError."""
    with pytest.raises(FormatError):
        build_unit(*unit)
