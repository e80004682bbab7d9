"""The tables of a store: their rows are those of exports and of the other commands, and no more is read than needed."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqtool as library
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan import columns as scan_columns
from rmqtool.scan.redaction import HIDDEN, Redaction
from rmqtool.sql import log_tables
from rmqtool.sql.catalog import tables_of
from rmqtool.sql.tables import Asked as Wanted
from rmqtool.sql.tables import Opening, Reading, rows_of
from rmqtool.store.message_reader import Query
from rmqtool.store.store import open_stores
from tests.building import LogBuilder
from tests.commands.running import ROOT, rmqtool
from tests.conftest import GoldenStore
from tests.sampling import examples
from tests.sql.asking import Asked, asking, asking_export

pytestmark = pytest.mark.budget(2)  # the engine takes a tenth of a second to load, and to be made

EXAMPLE = ROOT / "examples" / "store"
STORES = ("5.3.3-shop", "4.9.7-clean", "5.5.1-killed")
OTHER_KINDS = (
    "more/4.9.7-dledger", "more/5.3.3-converted", "more/5.5.1-rocksdb", "more/5.3.3-compacted", "more/5.5.1-tiered",
    "5.1.4-trimmed", "5.5.1-crc32-property",
)  # fmt: skip
_COMPARED = (
    "physical_offset", "topic", "queue_id", "queue_offset", "tags", "unique_key", "store_timestamp", "born_host",
    "body_size", "transaction", "body_text", "file", "file_position", "reconsume_times",
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small store has several parts."""
    monkeypatch.setattr(log_tables, "SPLIT_SIZE", 20_000)
    monkeypatch.setattr(log_tables, "_LEAST_RANGE", 500)


@pytest.fixture
def example() -> Iterator[Asked]:
    with asking(EXAMPLE) as asked:
        yield asked


