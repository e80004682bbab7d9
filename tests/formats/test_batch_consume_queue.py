"""Batch consume queue units."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.formats.batch_consume_queue import UNIT_SIZE, BatchConsumeQueueUnit, decode_units, is_written
from rmqtool.formats.layout import build

UNIT = bytes.fromhex(
    "00000000000003E8 000000A8 000000000027A807 0000018BCFE5687B 000000000000002A 0003 FFFFFFFF 00000000"
)
VALUES = (1000, 168, 2598919, 1700000000123, 42, 3, -1, 0)
END_MARKER = bytes.fromhex(  # SparseConsumeQueue#putEndPositionInfo
    "FFFFFFFFFFFFFFFF 00000000 0000000000000000 0000000000000000 0000000000000000 0000 FFFFFFFF 00000000"
)


def test_unit() -> None:
    """Each field of a unit stands where BatchConsumeQueue#putBatchMessagePositionInfo puts it."""
    assert decode_units(UNIT).tolist() == [VALUES]
    assert decode_units(END_MARKER).tolist() == [(-1, 0, 0, 0, 0, 0, -1, 0)]
    fields = dict(zip(decode_units(UNIT).dtype.names or (), VALUES, strict=True))
    assert build(BatchConsumeQueueUnit, fields) == UNIT
    assert UNIT_SIZE == 46


@pytest.mark.parametrize("rest", [0, 1, 45])
def test_a_partial_last_unit_is_left_out(rest: int) -> None:
    """Only whole units count."""
    assert len(decode_units(UNIT * 2 + UNIT[:rest])) == 2


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
def test_each_part_of_the_brokers_test(field: str, value: int, expected: bool) -> None:
    """A unit counts with an offset, a size, a base and messages, whatever else it holds."""
    units = decode_units(bytearray(UNIT + UNIT))
    units[field][0] = value
    np.testing.assert_array_equal(is_written(units), [expected, True])


def test_markers_and_zeros_are_not_written() -> None:
    """The end marker of a sparse queue and the unused rest of a file are no units."""
    assert not is_written(decode_units(END_MARKER + bytes(UNIT_SIZE))).any()
