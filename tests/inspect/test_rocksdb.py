"""Stores of brokers with RocksDB: the overview as the broker has it, and every row of every database."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqtool.formats.consume_queue import build_unit
from rmqtool.inspect.overview import overview_of
from rmqtool.rules.versions import NEWEST
from rmqtool.store.queue_units import queue_range
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.commands.running import inspect, listing, query, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.inspect.listings import objects

QUEUES = [name for name, settings in ROCKSDB.items() if "storeType" in settings and "5.1.4" not in name]
BATCHES = "bulk/0"  # of which brokers do not give all messages: the inner offsets have no rows
FIRST, SIDE = "more/5.5.0-rocksdb", "more/5.5.0-rocksdb-side"


@pytest.mark.parametrize("name", QUEUES)
def test_queues_end_where_the_broker_says(name: str, golden_store: GoldenStore) -> None:
    """The maximum of each queue of a configured topic, and its messages in the log."""
    overview, says = overview_of(open_store(golden_store(name))), stores.oracle(name)["survey"]["queues"]
    ranges = {f"{queue.topic}/{queue.queue_id}": found for queue, found in overview.queues}
    assert says
    assert [ranges[name].max_offset for name in says] == [queue["max_offset"] for queue in says.values()]
    for queue_name, queue in says.items():
        if queue_name != BATCHES:
            offsets = range(ranges[queue_name].min_offset, ranges[queue_name].max_offset)
            assert [offset for offset, *_ in queue["messages"]] == list(offsets)
    assert all(queue.shown_kind == "rocksdb" for queue, _ in overview.queues)
    assert ("%LMQ%alice/0" in ranges) == ("5.2.0" not in name)  # which gives light queues no units in RocksDB


def test_lag_and_findings(golden_store: GoldenStore) -> None:
    """Groups as with files; that it is RocksDB is not a fault."""
    result = inspect(golden_store(FIRST), "--json")
    document = result.document["result"]
    lags = {(item["group"], item["topic"], item["queue_id"]): item["lag"] for item in document["consumers"]}
    assert lags["desk", "orders", 0] == 2
    assert {finding["severity"] for finding in result.document["findings"]} == {"info"}
    assert result.status == 0


@pytest.mark.slow
@pytest.mark.parametrize(("part", "rows"), [
    ("consumequeue", {"queue-unit", "queue-bound", "dispatched-end"}),
    ("config/topics", {"config-entry"}),
    ("config/consumerOffsets", {"config-entry"}),
])  # fmt: skip
def test_every_row_is_shown(part: str, rows: set[str], golden_store: GoldenStore) -> None:
    """Each by its form, as JSON by the schema, as text, as CSV and as a count."""
    store = golden_store(FIRST)
    lines = listing(store, "--json", part=part).lines
    assert {line["kind"] for line in lines} == {"rocksdb_row"}
    assert {line["row"] for line in lines} == rows
    text = rmqtool("inspect", store / part)
    assert text.status == 0
    assert len(text.out.splitlines()) >= len(lines)
    assert rmqtool("inspect", store / part, "--count").out.split() == [str(len(lines)), "rocksdb_row"]
    assert len(rmqtool("inspect", store / part, "--format", "csv").out.splitlines()) == len(lines) + 1


@pytest.mark.slow
def test_what_stands_beside_the_log(golden_store: GoldenStore) -> None:
    """Index, timers, and how far they have come."""
    rows = Counter(row["row"] for row in objects(golden_store(SIDE) / "rocksdbstore"))
    assert rows["timer-entry"] == 3
    assert rows["index-entry"] > 100
    assert rows["progress"] >= 3


def test_topics_and_queues_are_chosen(golden_store: GoldenStore) -> None:
    """Only rows of the topic, or of its queue."""
    lines = listing(golden_store(FIRST), "--json", "--topic", "orders", "--queue", "1", part="consumequeue").lines
    assert {(line["key"]["topic"], line["key"]["queue_id"]) for line in lines} == {("orders", 1)}
    assert len([line for line in lines if line["row"] == "queue-unit"]) == 17
    offsets = listing(golden_store(FIRST), "--json", "--topic", "orders", part="config/consumerOffsets").lines
    assert [line["key"]["name"] for line in offsets] == ["orders@desk"]


def test_passwords_are_not_shown(unpacked: GoldenStore, tmp_path: Path) -> None:
    """Whatever is in the database of users."""
    copied(unpacked(FIRST) / "config" / "topics", tmp_path / "users")
    result = rmqtool("inspect", tmp_path / "users")
    assert "orders" in result.out
    assert "perm" not in result.out


def test_damage_is_shown_and_told_by_the_status(unpacked: GoldenStore, tmp_path: Path) -> None:
    """A cut table: the overview without queues says why, the listing ends with the problem."""
    store = copied(unpacked(FIRST), tmp_path / "store")
    table = max((store / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 0xFF
    table.write_bytes(data)
    overview = inspect(store, "--json")
    assert overview.status == 3
    assert "store.unreadable" in {finding["code"] for finding in overview.document["findings"]}
    lines = listing(store, "--json", part="consumequeue")
    assert lines.status == 3
    assert "rocksdb_problem" in {line["kind"] for line in lines.lines}


def test_a_row_of_another_form(unpacked: GoldenStore, tmp_path: Path) -> None:
    """Topics where queues should be: each row in hex with the reason."""
    copied(unpacked(FIRST) / "config" / "topics", tmp_path / "consumequeue")
    lines = rmqtool("inspect", tmp_path / "consumequeue", "--json")
    assert lines.status == 3
    assert {line["kind"] for line in lines.lines} == {"bad_row", "rocksdb_row"}


def test_a_copy_elsewhere_shows_what_it_is(unpacked: GoldenStore, tmp_path: Path) -> None:
    """By its families."""
    copied(unpacked(FIRST) / "consumequeue", tmp_path / "copied")
    assert {row["row"] for row in objects(tmp_path / "copied")} == {"queue-unit", "queue-bound", "dispatched-end"}


def test_without_the_library(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview says what is not shown, a listing what to install."""
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    overview = inspect(golden_store(FIRST), "--json")
    messages = [finding["message"] for finding in overview.document["findings"]]
    assert sum("pip install 'rmqtool[rocksdb]'" in message for message in messages) == 2
    result = rmqtool("inspect", golden_store(FIRST) / "consumequeue")
    assert result.status == 4
    assert "pip install 'rmqtool[rocksdb]'" in result.err