def literal_of(name: str, value: Any, chance: random.Random) -> str:
    """A value of a column as SQL has it, at times another one."""
    if value is None or "\0" in str(value) or chance.random() < 0.1:  # 1.4 takes no text with such a byte
        return {"store_timestamp": "now()"}.get(name, "0" if isinstance(value, int) else "''")
    if name == "store_timestamp":
        return f"timestamptz '{value.isoformat()}'"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def conditions(chance: random.Random, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Conditions of the kinds that the engine hands to tables, about values that are there, and others."""

    def literal(name: str) -> str:
        return literal_of(name, chance.choice(rows)[name], chance)

    def one() -> str:
        name = chance.choice(_COMPARED)
        match chance.randrange(6):
            case 0:
                return f"{name} is {chance.choice(['', 'not '])}null"
            case 1:
                return f"{name} in ({literal(name)}, {literal(name)}, {literal(name)})"
            case 2:
                return f"{name} between {literal(name)} and {literal(name)}"
            case 3:
                return f"not ({name} = {literal(name)})"
            case 4 if name in ("topic", "tags", "body_text"):
                return f"{name} like '{literal(name).strip(chr(39))[:2]}%'"
            case _:
                return f"{name} {chance.choice(['=', '<>', '<', '<=', '>', '>='])} {literal(name)}"

    while True:
        parts = [one() for _ in range(chance.choice([1, 1, 2, 3]))]
        yield f" {chance.choice(['and', 'or'])} ".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STORES, *(pytest.param(name, marks=pytest.mark.one_in(4)) for name in OTHER_KINDS)])
def test_each_statement_is_answered_as_on_an_export(
    name: str, golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.size for file in library.open(golden_store(name)).snapshot.log.files)
    monkeypatch.setattr(log_tables, "SPLIT_SIZE", size // 4)
    chance = random.Random(name)
    with ExitStack() as stack:
        ask = stack.enter_context(asking(golden_store(name)))
        expected = stack.enter_context(asking_export(golden_store(name), tmp_path / "out"))
        every = ask("from messages order by physical_offset")
        assert every == expected("from messages order by physical_offset")
        for condition, _ in zip(conditions(chance, every), range(examples(60)), strict=False):
            columns = ", ".join(chance.sample(_COMPARED[1:], chance.randrange(1, 5)))
            for statement in (
                f"select physical_offset, {columns} from messages where {condition} order by physical_offset",
                f"select count(*) from messages where {condition}",
                f"select topic, count(*), max(body_size) from messages where {condition} group by all order by all",
            ):
                assert ask(statement) == expected(statement), statement


def test_an_example_store_is_answered_as_its_export(example: Asked, tmp_path: Path) -> None:
    with asking_export(EXAMPLE, tmp_path / "out") as expected:
        for statement in (
            "select topic, count(*) from messages group by all order by all",
            "select * from messages where topic = 'payments' and queue_offset > 1 order by physical_offset",
            "select physical_offset from messages where tags is null or store_timestamp < now() order by all",
        ):
            assert example(statement) == expected(statement)


def test_only_the_columns_that_are_needed_are_read(example: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a condition for all records, the others only for records that meet it; a count reads no body."""
    read: list[tuple[str, int]] = []
    column_of = scan_columns.column_of

    def counting(name: str) -> scan_columns.Column:
        column = column_of(name)

        def count(run: scan_columns.ColumnRun) -> Any:
            read.append((name, len(run.frames)))
            return column.read(run)

        return scan_columns.Column(column.type, count, column.dictionary_encoded)

    monkeypatch.setattr(scan_columns, "column_of", counting)
    scan_columns.message_schema.cache_clear()

    def rows_read(statement: str) -> dict[str, int]:
        read.clear()
        example(statement)
        return {name: sum(count for each, count in read if each == name) for name, _ in read}

    total, chosen = 181, len(example("from messages where topic = 'payments'"))
    assert 0 < chosen < total
    assert rows_read("select topic, count(*) from messages group by all") == {"topic": total}
    assert rows_read("select count(*) from messages") == {"physical_offset": total}
    found = rows_read("select queue_id, body from messages where topic = 'payments'")
    assert found["topic"] <= total + chosen  # 1.4 asks for the columns of conditions, too
    assert (found["queue_id"], found["body"]) == (chosen, chosen)
    scan_columns.message_schema.cache_clear()


def test_a_range_of_offsets_reads_little(example: Asked) -> None:
    [whole] = example("select count(*) as messages, max(physical_offset) as last from messages")
    every = example.reading.done
    found = example(f"select physical_offset from messages where physical_offset >= {whole['last']}")
    assert [row["physical_offset"] for row in found] == [whole["last"]]
    [scan] = example.reading.scans
    assert len(scan.parts) == 1 < scan.of_parts
    assert example.reading.done == scan.bytes < every / 4
    every_offset = [row["physical_offset"] for row in example("select physical_offset from messages order by all")]
    for offset in every_offset[::20]:  # the first one is where a part begins
        assert example(f"select physical_offset from messages where physical_offset = {offset}") == [
            {"physical_offset": offset}]  # fmt: skip
    assert example("select physical_offset from messages where physical_offset < 0") == []
    assert example.reading.done == 0


def test_a_time_range_reads_few_files_where_clocks_are_trusted(tmp_path: Path) -> None:
    """Without trust all headers are compared: a time that went back is found."""
    log, base = LogBuilder(), 1_700_000_000_000
    for number in range(100):
        log.add(topic="t", store_timestamp=base + 1000 * number, body=b"x" * 200)
    log.add(topic="t", store_timestamp=base + 500, body=b"late")
    store = log.write(tmp_path / "store")
    statement = "select physical_offset from messages where store_timestamp < to_timestamp(1700000001)"
    with asking(store) as ask:
        assert len(ask(statement)) == 2
    with asking(store, trusts=["clock"]) as ask:
        assert len(ask(statement)) == 1
        [scan] = ask.reading.scans
        assert len(scan.parts) < scan.of_parts
        between = "store_timestamp >= to_timestamp(1700000040) and store_timestamp < to_timestamp(1700000050)"
        assert len(ask(f"from messages where {between}")) == 10


@pytest.mark.parametrize("name", ["5.3.3-shop", pytest.param("5.5.0-clean", marks=pytest.mark.slow)])
def test_keys_are_looked_up_where_the_index_is_trusted(name: str, golden_store: GoldenStore) -> None:
    """With the same rows as without, and only records are read to which it leads."""
    store = golden_store(name)
    with asking(store) as ask, asking(store, trusts=["index"]) as trusting:
        rows = ask("select key, kind, topic from keys order by key, topic")
        one, other = rows[len(rows) // 3], rows[-1]
        unique = ask("select unique_key from messages where unique_key is not null limit 1")[0]["unique_key"]
        for table, condition in (
            ("keys", f"key = '{one['key']}'"),
            ("keys", f"key in ('{one['key']}', '{other['key']}', 'none') and topic = '{one['topic']}'"),
            ("keys", f"key in ('{one['key']}', 'it''s') and kind = '{one['kind']}'"),
            ("messages", f"unique_key = '{unique}'"),
        ):
            statement = f"from {table} where {condition} order by all"
            assert trusting(statement) == ask(statement) != []
            assert trusting.reading.trusted == {"index"}
            assert trusting.reading.done < ask.reading.done / 2
        for condition in (f"key >= '{one['key']}'", f"key = '{one['key']}' or topic = 'orders'", "key is null"):
            statement = f"select count(*) as n from keys where {condition}"
            assert trusting(statement) == ask(statement)
            assert not trusting.reading.trusted
        assert trusting("from keys where key = 'nobody has it'") == []


def test_what_the_index_does_not_reach_is_read_though_it_is_trusted(tmp_path: Path) -> None:
    log = LogBuilder()
    log.add_all([{"topic": "t", "properties": {"KEYS": "a"}}] * 3)
    with asking(log.write(tmp_path / "store"), trusts=["index"]) as ask:
        assert ask("select count(*) as n from keys where key = 'a'") == [{"n": 3}]


def test_units_of_one_queue_are_read_alone(example: Asked) -> None:
    rows = example("from units where topic = 'payments' and queue_id = 1")
    [scan] = example.reading.scans
    assert len(scan.parts) == 1 < scan.of_parts
    listed = rmqtool("inspect", EXAMPLE / "consumequeue" / "payments" / "1", "--json").lines
    later = example(f"from units where topic = 'payments' and physical_offset >= {rows[20]['physical_offset']}")
    assert {row["physical_offset"] for row in rows[20:]} <= {row["physical_offset"] for row in later}
    assert min(row["physical_offset"] for row in later) == rows[20]["physical_offset"]
    names = ("queue_offset", "physical_offset", "message_size", "tags_code")
    assert [[row[name] for name in names] for row in rows] == [
        [row[name] for name in names] for row in listed if row["kind"] == "message"
    ]


@pytest.mark.parametrize("name", ["5.3.3-shop", pytest.param("5.5.1-clean", marks=pytest.mark.slow)])
def test_tables_say_what_the_commands_say(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    overview = rmqtool("inspect", store, "--json").document["result"]
    with asking(store) as ask:
        queues = ask("from queues order by topic, queue_id")
        fields = ("topic", "queue_id", "min_offset", "max_offset")
        expected = sorted(([each[name] for name in fields] for each in overview["queues"]), key=lambda row: row[:2])
        assert [[row[name] for name in fields] for row in queues] == expected
        groups = {(row["group_name"], row["topic"], row["queue_id"]): row["lag"] for row in ask("from groups")}
        for each in overview["consumers"]:
            assert groups[each["group"], each["topic"], each["queue_id"]] == each["lag"]
        listed = rmqtool("inspect", store / "index", "--json").of_kind("index_unit")
        units = ask('select file, unit, slot, key_hash, physical_offset, previous_unit from "index"')
        assert units == [
            {"file": row["file"], "unit": row["number"], "previous_unit": row["previous"],
             **{name: row[name] for name in ("slot", "key_hash", "physical_offset")}}
            for row in listed
        ]  # fmt: skip
        waiting = rmqtool("pending", store, "--list", "--limit", "10000", "--json").document["result"]
        assert ask("select count(*) as n from pending")[0]["n"] == len(waiting["messages"])
        topics = {row["topic"] for row in ask("from topics")}
        assert {row["topic"] for row in queues} <= topics
        files = ask("from files")
        assert {row["path"] for row in files} == {
            str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()
        }
        log = [row for row in files if row["kind"] == "commitlog"]
        assert sum(row["size"] for row in log) == sum(path.stat().st_size for path in (store / "commitlog").iterdir())


def test_keys_are_those_of_messages(example: Asked) -> None:
    expected = []
    for row in example("select physical_offset, topic, unique_key, keys from messages order by physical_offset"):
        unique = [(row["unique_key"], "unique")] if row["unique_key"] is not None else []
        expected += [(row["physical_offset"], *pair, row["topic"])
                     for pair in (*unique, *((key, "key") for key in row["keys"]))]  # fmt: skip
    keys = example("select physical_offset, key, kind, topic from keys")
    assert [tuple(row.values()) for row in keys] == expected
    found = example("select physical_offset from keys where key = 'ORD-1010' and kind = 'key' order by all")
    assert (
        [row["physical_offset"] for row in found]
        == [offset for offset, key, kind, _ in expected if (key, kind) == ("ORD-1010", "key")]
        != []
    )
    assert len(expected) > 181


def test_unread_messages_of_a_group(example: Asked) -> None:
    lags = example("select group_name, sum(lag)::bigint as lag from groups group by all having lag > 0 order by all")
    unread = example("select group_name, count(*) as lag from unread group by all order by all")
    assert lags == unread != []


def test_findings_are_those_of_verify(tmp_path: Path) -> None:
    log = LogBuilder()
    log.add_all([{"topic": "t", "body": b"one"}, {"topic": "t", "body": b"two"}])
    store = log.write(tmp_path / "store")
    expected = rmqtool("verify", store, "--json").document["findings"]
    with asking(store) as ask:
        assert [row["code"] for row in ask("select code from findings")] == [each["code"] for each in expected] != []


def test_settings_have_the_file_and_the_release(tmp_path: Path) -> None:
    log = LogBuilder()
    log.add(topic="t")
    store = log.write(tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\nnoSetting=1\n")
    done = rmqtool("sql", store, "from settings where name in ('fileReservedTime', 'deleteWhen', 'noSetting') "
                   "order by name", "--format", "ndjson", "--broker-conf", conf)  # fmt: skip
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"name": "deleteWhen", "value": "04", "source": "default", "default": "04"},
        {"name": "fileReservedTime", "value": "48", "source": "broker.conf", "default": "72"},
        {"name": "noSetting", "value": "1", "source": "broker.conf", "default": None},
    ]


def test_several_stores_have_a_column_of_their_names(tmp_path: Path) -> None:
    for name, count in (("one", 2), ("two", 3)):
        log = LogBuilder()
        log.add_all([{"topic": "t"}] * count)
        log.write(tmp_path / name)
    with asking(tmp_path / "one", tmp_path / "two") as ask:
        assert ask("select store, count(*) as n from messages group by all order by all") == [
            {"store": "one", "n": 2}, {"store": "two", "n": 3}]  # fmt: skip
        assert ask("select count(*) as n from keys where store = 'two'")[0]["n"] == 0
        assert ask("select distinct store from files where store = 'two'") == [{"store": "two"}]
        assert len(ask("select store, physical_offset from messages where store = 'two'")) == 3
        assert [len(scan.parts) for scan in ask.reading.scans] == [1]


def test_a_redacted_column_is_compared_as_it_is_shown() -> None:
    redaction = Redaction(frozenset({"keys", "bodies"}))
    with asking(EXAMPLE, redaction=redaction) as ask:
        assert ask("select count(*) as n from messages where unique_key = 'ORD-1010'") == [{"n": 0}]
        shown = ask(f"select distinct unique_key, body from messages where unique_key = '{HIDDEN}'")
        assert shown == [{"unique_key": HIDDEN, "body": HIDDEN.encode()}]
        assert ask("select distinct key from keys") == [{"key": HIDDEN}]


def test_messages_that_no_consumer_sees_are_asked_for(golden_store: GoldenStore) -> None:
    counts = []
    for include in ((), ("prepared",), ("prepared", "rolled-back")):
        with asking(golden_store("5.5.0-clean"), include=include) as ask:
            counts.append(ask("select count(*) as n from messages")[0]["n"])
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("name", ["5.3.3-shop", pytest.param("more/5.5.1-rocksdb", marks=pytest.mark.slow)])
def test_parts_are_read_in_another_process_as_here(
    name: str, golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pickled, and in another directory."""
    store = golden_store(name)
    monkeypatch.chdir(store.parent)
    opening = Opening(tuple(each.absolute for each in open_stores([store.name], BrokerConf())), Query())
    with asking(store) as ask:
        for table in tables_of(opening.opened(Reading())):
            sent = pickle.dumps((opening, table.parts))
            with monkeypatch.context() as elsewhere:
                elsewhere.chdir(tmp_path)
                there, parts = pickle.loads(sent)
                stores, asked = there.opened(Reading()), Wanted(tuple(table.schema.names))
                rows = [row for part in parts for batch in rows_of(stores, part, asked) for row in batch.to_pylist()]
            expected = ask(f'from "{table.name}"')
            assert len(rows) == len(expected)
            if table.name != "pending":  # what is overdue changes
                assert rows == expected
