"""SQL on Spark: the same tables, views and answers as of DuckDB."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtool.base.errors import Exit
from rmqtool.sql.catalog import VIEWS, tables_of
from rmqtool.sql.tables import Reading, Stores
from rmqtool.store.message_reader import Query
from tests.commands.running import ROOT, environment
from tests.conftest import GoldenStore
from tests.sampling import one_in
from tests.spark import jobs
from tests.spark.sessions import Session, require_spark
from tests.sql.asking import asking, damaged_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = ROOT / "examples" / "store"
TABLES = [table.name for table in tables_of(Stores({}, Query(), Reading()))]
REFUSED = (
    "drop view messages",
    "create table x as select 1",
    "create temporary view x as select 1",
    "insert into messages select * from messages",
    "with x as (select 1) insert into messages select * from x",
    "insert overwrite directory '{place}/x' using csv select 1",
    "select transform(topic) using 'cat' as (t) from messages",
    "select * from csv.`{place}/there.csv`",
    "select * from messages where topic in (select _c0 from csv.`{place}/there.csv`)",
    "select reflect('java.lang.System', 'getenv')",
    "select java_method('java.lang.System', 'exit', 1)",
    "set spark.sql.ansi.enabled = false",
    "add jar '{place}/x.jar'",
    "cache table messages",
    "explain select 1",
    "show tables",
    "declare x int",
    "execute immediate 'drop view messages'",
    "begin select 1; end",
    "select 1; select 2",
    "refresh table messages",
    "",
)


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with spans of time as one of the engines has them."""
    return [{name: _as_interval(value) for name, value in row.items()} for row in rows]


def _as_interval(value: Any) -> Any:
    if isinstance(value, timedelta):
        seconds, days = value.total_seconds() % 86400, value.days
        return pa.MonthDayNano([0, days, round(seconds * 10**6) * 1000])
    return value


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(comparable(rows), key=lambda row: [str(value) for value in row.values()])


def test_statements_of_the_page_have_the_same_answers(spark: Session) -> None:
    """And read only what they need: no body but for a condition on one."""
    page = (ROOT / "docs" / "sql.md").read_text("utf-8")
    texts = [*re.findall(r"```sql\n(.*?)```", page, re.DOTALL), *(f"select * from {view}" for view in VIEWS)]
    found = spark.run(jobs.asked, [str(EXAMPLE)], texts)
    with asking(EXAMPLE) as ask:
        for text, (rows, read, _) in zip(texts, found, strict=True):
            expected = ask(text)
            assert in_order(rows) == in_order(expected), text
            if "order by" in text and "limit" not in text:
                assert comparable(rows) == comparable(expected), text
            assert "body" not in read.get("messages", ()) or "unread" in text or "everywhere" in text
    assert len(texts) > 15


@pytest.mark.parametrize("name", ["5.3.3-shop", pytest.param("more/5.5.0-traced", marks=pytest.mark.one_in(2))])
def test_tables_of_the_data_source_are_those_of_sql(name: str, spark: Session, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    with asking(store) as ask:
        for table in one_in(2, TABLES, name):
            expected = ask.table(f'select * from "{table}"').to_pylist()
            assert in_order(spark.run(jobs.table, [str(store)], table, {"splitSize": "1"})) == in_order(expected), table


def test_tables_of_several_stores_have_a_column_of_their_names(spark: Session, golden_store: GoldenStore) -> None:
    stores = [golden_store("5.3.3-shop"), golden_store("5.5.1-clean")]
    with asking(*stores) as ask:
        for table in ("units", "queues", "keys"):
            expected = in_order(ask(f"select * from {table}"))
            assert in_order(spark.run(jobs.table, list(map(str, stores)), table, {})) == expected
    few = spark.run(jobs.table, [str(stores[0])], "units", {}, "physical_offset bigint, topic string")
    assert few
    assert {tuple(row) for row in few} == {("physical_offset", "topic")}


def test_options_that_do_not_fit_a_table_are_refused(spark: Session) -> None:
    for name, options, schema, text in (
        ("unit", {}, None, "no table is named 'unit'"),
        ("units", {"topic": "a"}, None, "the option topic is for messages, and not for the table units"),
        ("units", {}, "body binary", "no column is named 'body'"),
        ("units", {}, "topic int", "the schema says int"),
    ):
        with pytest.raises(RuntimeError, match=text):
            spark.run(jobs.table, [str(EXAMPLE)], name, options, schema)


def test_what_does_more_than_read_is_refused(spark: Session, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("a\n1\n")
    texts = [text.format(place=tmp_path) for text in REFUSED]
    texts += ["select * from messagez", "select topik from messages", "selekt 1"]
    *found, table, column, syntax = spark.run(jobs.asked, [str(EXAMPLE)], texts)
    for text, (answer, *_) in zip(texts, found, strict=False):
        assert str(answer).startswith("UsageError: "), text
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert table[0].startswith("UsageError: no table is named 'messagez', is it messages")
    assert column[0].startswith("UsageError: no column is named 'topik', is it topic")
    assert syntax[0].startswith("UsageError: Syntax error")


def test_only_columns_that_are_needed_are_read(spark: Session) -> None:
    """Others are null on their way, and in no answer; an explanation reads nothing."""
    texts = [
        "select count(*) as n from messages",
        "select topic, max(queue_id) as q from messages where tags is not null group by all order by all",
        "select m.topic from messages m join units u using (physical_offset) where u.queue_id = 1 order by all limit 3",
        "select count(*) as n from (select * from queues union all select topic, queue_id, 0, 0, 0, '' from units)",
        "select * from topics order by topic",
    ]
    found = spark.run(jobs.asked, [str(EXAMPLE)], texts)
    with asking(EXAMPLE) as ask:
        for text, (rows, *_) in zip(texts, found, strict=True):
            assert rows == ask(text), text
    assert [read for _, read, _ in found[:3]] == [
        {"messages": ("physical_offset",)},
        {"messages": ("topic", "queue_id", "tags")},
        {"messages": ("physical_offset", "topic"), "units": ("queue_id", "physical_offset")},
    ]
    [(_, read, _)] = spark.run(jobs.asked, [str(EXAMPLE)], texts[1:2], False, True)
    assert read == found[1][1]


def test_damage_is_counted_or_ends_it(spark: Session, tmp_path: Path) -> None:
    store, texts = [str(damaged_store(tmp_path))], ["select count(*) as n from messages"]
    [(rows, _, damage)] = spark.run(jobs.asked, store, texts)
    assert 0 < rows[0]["n"] < 5
    assert damage == {"extent": 1}
    [(error, *_)] = spark.run(jobs.asked, store, texts, True)
    assert "neither a message nor a blank" in error


def test_the_command_answers_by_spark(tmp_path: Path) -> None:
    """In a process of its own, with damage, which is told."""
    require_spark()
    store = damaged_store(tmp_path)
    arguments = ("sql", store, "--engine", "spark", "--master", "local[1]", "--json", "select topic from messages")
    done = subprocess.run(
        [sys.executable, "-m", "rmqtool", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert done.returncode == Exit.LOSSY, done.stderr
    assert {row["topic"] for row in json.loads(done.stdout)["result"]["rows"]} == {"t"}
    assert "1 damaged range of the log is skipped" in done.stderr
