"""The engine: what it refuses, what it may take, and what becomes of errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import rmqtool as library
from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.base.limits import MIB
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.sql.catalog import VIEWS
from rmqtool.sql.engine import Database, Limits
from rmqtool.sql.tables import Opening, Reading, Stores
from rmqtool.store.message_reader import Query
from rmqtool.store.store import open_stores
from tests.commands.running import ROOT
from tests.conftest import GoldenStore
from tests.sql.asking import Asked, asking, damaged_store

pytestmark = pytest.mark.budget(2)

EXAMPLE = ROOT / "examples" / "store"
REFUSED = (
    "copy messages to '{place}/x.csv'",
    "copy (select 1) to '{temporary}/x.csv'",
    "attach '{place}/x.db'",
    "attach ':memory:' as other",
    "install httpfs",
    "load json",
    "export database '{place}/x'",
    "import database '{place}/x'",
    "select * from read_csv('{place}/there.csv')",
    "select * from read_json('{place}/there.csv')",
    "select * from read_text('{place}/there.csv')",
    "select * from read_blob('{place}/*')",
    "select * from read_parquet('{place}/there.parquet')",
    "select * from parquet_metadata('{place}/there.parquet')",
    "select * from sniff_csv('{place}/there.csv')",
    "select * from glob('{place}/*')",
    "from '{place}/there.csv'",
    'from "{place}/there.csv"',
    "select * from query_table('{place}/there.csv')",
    "select * from query('drop view messages')",
    "select * from frame",
    "set memory_limit = '10GB'",
    "set enable_external_access = true",
    "reset memory_limit",
    "pragma memory_limit = '10GB'",
    "create secret (type s3)",
    "create table x as select 1",
    "create view x as select 1",
    "create macro f(a) as a",
    "create schema s",
    "drop view messages",
    "alter view messages rename to m",
    "insert into messages select * from messages",
    "update messages set topic = 'a'",
    "delete from messages",
    "truncate messages",
    "checkpoint",
    "vacuum",
    "begin transaction",
    "prepare p as select 1",
    "call pragma_version()",
    "use memory",
    "detach memory",
    "comment on view messages is 'x'",
    "select 1; select 2",
    "select 1; drop view messages",
    "explain analyze copy (select 1) to '{temporary}/x.csv'",
    "explain analyze create table x as select 1",
    "explain (analyze) insert into messages values (1)",
    "explain /* */ analyze drop view messages",
    "select * from enable_logging()",
    "from system.main.enable_logging(storage = 'file', storage_path = '{place}/x')",
    "",
    "-- nothing",
)


@pytest.fixture(scope="module")
def ask() -> Iterator[Asked]:
    with asking(EXAMPLE) as asked:
        yield asked


@pytest.mark.parametrize("statement", REFUSED)
def test_what_does_more_than_read_is_refused(statement: str, ask: Asked, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("a\n1\n")
    [[temporary]] = ask.database._connection.execute("select current_setting('temp_directory')").fetchall()
    frame = {"a": [1]}  # noqa: F841 - variables are no tables
    with pytest.raises(UsageError):
        ask(statement.format(place=tmp_path, temporary=temporary))
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert list(Path(temporary).iterdir()) == []
    assert len(ask("from messages limit 1")) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "select 1",
        "with x as (select 1 as a) from x",
        "from messages limit 1",
        "describe messages",
        "show tables",
        "values (1)",
        "explain select * from messages",
        "explain analyze select count(*) from messages",
        "pivot messages on topic in ('payments') using count(*)",
        "select date_trunc('hour', store_timestamp), field(body_text, '$.a') from messages limit 1",
        "select get_json_object(body_text, '$.a') from messages limit 1",
        "select list_contains(keys, 'x'), properties['X'] from messages limit 1;",
    ],
)
def test_what_reads_is_answered(statement: str, ask: Asked) -> None:
    assert ask(statement)


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_answered(view: str, ask: Asked) -> None:
    assert ask.table(f"from {view}").num_columns > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["more/4.7.1-traced", "more/5.5.0-traced"])
def test_who_consumed_what(name: str, golden_store: GoldenStore) -> None:
    """A consumption is traced twice, at its begin with the group, and at its end with the result."""
    with asking(golden_store(name)) as asked:
        rows = asked("from consumed order by timestamp")
        begun = asked("select count(*) as n from trace where type = 'SubBefore'")[0]["n"]
        assert len(rows) == begun > 5
        assert {row["group_name"] for row in rows} == {"drivers"}
        assert {row["success"] for row in rows} == {True, False}
        assert all(row["is_ended"] and row["timestamp"] and row["cost"] is not None for row in rows)
        assert {row["topic"] for row in rows} >= {"deliveries"}


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("from messagez", "no table is named 'messagez'", "messages"),
        ("from xyzxyz", "no table is named 'xyzxyz'", "--tables"),
        ("select topik from messages", "no column is named 'topik'", "topic"),
        ("selekt 1", 'syntax error at or near "selekt"', "LINE 1: selekt 1"),
        ("drop view messages", "rmqtool sql only reads: it answers no DROP", "begin with select"),
        ("pivot messages on topic", "PIVOT needs its values named", "on topic in ('a', 'b')"),
        ("select body_text->>'$.a' from messages where topic like '%'", "Malformed JSON", None),
    ],
)
def test_what_is_wrong_is_told(statement: str, message: str, hint: str | None, ask: Asked) -> None:
    with pytest.raises(UsageError, match=message.replace("(", "\\(")) as caught:
        ask(statement)
    assert hint is None or hint in (caught.value.hint or "")


def test_an_error_of_ours_is_raised_as_it_is(tmp_path: Path) -> None:
    """And not as the text that the engine makes of it."""
    store = damaged_store(tmp_path)
    with asking(store, fails=True) as ask, pytest.raises(RmqtoolError, match="neither a message nor a blank") as caught:
        ask("select count(*) from messages")
    assert caught.value.offset is not None


def test_damage_is_passed_over_and_counted(tmp_path: Path) -> None:
    with asking(damaged_store(tmp_path)) as ask:
        assert 0 < ask("select count(*) as n from messages")[0]["n"] < 5
        assert ask.reading.is_lossy
        [(what, (count, place))] = ask.reading.damage.items()
        assert (what, count) == ("extent", 1)
        assert "at offset" in place


def _asked(stores: list[Path], processes: int, statement: str, *, fails: bool = False) -> tuple[pa.Table, Reading]:
    """The answer about stores whose logs are split into pieces of 600 bytes, and what was read for it."""
    opening = Opening(
        tuple(open_stores([str(each) for each in stores], BrokerConf())), Query(), fails=fails, split_size=600
    )
    reading = Reading(fails=fails)
    with Database(opening.opened(reading, processes=processes), Limits()) as database:
        return database.ask(statement).to_arrow(), reading


@pytest.mark.slow
def test_several_processes_answer_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order; what they pass over is told as by one process, and an error of theirs ends the statement."""
    monkeypatch.setattr("rmqtool.sql.tables._WORTH_A_PROCESS", 1)
    monkeypatch.setattr("rmqtool.sql.tables._AHEAD", 0)  # the others do it all
    store = damaged_store(tmp_path)
    for stores, statement in (
        ([EXAMPLE], "select * from messages"),
        ([store], "select physical_offset, body from messages where octet_length(body) = 100"),
    ):
        (one, read_by_one), (three, read_by_three) = (_asked(stores, count, statement) for count in (1, 3))
        assert one.num_rows > 2
        assert three.equals(one)
        assert read_by_three.losses == read_by_one.losses
        assert read_by_three.done == read_by_one.done
    assert read_by_three.is_lossy
    with pytest.raises(RmqtoolError, match="neither a message nor a blank"):
        _asked([store], 3, "select count(*) from messages", fails=True)


