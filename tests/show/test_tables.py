"""Tables for people: a line for each row, in columns that only widen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rmqtool.base.visible import visible
from rmqtool.show.tables import TableWriter
from tests.scan.made_rows import rows_of, tables

pytestmark = pytest.mark.budget(1)  # a hundred tables


@given(tables)
def test_a_table_has_one_line_for_each_row(values: list[dict[str, Any]]) -> None:
    """Whatever is in there, one header and a line for each."""
    text = TableWriter(["number", "text", "keys", "missing"]).lines(rows_of(values)).decode()
    assert text.count("\n") == 1 + len(values)
    assert visible(text.replace("\n", "")) == text.replace("\n", "")


def test_columns_of_a_table_stand_below_each_other() -> None:
    """Numbers to the right, text to the left, wide characters counted as two; a later part may only widen."""
    base = {"kind": "k", "small": 1, "flag": True, "keys": [], "properties": [], "extra": None}
    writer = TableWriter(["text", "number", "extra"])
    first = writer.lines(rows_of([{**base, "number": 7, "text": "中文"}, {**base, "number": -12345678, "text": "ab"}]))
    assert first.decode().splitlines() == [
        "text     number  extra",
        "中文          7  -",
        "ab    -12345678  -",
    ]
    second = writer.lines(rows_of([{**base, "number": 1, "text": "longer", "extra": "x"}]))
    assert second.decode() == "longer          1  x\n"