def test_a_group_is_shown_with_its_lag(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with files; without the library its queues are not read."""
    result = query(golden_store(FIRST), "--group", "desk", "--json")
    assert result.status == 0
    assert {line["lag"] for line in result.of_kind("consumer")} == {2}
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    result = query(golden_store(FIRST), "--group", "desk", "--json")
    assert result.status == 3
    assert {line["state"] for line in result.of_kind("consumer")} == {"unread"}


def test_the_second_of_both_is_listed_by_its_name(unpacked: GoldenStore, tmp_path: Path) -> None:
    """File queues beside a database are listed with --as."""
    store = copied(unpacked(FIRST), tmp_path / "store")
    queue = store / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(build_unit(0, 100, 7) + bytes(580))
    rows = objects(store / "consumequeue", "consumequeue")
    assert [row["topic"] for row in rows if row["kind"] == "message"] == ["orders"]


def test_a_file_is_no_database(golden_store: GoldenStore) -> None:
    """`--as rocksdb` is for a directory."""
    result = rmqtool("inspect", golden_store(FIRST) / "checkpoint", "--as", "rocksdb")
    assert (result.status, result.out) == (4, "")
    assert "a file where the directory of a RocksDB database should be" in result.err


@pytest.mark.parametrize("name", ["more/5.2.0-rocksdb", "more/5.3.3-rocksdb"])
def test_a_queue_of_batches_begins_where_its_broker_says(name: str, golden_store: GoldenStore) -> None:
    """Between its rows are offsets without one, after which the broker looks for the minimum: units are before it."""
    served = stores.oracle(name)["survey"]["queues"][BATCHES]["messages"]
    queue = Snapshot(open_store(golden_store(name))).queue("bulk", 0)
    assert queue is not None
    assert queue.range.min_offset == served[0][0] > 0
    assert queue.unit_at(0) is not None


@pytest.mark.parametrize("log_min_offset", [0, 1, 9_000, 20_000, 45_000, 1 << 40])
def test_a_queue_begins_with_the_first_message_of_the_log(log_min_offset: int, golden_store: GoldenStore) -> None:
    """Rows below it stay until a compaction; where all are below, the queue is empty at its end."""
    database = golden_store(FIRST) / "consumequeue"
    units: dict[tuple[str, int], list[int]] = {}
    for row in objects(database):
        if row["row"] == "queue-unit":
            offsets = units.setdefault((row["key"]["topic"], row["key"]["queue_id"]), [])
            offsets += [row["key"]["queue_offset"]] if row["value"]["physical_offset"] >= log_min_offset else []
    for queue in Snapshot(open_store(database.parent)).queues:
        if queue.topic == "bulk":  # of batches, with gaps
            continue
        found = queue_range(queue, log_min_offset, NEWEST)
        live = units[queue.topic, queue.queue_id]
        assert found.min_offset == (live[0] if live else found.max_offset)
        assert found.expired is not bool(live)