def test_an_interruption_ends_the_statement(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ask.reading, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ask("select count(*) from messages")
    assert ask("select count(*) as n from messages")[0]["n"] > 0


def test_dry_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.sql.log_tables.SplitReader", None)
    with asking(EXAMPLE, is_dry=True) as ask:
        assert ask("select * from messages m join units u using (physical_offset) where m.topic = 'payments'") == []
        scans = {scan.table: scan for scan in ask.reading.scans}
        assert scans.keys() == {"messages", "units"}
        assert scans["messages"].asked.compared == ("topic",)
        assert 0 < len(scans["units"].parts) <= scans["units"].of_parts


def test_memory_is_that_of_its_options() -> None:
    snapshots = {"one": library.open(EXAMPLE).snapshot}
    with Database(Stores(snapshots, Query(), Reading()), Limits(memory=64 * MIB)) as database:
        statement = "select list(repeat(key, 1000000)) from keys, range(1000)"
        with pytest.raises(RmqtoolError, match="needs more than its limits") as caught:
            database.ask(statement).to_arrow()
        assert "--memory" in str(caught.value.hint)


def test_a_library_has_answers_as_frames() -> None:
    store = library.open(EXAMPLE)
    statement = "select topic, count(*) as messages from messages group by all order by all"
    rows = list(store.sql(statement))
    assert sum(row["messages"] for row in rows) == store.messages().count()
    assert store.sql(statement).to_arrow().to_pylist() == rows
    assert store.sql(statement).to_polars().to_dicts() == rows
    with store.sql("from messages") as answer:
        assert next(answer.batches()).num_rows > 0
    with pytest.raises(UsageError, match="no table"):
        store.sql("from nothing")
