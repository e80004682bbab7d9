"""Rows: columns to rows and back, and times of whole columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.base.times import rfc3339
from rmqtool.scan.rows import make_rows, names_taken, one_row, times_of

timestamps = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-62_135_596_900_000, 253_402_300_900_000)


@given(st.lists(timestamps | st.none(), max_size=12))
def test_times_of_a_column_are_those_of_each(values: list[int | None]) -> None:
    """Any 64-bit number, and null, gives what one of it gives."""
    assert times_of(pa.array(values, pa.int64())).to_pylist() == [rfc3339(value) for value in values]


def test_rows_from_big_endian_numbers() -> None:
    """Arrow knows no byte order but the machine's: NumPy columns are turned, in whatever width."""
    rows = make_rows(
        "unit", {"a": np.array([1, -2], ">i4"), "b": np.array([1 << 40, 0], ">i8"), "c": pa.array(["x", None])}
    )
    assert rows.dicts() == [
        {"kind": "unit", "a": 1, "b": 1 << 40, "c": "x"},
        {"kind": "unit", "a": -2, "b": 0, "c": None},
    ]
    assert [field.type for field in rows.batch.schema] == [pa.string(), pa.int32(), pa.int64(), pa.string()]


def test_optional_columns_are_left_out_where_null() -> None:
    """Only those that are called so."""
    rows = make_rows("unit", {"a": pa.array([1, None]), "b": pa.array([None, 2])}, optional=["b"])
    assert rows.dicts() == [{"kind": "unit", "a": 1}, {"kind": "unit", "a": None, "b": 2}]


def test_order_and_choice() -> None:
    """Reversed rows, some of them, some columns: the kind stays the first."""
    rows = make_rows(names_taken(("x", "y"), np.array([0, 1, 1])), {"a": np.arange(3), "b": np.arange(3) * 2})
    assert [row["a"] for row in rows.reversed().dicts()] == [2, 1, 0]
    assert rows.slice(1, 5).dicts() == [{"kind": "y", "a": 1, "b": 2}, {"kind": "y", "a": 2, "b": 4}]
    assert rows.select(["b", "nothing", "kind"]).slice(0, 1).dicts() == [{"kind": "x", "b": 0}]
    assert one_row("k", {"a": None}).dicts() == [{"kind": "k", "a": None}]
