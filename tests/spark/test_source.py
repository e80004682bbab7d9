"""`spark.read.format("rocketmq")`: the rows of an export, without an export."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rmqtool.scan.redaction import Redaction
from rmqtool.store.message_reader import EXPORT_COLUMNS
from tests.building import LogBuilder, write_log
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.export.duckdb_rows import duckdb_rows
from tests.export.exporting import export, oracle_row, rows_of
from tests.golden import stores
from tests.sampling import examples
from tests.spark import jobs
from tests.spark.sessions import Session
from tests.verify.tiered_damages import expire

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STORE = "5.5.0-clean"
EVERYTHING = {"include": "prepared,rolled-back", "splitSize": str(1 << 20)}


def oracle_rows(name: str) -> list[dict[str, Any]]:
    return [oracle_row(record) for record in stores.oracle(name)["records"]]


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of any reader: maps as dictionaries, times in UTC without a zone."""
    found = []
    for row in rows:
        plain = dict(row)
        for name, value in row.items():
            if name == "properties":
                plain[name] = dict(value)
            elif isinstance(value, datetime):
                plain[name] = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
            elif isinstance(value, bytearray):
                plain[name] = bytes(value)
        found.append(plain)
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [STORE, "4.4.0-killed", "5.3.3-empty"])
def test_rows_are_the_messages_of_the_broker(name: str, spark: Session, golden_store: GoldenStore) -> None:
    """Every field of every record; the format is found without being registered."""
    found = spark.run(jobs.read, str(golden_store(name)), EVERYTHING)
    assert comparable(found) == comparable(oracle_rows(name))


