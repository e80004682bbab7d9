"""`rmqtool sql`: statements in, rows out, and exit statuses as everywhere."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder
from tests.commands.running import ROOT, Result, environment, rmqtool, validator
from tests.commands.terminal import on_terminal

pytestmark = pytest.mark.budget(2)  # the engine takes a tenth of a second to load, and to be made

EXAMPLE = ROOT / "examples" / "store"
TOPICS = "select topic, count(*) as messages from messages group by all order by all"
ALL_TYPES = """
    select 1 as whole, 1.50::decimal(5, 2) as decimal, 12345678901234567890.5::decimal(38, 1) as long,
    2.5::double as real, 'nan'::double as nan, true as flag, null as nothing, 'a "b"' as text, 'x'::blob as bytes,
    date '2026-11-21' as day,
    timestamptz '2026-11-21 10:52:00.123Z' as time, timestamp '2026-11-21 10:52:00.123456' as local,
    interval 26 hour as span, [1, 2] as list, {'a': [true]} as struct, map {'k': 'v'} as map, sum(1) as sum"""


def sql(*options: str | Path, store: Path = EXAMPLE) -> Result:
    return rmqtool("sql", store, *options)


def test_rows_are_csv_where_no_terminal_reads() -> None:
    rows = [*csv.DictReader(io.StringIO(sql(TOPICS).out))]
    assert sum(int(row["messages"]) for row in rows) == 181
    assert [row["topic"] for row in rows] == sorted(row["topic"] for row in rows)


def test_json_has_an_object_for_each_row() -> None:
    rows = [json.loads(line) for line in sql(TOPICS, "--format", "ndjson").out.splitlines()]
    assert sum(row["messages"] for row in rows) == 181
    result = sql(TOPICS, "--json").document["result"]
    assert result["rows"] == rows
    assert result["columns"] == [{"name": "topic", "type": "string"}, {"name": "messages", "type": "int64"}]
    assert sql(TOPICS, "--json", "--limit", "1").document["result"]["rows"] == rows[:1]


def test_all_types_are_written() -> None:
    [row] = [json.loads(line) for line in sql(ALL_TYPES, "--format", "ndjson").out.splitlines()]
    assert row == {
        "whole": 1, "decimal": 1.5, "long": "12345678901234567890.5", "real": 2.5, "nan": None, "flag": True,
        "nothing": None, "text": 'a "b"', "bytes": "eA==", "day": "2026-11-21", "time": "2026-11-21T10:52:00.123Z",
        "local": "2026-11-21T10:52:00.123456", "span": "26:00:00", "list": [1, 2], "struct": {"a": [True]},
        "map": {"k": "v"}, "sum": 1,
    }  # fmt: skip
    [line] = csv.DictReader(io.StringIO(sql(ALL_TYPES).out))
    assert (line["decimal"], line["nan"], line["nothing"], line["struct"]) == ("1.50", "nan", "", '{"a":[true]}')


def test_a_table_is_for_people() -> None:
    done = sql(ALL_TYPES, "--format", "table", "--time-zone", "+08:00")
    header, row = done.out.splitlines()
    assert header.split()[:2] == ["whole", "decimal"]
    assert "2026-11-21T18:52:00.123+08:00" in row
    assert sql("select topic from messages where false", "--format", "table").out == "topic\n"
    assert sql("select 1 as kind", "--format", "table").out.split() == ["kind", "1"]


def test_a_limit_shows_fewer_rows_and_says_so() -> None:
    done = sql("from messages", "--limit", "3")
    assert len(done.out.splitlines()) == 4
    assert "there are more than these 3 rows" in done.err
    assert "more" not in sql("from messages limit 3", "--limit", "3").err


def test_a_file_is_new_and_whole(tmp_path: Path) -> None:
    output = tmp_path / "rows.parquet"
    assert sql(TOPICS, "--format", "parquet", "-o", output).status == Exit.OK
    assert pq.read_table(output).num_rows == len(sql(TOPICS).out.splitlines()) - 1
    again = sql(TOPICS, "--format", "parquet", "-o", output)
    assert again.status == Exit.USAGE
    assert "already exists" in again.err
    sql(TOPICS, "-o", tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == sql(TOPICS).out
    assert sql(TOPICS, "-o", EXAMPLE / "rows.csv").status == Exit.USAGE
    failed = sql("select error('no')", "-o", tmp_path / "none.csv")
    assert failed.status == Exit.USAGE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.parquet"]


@pytest.mark.slow
def test_a_statement_comes_from_a_file_or_standard_input(tmp_path: Path) -> None:
    statement = tmp_path / "question.sql"
    statement.write_text(TOPICS)
    expected = sql(TOPICS).out
    assert sql("--file", statement).out == expected
    for more in ((), ("--file", "-")):
        done = subprocess.run(
            [sys.executable, "-m", "rmqtool", "sql", EXAMPLE, *more],
            input=TOPICS, capture_output=True, text=True, check=True, cwd=ROOT, env=environment(),
        )  # fmt: skip
        assert done.stdout == expected
    assert sql("--file", tmp_path / "none.sql").status == Exit.USAGE


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("from messagez",), "no table is named 'messagez'"),
        (("drop view messages",), "only reads"),
        (("select 1 as a, 2 as a",), "two columns are called a"),
        (("select 1 as a", "--format", "parquet"), "--format parquet needs --output FILE"),
        (("select 1 as a", "--include", "all"), "'all' is not one of prepared, rolled-back"),
        (("select 1 as a", "--memory", "1MiB"), "is too little"),
        (("select 1 as a", "--master", "local"), "--master and --conf are for --engine spark"),
        (("select 1 as a", "--engine", "spark", "--threads", "2"), "--threads is for --engine duckdb"),
        (("select union_value(a := 1) as a", "--format", "parquet", "-o", "never.parquet"), "Parquet has no"),
    ],
)
def test_what_is_wrong_is_refused(options: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch,
                                  tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = sql(*options)
    assert (done.status, done.out) == (Exit.USAGE, "")
    assert text in done.err
    assert [*tmp_path.iterdir()] == []


def test_an_error_is_a_document_for_programs() -> None:
    assert sql("from messages", "--format", "csv", "--json").status == Exit.USAGE
    done = sql("from messagez", "--json")
    assert done.document["error"]["message"] == "no table is named 'messagez'"
    assert done.document["exit"]["code"] == done.status == Exit.USAGE


def test_no_store_and_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sql("from messages limit 1", store=tmp_path).status == Exit.NOT_A_STORE
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = sql("from messages limit 1")
    assert done.status == Exit.FAILED
    assert "pip install 'rmqtool[sql]'" in done.err


def test_damage_is_told(tmp_path: Path) -> None:
    log = LogBuilder()
    offsets = [log.add(topic="t", body=b"x" * 100) for _ in range(5)]
    store = log.write(tmp_path / "store")
    [file] = (store / "commitlog").iterdir()
    data = bytearray(file.read_bytes())
    data[offsets[2] : offsets[2] + 50] = b"\xff" * 50
    data[offsets[4] + 90] ^= 1  # of the body
    file.write_bytes(data)
    done = sql("select count(*) as n from messages", store=store)
    assert (done.status, done.out) == (Exit.LOSSY, "n\n4\n")
    assert f"1 damaged range of the log is skipped, the first in {store} at offset {offsets[2]}" in done.err
    done = sql("select sum(octet_length(body)) as n from messages", store=store)
    assert (done.status, done.out) == (Exit.LOSSY, "n\n400\n")
    assert "1 body has a CRC mismatch" in done.err
    assert sql("select count(*) from messages", "--on-damage", "fail", store=store).status == Exit.FAILED


def test_what_would_be_read_is_explained() -> None:
    statement = "select body from messages where topic = 'payments'"
    shown = sql(statement, "--explain").out.splitlines()
    assert shown[0] == "messages: topic, body"
    assert '(topic == "payments")' in shown[1]
    document = sql(statement, "--explain", "--json").document
    validator("sql").validate(document)
    [scan] = document["result"]["scans"]
    assert (scan["table"], scan["parts"]) == ("messages", 1)
    assert scan["bytes"] == scan["of_bytes"] > 0


def test_tables_are_listed() -> None:
    document = sql("--tables", "--json").document
    validator("sql").validate(document)
    tables = {row["table"] for row in document["result"]["tables"]}
    assert {"messages", "keys", "units", "queues", "groups", "topics", "index", "files", "trace", "pending", "findings",
            "settings", "unread"} <= tables  # fmt: skip
    assert {line.split()[0] for line in sql("--tables").out.splitlines()} >= tables


@pytest.mark.slow
def test_several_stores(tmp_path: Path) -> None:
    for name in ("one", "two"):
        log = LogBuilder()
        log.add(topic="t")
        log.write(tmp_path / name)
    expected = "store,n\none,1\ntwo,1\n"
    statement = "select store, count(*) as n from messages group by all order by all"
    assert rmqtool("sql", tmp_path / "one", tmp_path / "two", statement).out == expected
    assert rmqtool("sql", str(tmp_path / "*"), statement).out == expected
    assert rmqtool("sql", str(tmp_path / "on*"), statement).out == "store,n\none,1\n"


@pytest.mark.slow
def test_the_statements_of_the_page_are_answered_as_it_says() -> None:
    page = (ROOT / "docs" / "sql.md").read_text("utf-8")
    statements = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(statements) > 10
    for statement in statements:
        assert sql(statement).status == Exit.OK, statement
    shown = re.findall(r"\$ rmqtool (sql examples/store [^\n]*)\n```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(shown) == 3
    for command, text in shown:
        _, _, *words = shlex.split(command)
        assert sql(*words).out == text


@pytest.mark.slow
def test_statements_are_answered_one_after_the_other(tmp_path: Path) -> None:
    """On a terminal; what is wrong, or interrupted, ends none but itself."""
    typed = ("select topic from messages", "where false;", "from nothing;", ".format csv", "select 1 as one,",
             "2 as two;", ".nothing", ".tables", ".quit")  # fmt: skip
    shown = on_terminal("sql", str(EXAMPLE), "--no-pager", cwd=tmp_path, typed="".join(f"{line}\n" for line in typed))
    assert "one,two\n1,2\n" in shown
    assert "no table is named 'nothing'" in shown
    assert ".nothing is not a command" in shown
    assert "sum(" not in shown
    assert "unread" in shown
