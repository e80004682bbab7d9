"""Tables for people: a line for each row, in columns that only widen."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rmqtool.base.visible import visible
from rmqtool.show.tables import TableWriter
from tests.scan.made_rows import rows_of, tables

pytestmark = pytest.mark.budget(1)  # a hundred tables


@pytest.mark.slow
@given(tables)
def test_a_table_has_one_line_for_each_row(values: list[dict[str, Any]]) -> None:
    """Whatever is in there, one header and a line for each."""
    text = TableWriter(["number", "text", "keys", "missing"]).lines(rows_of(values).batch).decode()
    assert text.count("\n") == 1 + len(values)
    assert visible(text.replace("\n", "")) == text.replace("\n", "")


def test_columns_of_a_table_stand_below_each_other() -> None:
    """Numbers to the right, text to the left, wide characters counted as two; a later part may only widen."""
    base = {"kind": "k", "small": 1, "flag": True, "keys": [], "properties": [], "extra": None}
    writer = TableWriter(["text", "number", "extra"])
    first = writer.lines(
        rows_of([{**base, "number": 7, "text": "中文"}, {**base, "number": -12345678, "text": "ab"}]).batch
    )
    assert first.decode().splitlines() == [
        "text     number  extra",
        "中文          7  -",
        "ab    -12345678  -",
    ]
    second = writer.lines(rows_of([{**base, "number": 1, "text": "longer", "extra": "x"}]).batch)
    assert second.decode() == "longer          1  x\n"


@pytest.mark.slow
@given(tables, st.integers(1, 200))
def test_a_terminal_gets_rows_that_fit_where_they_can(values: list[dict[str, Any]], width: int) -> None:
    """Only texts are cut, and not below what names them; numbers stay whole."""
    names = ["number", "text", "keys", "missing"]
    whole = TableWriter(names).lines(rows_of(values).batch).decode().splitlines()
    cut = TableWriter(names, width).lines(rows_of(values).batch).decode().splitlines()
    if max(map(cell_len, whole)) <= width:
        assert cut == whole
    assert len(cut) == len(whole)
    least = 3 * 2 + max(len(str(value["number"])) for value in [*values, {"number": "number"}]) + 3 * 12
    assert max(map(cell_len, cut)) <= max(width, least)
    assert [line.split()[0] for line in cut] == [line.split()[0] for line in whole]


def test_long_names_are_cut_on_a_terminal() -> None:
    """The widest column first, and the end shows it; a time is never cut."""
    base = {"kind": "k", "small": 1, "flag": True, "keys": [], "properties": [], "extra": None}
    row = {**base, "number": 7, "text": "orders-" * 10, "extra": "中文" * 5}
    shown = TableWriter(["text", "number", "extra"], 40).lines(rows_of([row]).batch).decode().splitlines()
    assert shown == ["text          number  extra", "orders-orde…       7  中文中文中文中文…"]


@pytest.mark.slow
@given(tables, st.integers(20, 200))
def test_a_narrow_terminal_gets_fewer_columns(values: list[dict[str, Any]], width: int) -> None:
    """None that had room is left out, the first column never; what is left out is named."""
    names = ["number", "text", "keys", "missing"]
    writer = TableWriter(names, width, keep_all=False)
    shown = writer.lines(rows_of(values).batch).decode().splitlines()
    assert sorted([*writer.names, *writer.left_out]) == sorted(names)
    assert writer.names[0] == "number"
    assert max(map(cell_len, shown)) <= width or writer.names == ["number"]
    if max(map(cell_len, TableWriter(names, width).lines(rows_of(values).batch).decode().splitlines())) > width:
        assert writer.left_out


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (41, []),
        (40, ["message_size"]),
        (27, ["message_size"]),
        (26, ["message_size", "keys"]),
        (20, ["message_size", "tags", "keys"]),
        (1, ["message_size", "tags", "keys"]),
    ],
)
def test_what_an_offset_finds_is_left_out_first(width: int, left_out: list[str]) -> None:
    """The size of a message before its tags and keys; then the last columns."""
    row = {"physical_offset": 7, "message_size": 1, "tags": "paid", "keys": "K"}
    writer = TableWriter(list(row), width, keep_all=False)
    head = writer.lines(pa.RecordBatch.from_pylist([row])).decode().splitlines()[0]
    assert writer.left_out == left_out
    assert head.split() == [name for name in row if name not in left_out]
