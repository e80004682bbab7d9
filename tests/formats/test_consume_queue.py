"""Consume queue units, and those of batches."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.consume_queue import (
    BATCH_UNIT_DTYPE,
    BATCH_UNIT_SIZE,
    MAX_EXT_ADDRESS,
    UNIT_DTYPE,
    UNIT_SIZE,
    BatchConsumeQueueUnit,
    build_unit,
    is_batch_written,
    is_ext_address,
    is_pre_blank,
    is_written,
    leading_offsets,
)
from rmqtool.formats.layout import FormatError, build, decode_units
from tests.formats.samples import int32s, int64s

UNIT = bytes.fromhex("00000000000003E8 000000A8 000000000027A807")  # of the golden message, tag TagA
PRE_BLANK = bytes.fromhex("0000000000000000 7FFFFFFF 0000000000000000")
NEVER_WRITTEN = bytes(20)
NEGATIVE_OFFSET = bytes.fromhex("FFFFFFFFFFFFFFFF 000000A8 0000000000000000")
NEGATIVE_SIZE = bytes.fromhex("00000000000003E8 FFFFFFFF 0000000000000000")
AT_ZERO = bytes.fromhex("0000000000000000 00000001 0000000000000000")


def test_golden_unit() -> None:
    """A unit is position, whole size and tags code."""
    assert decode_units(UNIT_DTYPE, UNIT).tolist() == [(1000, 168, 2598919)]
    assert build_unit(1000, 168, 2598919) == UNIT
    assert len(UNIT) == UNIT_SIZE


@given(st.lists(st.tuples(int64s, int32s, int64s), max_size=8))
def test_decode_inverts_build(units: list[tuple[int, int, int]]) -> None:
    """Any units come back from their bytes."""
    assert decode_units(UNIT_DTYPE, b"".join(build_unit(*unit) for unit in units)).tolist() == units


@pytest.mark.parametrize("rest", range(UNIT_SIZE))
def test_a_partial_last_unit_is_left_out(rest: int) -> None:
    """Only whole units count, from any kind of buffer."""
    data = UNIT * 2 + UNIT[:rest]
    for raw in (data, bytearray(data), memoryview(data)):
        assert decode_units(UNIT_DTYPE, raw).tolist() == [(1000, 168, 2598919)] * 2


def test_units_are_a_view() -> None:
    """Decoding copies nothing."""
    data = bytearray(UNIT)
    units = decode_units(UNIT_DTYPE, data)
    data[7] = 0
    assert units["physical_offset"].tolist() == [768]


def test_written_and_pre_blank() -> None:
    """The broker's test lets pre-blank units pass, but not zeros or negative numbers."""
    units = decode_units(UNIT_DTYPE, UNIT + PRE_BLANK + NEVER_WRITTEN + NEGATIVE_OFFSET + NEGATIVE_SIZE + AT_ZERO)
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


def leading_by_columns(data: bytes) -> list[int]:
    units = decode_units(UNIT_DTYPE, data)
    written = is_written(units)
    count = len(units) if written.all() else int(written.argmin())
    return [int(offset) for offset in units["physical_offset"][:count]]


@pytest.mark.parametrize("count", [0, 1, 14, 29])
def test_few_units_before_zeros(count: int) -> None:
    data = b"".join(build_unit(offset, 300, 0) for offset in range(count)).ljust(200 * UNIT_SIZE, b"\0")
    assert leading_offsets(data) == tuple(range(count))


@pytest.mark.parametrize("data", [build_unit(7, 300, 9), build_unit(7, 300, 0), b"", b"\0" * UNIT_SIZE, b"\1" * 640])
def test_a_file_without_room_for_more(data: bytes) -> None:
    offsets = leading_offsets(data)
    assert offsets is None or [*offsets] == leading_by_columns(data)


@pytest.mark.slow
def test_any_bytes_are_read_as_the_broker_reads_them() -> None:
    """Zeros at any place within units, negative numbers, and units that begin with zeros."""
    source, plain = random.Random(7), 0
    for _ in range(4000):
        data = bytearray(200 * UNIT_SIZE)
        for position in source.sample(range(40 * UNIT_SIZE), source.choice((0, 1, 4, 60, 300))):
            data[position] = source.choice((1, 127, 128, 255))
        for number in range(source.randrange(20)):
            unit = build_unit(source.choice((0, 5, -1, 1 << 40)), source.choice((1, 256, 1 << 24, -5, 300)), 0)
            data[number * UNIT_SIZE : (number + 1) * UNIT_SIZE] = unit
        offsets = leading_offsets(bytes(data))
        plain += offsets is not None
        assert offsets is None or [*offsets] == leading_by_columns(bytes(data))
    assert plain > 200


BATCH = bytes.fromhex(
    "00000000000003E8 000000A8 000000000027A807 0000018BCFE5687B 000000000000002A 0003 FFFFFFFF 00000000"
)
BATCH_VALUES = (1000, 168, 2598919, 1700000000123, 42, 3, -1, 0)
END_MARKER = bytes.fromhex(  # SparseConsumeQueue#putEndPositionInfo
    "FFFFFFFFFFFFFFFF 00000000 0000000000000000 0000000000000000 0000000000000000 0000 FFFFFFFF 00000000"
)


def test_batch_unit() -> None:
    """Each field of a unit stands where BatchConsumeQueue#putBatchMessagePositionInfo puts it."""
    assert decode_units(BATCH_UNIT_DTYPE, BATCH).tolist() == [BATCH_VALUES]
    assert decode_units(BATCH_UNIT_DTYPE, END_MARKER).tolist() == [(-1, 0, 0, 0, 0, 0, -1, 0)]
    fields = dict(zip(decode_units(BATCH_UNIT_DTYPE, BATCH).dtype.names or (), BATCH_VALUES, strict=True))
    assert build(BatchConsumeQueueUnit, fields) == BATCH
    assert BATCH_UNIT_SIZE == 46


@pytest.mark.parametrize("rest", [0, 1, 45])
def test_a_partial_last_batch_unit_is_left_out(rest: int) -> None:
    """Only whole units count."""
    assert len(decode_units(BATCH_UNIT_DTYPE, BATCH * 2 + BATCH[:rest])) == 2


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("physical_offset", 0, True),
        ("physical_offset", -1, False),
        ("message_size", 1, True),
        ("message_size", 0, False),
        ("base_queue_offset", 0, True),
        ("base_queue_offset", -1, False),
        ("batch_size", 1, True),
        ("batch_size", 0, False),
        ("tags_code", -1, True),
    ],
)
def test_each_part_of_the_brokers_test_of_a_batch(field: str, value: int, expected: bool) -> None:
    """A unit counts with an offset, a size, a base and messages, whatever else it holds."""
    units = decode_units(BATCH_UNIT_DTYPE, bytearray(BATCH + BATCH))
    units[field][0] = value
    np.testing.assert_array_equal(is_batch_written(units), [expected, True])


def test_markers_and_zeros_are_not_written() -> None:
    """The end marker of a sparse queue and the unused rest of a file are no units."""
    assert not is_batch_written(decode_units(BATCH_UNIT_DTYPE, END_MARKER + bytes(BATCH_UNIT_SIZE))).any()