def test_messages_of_a_tier(spark: Session, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Each message once, with where it lies."""
    store = copied(golden_store("more/5.5.1-tiered"), tmp_path / "store")
    expire(store)
    options = {"tieredPath": str(store / "tiered"), "columns": "queue_id,queue_offset,place"}
    found = spark.run(jobs.read, str(store), options)
    assert sorted((row["queue_id"], row["queue_offset"]) for row in found) == [
        (queue_id, offset) for queue_id in (0, 1) for offset in range(120)
    ]
    assert {row["place"] for row in found} == {"local", "tiered"}


@pytest.mark.parametrize("name", ["more/4.9.7-dledger", "more/5.3.3-converted"])
def test_logs_of_dledger(name: str, spark: Session, golden_store: GoldenStore, tmp_path: Path) -> None:
    """The messages in the entries, and those of a plain log before them, as an export has them."""
    export(golden_store(name), tmp_path / "out")
    found = spark.run(jobs.read, str(golden_store(name)), {"splitSize": "20000"})
    found.sort(key=lambda row: int(row["physical_offset"]))
    assert comparable(found) == comparable(rows_of(tmp_path / "out"))
    assert len(found) == (401 if "converted" in name else 400)


def test_by_default_what_consumers_see(spark: Session, golden_store: GoldenStore) -> None:
    """As an export does."""
    found = spark.run(jobs.read, str(golden_store(STORE)), {})
    expected = [row for row in oracle_rows(STORE) if row["transaction"] in ("none", "commit")]
    assert comparable(found) == comparable(expected)


def test_spark_pyarrow_and_duckdb_read_the_files_alike(
    spark: Session, golden_store: GoldenStore, tmp_path: Path
) -> None:
    """The same types and values, of a plain export and of a partitioned one."""
    types = spark.run(jobs.source_types, str(golden_store(STORE)))
    assert tuple(types) == EXPORT_COLUMNS
    for number, keys in enumerate([(), ("topic", "date")]):
        output = tmp_path / str(number)
        export(golden_store(STORE), output, partition_by=keys, split_size=100_000)
        expected = comparable(rows_of(output))
        found = spark.run(jobs.read_parquet, str(output))
        by_spark = [{name: row[name] for name in EXPORT_COLUMNS} for row in comparable(found)]
        assert by_spark == expected
        in_files = spark.run(jobs.parquet_types, str(output))
        assert {name: in_files[name] for name in EXPORT_COLUMNS} == types
        query = f"select * from read_parquet('{output}/**/*.parquet', hive_partitioning=false) order by physical_offset"
        assert comparable(duckdb_rows(query)) == expected


def test_a_schema_says_which_columns_are_read(spark: Session, golden_store: GoldenStore) -> None:
    """In its order; one that is not of messages is refused in a sentence."""
    store = str(golden_store(STORE))
    found = spark.run(jobs.read, store, EVERYTHING, "physical_offset bigint, topic string, keys array<string>")
    assert [list(row) for row in found[:1]] == [["physical_offset", "topic", "keys"]]
    assert found == [{name: row[name] for name in found[0]} for row in oracle_rows(STORE)]
    found = spark.run(jobs.read, store, EVERYTHING, "`properties.TAGS` string")
    assert found == [{"properties.TAGS": row["tags"]} for row in oracle_rows(STORE)]
    wrong = {
        "topics string": "no column is named 'topics'",
        "topic int": "the schema says int",
        "topic string, topic string": "the column topic 2 times",
    }
    for schema, text in wrong.items():
        with pytest.raises(RuntimeError, match=text):
            spark.run(jobs.read, store, {}, schema)


def test_options_are_those_of_the_command(spark: Session, golden_store: GoldenStore) -> None:
    """Filters, columns and bodies; upper and lower case are the same; what is wrong is a sentence."""
    store = str(golden_store(STORE))
    rows = oracle_rows(STORE)
    options = {"topic": "orders", "queue": "1", "columns": "topic,queue_id,physical_offset,body", "BODY": "none"}
    found = spark.run(jobs.read, store, {**EVERYTHING, **options})
    expected = [row for row in rows if (row["topic"], row["queue_id"]) == ("orders", 1)]
    assert found == [{name: row[name] for name in ("topic", "queue_id", "physical_offset")} for row in expected]
    middle = rows[len(rows) // 2]["physical_offset"]
    found = spark.run(jobs.read, store, {**EVERYTHING, "fromOffset": str(middle), "columns": "physical_offset"})
    assert [row["physical_offset"] for row in found] == [
        row["physical_offset"] for row in rows if row["physical_offset"] >= middle
    ]
    found = spark.run(jobs.read, store, {**EVERYTHING, "columns": "physical_offset,properties.TAGS,file"})
    assert [(row["properties.TAGS"], Path(row["file"]).parent.name) for row in found] == [
        (row["tags"], "commitlog") for row in rows
    ]
    for wrong, text in (
        ({"topics": "a"}, "no option is named topics"),
        ({"from": "last week"}, "option from"),
        ({"columns": "nope"}, "no column is named 'nope'"),
        ({"redact": "names"}, "option redact: 'names' is not one of keys, properties, bodies, hosts"),
        ({"redact": "keys", "redactAs": "hash"}, "needs redact and redactSalt"),
        ({"redactSalt": "s"}, "needs redact and redactSalt"),
    ):
        with pytest.raises(RuntimeError, match=text):
            spark.run(jobs.read, store, wrong)
    with pytest.raises(RuntimeError, match="no such file or directory"):
        spark.run(jobs.read, "/nowhere", {})


def test_columns_have_types(spark: Session, tmp_path: Path) -> None:
    """Also where a schema chooses among them; what does not fit is null."""
    log = LogBuilder()
    for cents in ("100", "1.5", '"text"'):
        log.add(topic="t", body=f'{{"cents": {cents}}}'.encode(), properties={"RETRY": "2"})
    store = str(log.write(tmp_path / "store"))
    columns = "body.cents:int as cents, body.cents:decimal(12,2) as money,properties.RETRY:double as retry"
    found = spark.run(jobs.read, store, {"columns": columns}, None, "cents = 100 or retry = 2")
    assert [(row["cents"], row["money"] and float(row["money"]), row["retry"]) for row in found] == [
        (100, 100.0, 2.0), (None, 1.5, 2.0), (None, None, 2.0)]  # fmt: skip
    assert spark.run(jobs.read, store, {"columns": columns}, "cents bigint") == [
        {"cents": row["cents"]} for row in found
    ]


def test_redaction(spark: Session, golden_store: GoldenStore) -> None:
    """Rows are those of the command with the same salt; Spark's filters compare what is shown."""
    store, columns = str(golden_store(STORE)), "physical_offset,tags,unique_key,properties,born_host,body"
    options = {**EVERYTHING, "columns": columns, "redact": "properties,hosts"}
    found = spark.run(jobs.read, store, options, None, "unique_key = '***'")
    rows = oracle_rows(STORE)
    assert len(found) == len([row for row in rows if row["unique_key"]]) > 10
    assert {row["born_host"] for row in found} == {"***"}
    assert {value for row in found for value in dict(row["properties"]).values()} == {"***"}
    tagged = next(row["tags"] for row in rows if row["tags"])
    assert spark.run(jobs.read, store, options, None, f"tags = '{tagged}'") == []
    hashing = {**options, "redactAs": "hash", "redactSalt": "s", "columns": "physical_offset,tags"}
    redaction = Redaction(frozenset({"properties"}), "hash", b"s")
    assert [row["tags"] for row in spark.run(jobs.read, store, hashing)] == [
        row["tags"] and redaction.text(row["tags"]) for row in rows
    ]


def statements(chance: random.Random, rows: list[dict[str, Any]], count: int) -> Iterator[tuple[str, list[Any]]]:
    """Random statements on a view `v`, and what each gives by `rows`: one row of numbers, in the order of the log."""
    topics = sorted({row["topic"] for row in rows})
    conditions: list[Callable[[], tuple[str, Callable[[dict[str, Any]], bool]]]] = [
        lambda: (f"topic = '{(topic := chance.choice(topics))}'", lambda row: row["topic"] == topic),
        lambda: (f"queue_id in ({(queue := chance.randrange(4))}, 999)", lambda row: row["queue_id"] == queue),
        lambda: (f"physical_offset >= {(at := any_row()['physical_offset'])}",
                 lambda row: row["physical_offset"] >= at),
        lambda: (f"physical_offset < {(at := any_row()['physical_offset'])}", lambda row: row["physical_offset"] < at),
        lambda: (f"store_timestamp <= timestamp '{(at := any_row()['store_timestamp'])}'",
                 lambda row: row["store_timestamp"] <= at),
        lambda: ("store_timestamp >= now()", lambda row: False),
        lambda: ("tags is null", lambda row: row["tags"] is None),
    ]  # fmt: skip

    def any_row() -> dict[str, Any]:
        return chance.choice(rows)

    def chosen() -> tuple[str, list[int]]:
        some = [one() for one in chance.sample(conditions, chance.choice((0, 1, 1, 2)))]
        texts, tests = [text for text, _ in some] or ["true"], [test for _, test in some]
        return " and ".join(texts), [row["physical_offset"] for row in rows if all(test(row) for test in tests)]

    for _ in range(count):
        (where, found), (other, others) = chosen(), chosen()
        limit = chance.randrange(1, 50)
        yield chance.choice([
            ("select count(*) from v", [len(rows)]),
            (f"select count(*) from v where {where}", [len(found)]),
            (f"select physical_offset from v where {where} order by 1", found),
            (f"select count(*) from (select * from v where {where} limit {limit})", [min(limit, len(found))]),
            (f"select count(*) from (select 1 from v where {where} union all select 2 from v where {other})",
             [len(found) + len(others)]),
            (f"select count(*) from (select * from v where {where}) a join (select * from v where {other}) b "
             "on a.physical_offset = b.physical_offset", [len({*found} & {*others})]),
        ])  # fmt: skip


@pytest.mark.parametrize("cached", [pytest.param(False, marks=pytest.mark.rare), True])
@pytest.mark.parametrize("pushes", ["true", pytest.param("false", marks=pytest.mark.rare)])
def test_no_statement_changes_the_next(pushes: str, cached: bool, spark: Session, golden_store: GoldenStore) -> None:
    """Filters, limits, joins and unions of one view, in any order, whether Spark is set to push filters or not."""
    rows = oracle_rows(STORE)
    asked = list(statements(random.Random(7 + cached), rows, examples(30)))
    path, texts = str(golden_store(STORE)), [text for text, _ in asked]
    answers = spark.run(jobs.statements, path, EVERYTHING, texts, pushes, cached)
    for (text, expected), found in zip(asked, answers, strict=True):
        assert found == expected, text


@pytest.mark.parametrize("pushes", ["true", pytest.param("false", marks=pytest.mark.rare)])
def test_a_view_is_of_the_time_when_it_was_loaded(pushes: str, spark: Session, tmp_path: Path) -> None:
    """In each statement; with a schema Spark makes it when it is first read. It is loaded again for what came since."""
    builder = LogBuilder().add_all([{}] * 20)
    path, before = str(builder.write(tmp_path / "store")), builder.images()
    after = builder.add_all([{}] * 15).images()
    for schema, unread in ((None, 20), ("physical_offset bigint", 35)):
        jobs.become(Path(path), before)
        assert spark.run(jobs.grown, path, schema, after, pushes) == [20, unread, 10, 20, 35]


def test_files_deleted_since_it_was_loaded_are_no_missing_rows(spark: Session, tmp_path: Path) -> None:
    """They are an error."""
    images = LogBuilder().add_all([{}] * 100).images()
    path = str(write_log(tmp_path / "store", images))
    kept = {start: data for start, data in images.items() if start}
    assert kept
    with pytest.raises(RuntimeError, match="00000000000000000000: cannot read: no such file"):
        spark.run(jobs.grown, path, None, kept, "false")


def test_push_down_is_refused(spark: Session, golden_store: GoldenStore) -> None:
    """The option is gone, and says why; that it is off is no error."""
    assert spark.run(jobs.read, str(golden_store(STORE)), {"pushDown": "false"})
    with pytest.raises(RuntimeError, match="Spark kept a pushed filter for later statements"):
        spark.run(jobs.read, str(golden_store(STORE)), {"pushDown": "true"})


def test_several_stores_a_view_and_a_limit(spark: Session, golden_store: GoldenStore) -> None:
    """Rows say which store they are of; SQL reads a view; a limit ends early."""
    paths = [str(golden_store(name)) for name in (STORE, "4.4.0-clean")]
    found = spark.run(jobs.read, paths, {**EVERYTHING, "columns": "physical_offset,store"})
    counts = {name: len(oracle_rows(name)) for name in (STORE, "4.4.0-clean")}
    assert {name: sum(row["store"] == name for row in found) for name in counts} == counts
    view = f"create or replace temporary view messages using rocketmq options (path '{paths[0]}')"
    [(count,)] = spark.run(jobs.sql, view, "select count(*) from messages where topic = 'orders'")
    assert count == sum(row["topic"] == "orders" for row in oracle_rows(STORE))
    assert spark.run(jobs.limited, paths[0], 3) == 3


def test_damage_is_passed_over_or_ends_the_query(spark: Session, tmp_path: Path) -> None:
    """By default what is readable is read; onDamage=fail says where it is not."""
    builder = LogBuilder().add_all([{"queue_offset": number} for number in range(20)])
    images = builder.images()
    at = builder.offsets[7] + 30
    images[0] = images[0][:at] + b"\xff" + images[0][at + 1 :]
    store = str(write_log(tmp_path / "store", images))
    found = spark.run(jobs.read, store, {})
    assert [row["physical_offset"] for row in found] == [
        offset for offset in builder.offsets if offset != builder.offsets[7]
    ]
    with pytest.raises(RuntimeError, match=f"at offset {builder.offsets[7]}"):
        spark.run(jobs.read, store, {"onDamage": "fail"})


def test_a_stream_reads_each_record_once(spark: Session, tmp_path: Path) -> None:
    """In parts of a limited size where Spark has limits; later runs give what is new, or nothing."""
    has_limits = find_spec("pyspark.sql.streaming.datasource") is not None
    builder = LogBuilder(1 << 14).add_all([{"body": b"x" * 200}] * 150)
    path, folder = str(tmp_path / "store"), str(tmp_path)
    for count, step in enumerate((0, 0, 40)):
        builder.add_all([{"body": b"y" * 100}] * step).write(tmp_path / "store")
        parts, rows = spark.run(jobs.stream, path, folder, {"maxBytesPerTrigger": "10000"})
        assert [row["physical_offset"] for row in rows] == builder.offsets
        assert sum(parts) == (150, 0, 40)[count]
        if count == 0:
            assert (len([part for part in parts if part]) > 3) == has_limits


def test_a_stream_notices_lost_data(spark: Session, tmp_path: Path) -> None:
    """Files that were deleted before they were read end the query, unless that is wanted."""
    builder = LogBuilder().add_all([{}] * 20)
    spark.run(jobs.stream, str(builder.write(tmp_path / "store")), str(tmp_path), {})
    builder.add_all([{}] * 120)
    images = {start: data for start, data in builder.images().items() if start >= 8192}
    write_log(tmp_path / "store", images)
    with pytest.raises(RuntimeError, match="the log begins at 8192 now"):
        spark.run(jobs.stream, str(tmp_path / "store"), str(tmp_path), {})
    _, rows = spark.run(jobs.stream, str(tmp_path / "store"), str(tmp_path), {"failOnDataLoss": "false"})
    kept = [offset for number, offset in enumerate(builder.offsets) if number < 20 or offset >= 8192]
    assert [row["physical_offset"] for row in rows] == kept


def test_a_stream_follows_a_log_that_rolls_and_is_cleaned(spark: Session, tmp_path: Path) -> None:
    """Each record once while files come and the oldest go, and when the query was stopped meanwhile."""
    builder = LogBuilder(1 << 13).add_all([{"body": b"x" * 200}] * 30)
    path, steps, totals = builder.write(tmp_path / "store"), [builder.images()], [30]
    for step in range(1, 4):
        builder.add_all([{"body": b"y" * 150}] * 25)
        images = builder.images()
        steps += [images, {start: data for start, data in images.items() if start >= step * builder.file_size}]
        totals += [30 + 25 * step] * 2
    middle = 4
    assert spark.run(jobs.follow, str(path), str(tmp_path), steps[:middle]) == totals[:middle]
    jobs.become(path, steps[middle])
    assert spark.run(jobs.follow, str(path), str(tmp_path), steps[middle:]) == totals[middle:]
    rows = spark.run(jobs.read_parquet, str(tmp_path / "sink"))
    assert [row["physical_offset"] for row in rows] == builder.offsets


@pytest.mark.rare
def test_executors_in_other_processes(cluster: Session, golden_store: GoldenStore, tmp_path: Path) -> None:
    """`register` brings the package to them, for queries and for streams."""
    store = str(golden_store(STORE))
    found = cluster.run(jobs.register_and_read, store, EVERYTHING)
    assert comparable(found) == comparable(oracle_rows(STORE))
    _, rows = cluster.run(jobs.stream, store, str(tmp_path), EVERYTHING)
    assert len(rows) == len(found)


@pytest.mark.rare
def test_an_executor_that_is_killed_costs_no_row(cluster: Session, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Nor is a row there twice: its splits are read again by another."""
    found = cluster.run(jobs.read_and_kill, str(golden_store(STORE)), EVERYTHING, str(tmp_path))
    assert sorted(found) == [row["physical_offset"] for row in oracle_rows(STORE)]
    assert any(path.name.endswith("-1") for path in tmp_path.iterdir())
