"""Columns with types: what fits, what does not, and how they are written."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rmqtool as library
from rmqtool.base.errors import Exit, UsageError
from rmqtool.scan.filters import Filters
from rmqtool.scan.redaction import Redaction
from rmqtool.scan.typed_columns import TypedColumn, split_columns, typed_column
from rmqtool.store.message_reader import make_query
from tests.building import LogBuilder
from tests.commands.running import rmqtool

NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "1", 1), ("int", "-5", -5), ("int", "0", 0), ("int", str((1 << 63) - 1), (1 << 63) - 1),
        ("int", str(-(1 << 63)), -(1 << 63)),
        ("decimal(12,2)", "5.05", Decimal("5.05")), ("decimal(12,2)", "5", Decimal("5.00")),
        ("decimal(12,2)", "1e2", Decimal("100.00")), ("decimal(12,2)", "5.0500", Decimal("5.05")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("double", "1.5e-3", 0.0015), ("double", "-0", -0.0),
        ("bool", "true", True), ("bool", "false", False),
        ("timestamp", "2026-11-21T12:00:00Z", NOON), ("timestamp", "2026-11-21 20:00:00+08:00", NOON),
        ("timestamp", "2026-11-21T12:00:00.000000999-0000", NOON), ("timestamp", "1795262400000", NOON),
        ("timestamp", "1795262400", NOON),
        ("date", "2026-11-21", date(2026, 11, 21)), ("text", " as it is", " as it is"),
    ],
)  # fmt: skip
def test_what_fits(kind: str, text: str, value: Any) -> None:
    column = TypedColumn("x", "body.x", kind)
    values, unfit = column.cast(pa.array([text, None]))
    assert (values.to_pylist(), unfit.tolist()) == ([value, None], [False, False])
    assert values.type == column.type


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("int", ["1.0", "1e3", " 1", "+1", "true", "0x1F", "007", "", str(1 << 63), str(-(1 << 63) - 1), "9" * 30]),
        ("decimal(12,2)", ["5.055", "12345678901", "NaN", "", "Infinity", "1e400", "0x1"]),
        ("double", ["NaN", "Infinity", "1e400", "-1e400", "", "1."]),
        ("bool", ["1", "0", "yes", "True", ""]),
        ("timestamp", ["2026-11-21T12:00:00", "2026-13-21T12:00:00Z", "2026-11-21", "17000000000000", "12", "",
                       "0001-01-01T00:00:00+08:00"]),
        ("date", ["2026-02-30", "20261121", ""]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_null_and_counted(kind: str, texts: list[str]) -> None:
    """Whatever stands beside it."""
    fine = {"int": "1", "double": "1", "bool": "true", "timestamp": "1795262400", "date": "2026-11-21"}.get(kind, "1")
    values, unfit = TypedColumn("x", "body.x", kind).cast(pa.array([fine, *texts, None]))
    assert values[0].as_py() is not None
    assert values[1:].to_pylist() == [None] * (len(texts) + 1)
    assert unfit.tolist() == [False, *[True] * len(texts), False]


def test_how_they_are_written() -> None:
    assert typed_column("body.cents:int as cents") == TypedColumn("cents", "body.cents", "int")
    assert typed_column("properties.RETRY:int") == TypedColumn("properties.RETRY", "properties.RETRY", "int")
    assert typed_column("body.a.b:decimal( 12 , 2 ) as x") == TypedColumn("x", "body.a.b", "decimal(12,2)")
    assert typed_column("body.a as x") == TypedColumn("x", "body.a", "text")
    assert typed_column("body.a") is typed_column("topic") is None
    assert split_columns("a, body.x:decimal(12,2) as x,*") == ["a", "body.x:decimal(12,2) as x", "*"]
    assert str(typed_column("body.x:int as y")) == "body.x:int as y"


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("body.x:integer", "no type is called integer"), ("topic:int", "only body.PATH and properties.NAME have types"),
        ("body.x:decimal(39,2)", "1 to 38 digits"), ("body.x:decimal(2,3)", "1 to 38 digits"),
        ("body.x:int as 1x", "begins with no digit"), ("body.x:int as topic", "another column is named topic"),
        ("body.x:int as a-b", "letters, digits and _"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(column: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make_query([column], "decompressed", Filters())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder()
    for body in ('{"cents": 100, "at": "2026-11-21T12:00:00Z"}', '{"cents": 1.5}', "no JSON", '{"cents": null}', "{}"):
        log.add(topic="t", body=body.encode(), properties={"RETRY": "2"})
    return log.write(tmp_path / "store")


COLUMNS = "physical_offset,body.cents:int as cents,body.cents:decimal(12,2) as money,body.at:timestamp as at," \
          "properties.RETRY:int as retry"  # fmt: skip


def test_an_export_has_types(store: Path, tmp_path: Path) -> None:
    """What does not fit is null, counted and told, and a check and a later run know it."""
    arguments = ("export", store, "-o", tmp_path / "out", "--columns", COLUMNS, "--engine", "local")
    done = rmqtool(*arguments)
    assert done.status == Exit.LOSSY
    assert "cents: 1 value does not fit its type, and is null" in done.out
    table = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    assert table.schema.types[1:] == [pa.int64(), pa.decimal128(12, 2), pa.timestamp("us", "UTC"), pa.int64()]
    assert table.column("cents").to_pylist() == [100, None, None, None, None]
    assert table.column("money").to_pylist() == [Decimal("100.00"), Decimal("1.50"), None, None, None]
    assert (table.column("at")[0].as_py(), set(table.column("retry").to_pylist())) == (NOON, {2})
    assert rmqtool("export", store, "--check", tmp_path / "out").status == Exit.OK
    document = rmqtool(*arguments, "--mode", "incremental", "--json").document
    assert document["result"]["unfit"]["cents"]["count"] == 1
    assert document["result"]["columns"][1] == {"name": "cents", "type": "int64", "made_of": "body.cents:int"}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_text_has_them_as_values(form: str, store: Path, tmp_path: Path) -> None:
    rmqtool("export", store, "-o", tmp_path / "out", "--columns", COLUMNS, "--engine", "local", "--format", form)
    text = next((tmp_path / "out").glob(f"*.{form}")).read_text()
    if form == "csv":
        assert text.splitlines()[1] == "0,100,100.00,2026-11-21T12:00:00.000Z,2"
    else:
        row = {"physical_offset": 0, "cents": 100, "money": 100.0, "at": "2026-11-21T12:00:00.000Z", "retry": 2}
        assert json.loads(text.splitlines()[0]) == row
    assert rmqtool("export", store, "--check", tmp_path / "out").status == Exit.OK


def test_a_listing_has_them(store: Path) -> None:
    columns = "physical_offset,body.cents:int as cents,properties.RETRY:int,body.at:timestamp as at"
    done = rmqtool("inspect", store / "commitlog", "--columns", columns, "--format", "csv")
    header, first, second, *_ = done.out.splitlines()
    assert (header, first) == ("physical_offset,cents,properties.RETRY,at", "0,100,2,2026-11-21T12:00:00.000Z")
    assert second.endswith(",,2,")
    assert done.status == Exit.LOSSY
    assert "cents: 1 value of another type, and null; the first at offset" in done.err
    assert "cents             100" in rmqtool("inspect", store / "commitlog", "--columns", columns, "--limit", "1").out
    for wrong in (("--columns", "body.cents:int as topic"), ("--columns", columns, "--redact", "bodies")):
        assert rmqtool("inspect", store / "commitlog", *wrong).status == Exit.USAGE


@pytest.mark.budget(2)
def test_sql_and_python_have_them(store: Path) -> None:
    columns = ("--column", "body.cents:int as cents")
    done = rmqtool("sql", store, *columns, "select count(*) as n, sum(cents) as cents from messages where cents > 5")
    assert (done.status, done.out) == (Exit.LOSSY, "n,cents\n1,100\n")  # what does not fit cannot be compared
    assert "cents: 1 value does not fit its type, and is null" in done.err
    opened = library.open(store)
    decimal = ["body.cents:decimal(5,2) as cents"]
    [row] = opened.sql("select sum(cents) as cents from messages", columns=decimal)
    assert row == {"cents": Decimal("101.50")}
    with pytest.warns(UserWarning, match="cents: 1 value of another type, and null; the first at offset"):
        table = opened.messages().to_arrow(["body.cents:int as cents", "properties.RETRY:int"])
    assert table.to_pydict() == {"cents": [100, None, None, None, None], "properties.RETRY": [2] * 5}


def test_what_is_redacted_has_no_value(store: Path) -> None:
    redaction = Redaction(frozenset({"bodies"}))
    query = make_query(
        ["body.cents:int as cents", "body.cents as text"], "decompressed", Filters(),
        redaction=redaction,
    )  # fmt: skip
    from rmqtool.store.message_reader import read_messages
    from rmqtool.store.splits import find_source, split_source
    from rmqtool.store.store import NamedStore, open_store

    [split] = split_source(find_source(NamedStore("s", open_store(store))))
    [batch] = read_messages(split, query, fails=False, way_out="")
    assert batch.to_pydict() == {"cents": [None] * 5, "text": ["***", "***", None, None, None]}
