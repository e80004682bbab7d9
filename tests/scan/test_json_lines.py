"""JSON lines and CSV of whole columns say what each row says alone."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.base.visible import json_text, visible
from rmqtool.scan.rows import csv_header, csv_lines, json_lines
from tests.scan.made_rows import OPTIONAL, rows_of, tables

pytestmark = pytest.mark.budget(1)  # a hundred tables each


@pytest.mark.slow
@given(tables, st.integers(0, 5))
def test_json_lines_are_those_of_each_row(values: list[dict[str, Any]], start: int) -> None:
    """Byte for byte what one object after the other gives: escapes, nulls, optional fields; slices too."""
    rows = rows_of(values).slice(start, 3)
    expected = "".join(json_text(row) + "\n" for row in rows.dicts())
    assert bytes(json_lines(rows.batch, rows.optional)).decode() == expected


@pytest.mark.slow
@given(tables)
def test_json_lines_are_json(values: list[dict[str, Any]]) -> None:
    """Each line is read back as the row, and holds no control character."""
    text = bytes(json_lines(rows_of(values).batch, OPTIONAL)).decode()
    assert [json.loads(line) for line in text.split("\n")[:-1]] == rows_of(values).dicts()
    assert visible(text.replace("\n", "")) == text.replace("\n", "")


@pytest.mark.slow
@given(tables)
def test_csv_is_read_back(values: list[dict[str, Any]]) -> None:
    """Python's own reader finds the same fields; null and empty text look alike."""
    names = ["number", "text", "keys", "properties", "flag", "missing", "extra"]
    data = csv_header(names) + bytes(csv_lines(rows_of(values).batch, names))
    found = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert found[0] == names
    for cells, value in zip(found[1:], values, strict=True):
        properties = json_text(dict(value["properties"]))
        flag = "true" if value["flag"] else "false"
        expected = [str(value["number"]), value["text"] or "", " ".join(value["keys"]), properties, flag, ""]
        assert cells == [*expected, value["extra"] or ""]


@pytest.mark.slow
@given(tables)
def test_csv_for_a_terminal_has_no_control_characters(values: list[dict[str, Any]]) -> None:
    """What is stored must not drive a terminal."""
    text = bytes(csv_lines(rows_of(values).batch, ["text", "keys"], visible=True)).decode()
    assert visible(text.replace("\n", "")) == text.replace("\n", "")
    assert text.count("\n") == len(values)


def test_numbers_and_times_are_written() -> None:
    """A decimal as a number where every reader keeps its digits, and a time with as many digits as it has."""
    moment = datetime(2026, 11, 21, 10, 52, tzinfo=timezone.utc)
    batch = pa.RecordBatch.from_pydict({
        "kind": ["k", "k"],
        "double": pa.array([1.5, None]),
        "short": pa.array([Decimal("1.50"), None], pa.decimal128(15, 2)),
        "long": pa.array([Decimal("1.50"), None], pa.decimal128(16, 2)),
        "time": pa.array([moment, None], pa.timestamp("us", "UTC")),
        "finer": pa.array([moment + timedelta(microseconds=1), None], pa.timestamp("us", "UTC")),
        "day": pa.array([moment.date(), None]),
    })  # fmt: skip
    first, second = bytes(json_lines(batch)).decode().splitlines()
    assert first == (
        '{"kind":"k","double":1.5,"short":1.50,"long":"1.50","time":"2026-11-21T10:52:00.000Z",'
        '"finer":"2026-11-21T10:52:00.000001Z","day":"2026-11-21"}'
    )
    assert set(json.loads(second).values()) == {"k", None}
    assert bytes(csv_lines(batch, ["double", "long", "time"])) == b"1.5,1.50,2026-11-21T10:52:00.000Z\n,,\n"


def test_a_type_that_nobody_needs_is_refused() -> None:
    """Rather than shown as something else."""
    batch = pa.RecordBatch.from_pydict({"kind": ["k"], "x": pa.array([1], pa.duration("s"))})
    with pytest.raises(TypeError, match="no JSON for duration"):
        json_lines(batch)
