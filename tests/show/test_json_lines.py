"""JSON lines, CSV and tables of whole columns say what each row says alone."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.scan.rows import Rows
from rmqtool.show.csv_lines import csv_header, csv_lines
from rmqtool.show.json_lines import json_lines
from rmqtool.show.output import json_text, visible
from rmqtool.show.tables import TableWriter

pytestmark = pytest.mark.budget(1)  # a hundred tables each

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("number", pa.int64()),
        ("small", pa.int32()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("extra", pa.string()),
        ("nothing", pa.null()),
    ]
)
texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    [
        "",
        "plain",
        'quo"te',
        "back\\slash",
        "new\nline",
        "tab\t",
        "\x1b[31m",
        "\x7f",
        "\u202e",
        "中文",
        "a,b",
        "=1+1",
        "\u2028",
    ]
)
row = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["message", "blank"]),
        "number": st.integers(-(1 << 63), (1 << 63) - 1),
        "small": st.integers(-(1 << 31), (1 << 31) - 1) | st.none(),
        "flag": st.booleans(),
        "text": texts | st.none(),
        "keys": st.lists(texts, max_size=3),
        "properties": st.dictionaries(texts, texts, max_size=3).map(lambda found: list(found.items())),
        "extra": texts | st.none(),
        "nothing": st.none(),
    }
)
tables = st.lists(row, min_size=1, max_size=6)


def rows_of(values: list[dict[str, Any]]) -> Rows:
    return Rows(pa.RecordBatch.from_pylist(values, schema=SCHEMA), frozenset({"extra"}))


@given(tables, st.integers(0, 5))
def test_json_lines_are_those_of_each_row(values: list[dict[str, Any]], start: int) -> None:
    """Byte for byte what one object after the other gives: escapes, nulls, optional fields; slices too."""
    rows = rows_of(values).slice(start, 3)
    expected = "".join(json_text(row) + "\n" for row in rows.dicts())
    assert bytes(json_lines(rows)).decode() == expected


@given(tables)
def test_json_lines_are_json(values: list[dict[str, Any]]) -> None:
    """Each line is read back as the row, and holds no control character."""
    text = bytes(json_lines(rows_of(values))).decode()
    assert [json.loads(line) for line in text.split("\n")[:-1]] == rows_of(values).dicts()
    assert visible(text.replace("\n", "")) == text.replace("\n", "")


@given(tables)
def test_csv_is_read_back(values: list[dict[str, Any]]) -> None:
    """Python's own reader finds the same fields; null and empty text look alike."""
    names = ["number", "text", "keys", "properties", "flag", "missing", "extra"]
    data = csv_header(names) + bytes(csv_lines(rows_of(values), names))
    found = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert found[0] == names
    for cells, value in zip(found[1:], values, strict=True):
        properties = json_text(dict(value["properties"]))
        flag = "true" if value["flag"] else "false"
        expected = [str(value["number"]), value["text"] or "", " ".join(value["keys"]), properties, flag, ""]
        assert cells == [*expected, value["extra"] or ""]


@given(tables)
def test_csv_for_a_terminal_has_no_control_characters(values: list[dict[str, Any]]) -> None:
    """What is stored must not drive a terminal."""
    text = bytes(csv_lines(rows_of(values), ["text", "keys"], visible=True)).decode()
    assert visible(text.replace("\n", "")) == text.replace("\n", "")
    assert text.count("\n") == len(values)


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


def test_a_type_that_nobody_needs_is_refused() -> None:
    """Rather than shown as something else."""
    batch = pa.RecordBatch.from_pydict({"kind": ["k"], "x": pa.array([1.5])})
    with pytest.raises(TypeError, match="no JSON for double"):
        json_lines(Rows(batch))
