"""Queries on queues in RocksDB: what the brokers that wrote them answered, and what a missing row does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.broker.offset_by_time import QueueTimes
from rmqtool.broker.pull import Puller, Subscription, puller_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME, LogBuilder
from tests.changed_rocksdb import changed, unit_key, unit_value, write_queues
from tests.commands.running import query, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.store.other_process import JAVA, another_process

QUEUES = [name for name, settings in ROCKSDB.items() if "storeType" in settings and "5.1.4" not in name]
NAME = "more/5.5.0-rocksdb"
ALL = Subscription()


def pulled(puller: Puller, start: int) -> list[int]:
    """The offsets of all messages from `start` on, one pull after the other."""
    offsets: list[int] = []
    while (answer := puller.pull(start, 32, ALL)).status == "FOUND":
        offsets += [unit.queue_offset for unit in answer.units]
        start = answer.next_begin_offset
    return offsets


@pytest.mark.parametrize("name", QUEUES)
def test_pulls_get_what_the_users_got(name: str, golden_store: GoldenStore) -> None:
    """Each message of each queue, but for those of batches, at whose inner offsets brokers fail."""
    snapshot = Snapshot(open_store(golden_store(name)))
    for queue, says in stores.oracle(name)["survey"]["queues"].items():
        topic, _, queue_id = queue.rpartition("/")
        puller = puller_of(snapshot, topic, int(queue_id))
        if topic != "bulk" and puller.queue:
            assert pulled(puller, puller.queue.range.min_offset) == [offset for offset, *_ in says["messages"]]


@pytest.mark.parametrize(("version", "next_offset"), [("5.4.0", 5), ("5.5.0", 17)])
def test_a_pull_that_filters(version: str, next_offset: int, golden_store: GoldenStore) -> None:
    """Before 5.5.0 no more rows are read than messages are asked for."""
    puller = puller_of(Snapshot(open_store(golden_store(NAME)), parse_version(version)), "orders", 1)
    answer = puller.pull(2, 3, Subscription(("nobody",)))
    assert (answer.status, answer.next_begin_offset) == ("NO_MATCHED_MESSAGE", next_offset)


@pytest.mark.parametrize(("preferred", "next_offset"), [("default", 17), ("defaultRocksDB", 5)])
def test_which_of_both_kinds_is_read(preferred: str, next_offset: int, golden_store: GoldenStore) -> None:
    """That of the setting: 5.4.0 reads no more rows than messages are asked for, but all units of a file."""
    conf = BrokerConf({"rocksdbCQDoubleWriteEnable": "true", "combineCQPreferCQType": preferred})
    store = open_store(golden_store("more/5.4.0-rocksdb-twice"), conf)
    puller = puller_of(Snapshot(store, parse_version("5.4.0")), "orders", 1)
    assert puller.pull(2, 3, Subscription(("nobody",))).next_begin_offset == next_offset


LIGHT_QUEUES = 400


@pytest.fixture
def many_queues(tmp_path: Path) -> Path:
    """A store of many light queues, two messages in each."""
    log = LogBuilder(file_size=1 << 20)
    units = []
    for number in range(2 * LIGHT_QUEUES):
        queue, offset = f"%LMQ%{number % LIGHT_QUEUES}", number // LIGHT_QUEUES
        properties = {"INNER_MULTI_DISPATCH": queue, "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        begin = log.add(topic="sensors", queue_offset=number, properties=properties)
        value = unit_value(begin, log.end - begin, 0, START_TIME)
        units += [("sensors", 0, number, value), (queue, 0, offset, value)]
    log.write(tmp_path / "store")
    write_queues(tmp_path / "store", units, log.end)
    return tmp_path / "store"


@pytest.mark.parametrize("options", [("--pull", "--queue-offset", "0"), ("--queue-offset", "1")])
def test_one_queue_of_many_is_read_alone(
    options: tuple[str, ...], many_queues: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither units nor ends of the other queues: some rows, however many queues there are."""
    some_rows, read = RocksDb.some_rows, list[bytes]()

    def counted(self: RocksDb, family: str, start: bytes, stop: bytes, most: int) -> tuple[list[bytes], list[bytes]]:
        keys, values = some_rows(self, family, start, stop, most)
        read.extend(keys)
        return keys, values

    def refused(*arguments: object) -> None:
        raise AssertionError("all rows of a family")

    monkeypatch.setattr(RocksDb, "some_rows", counted)
    monkeypatch.setattr(RocksDb, "rows", refused)
    monkeypatch.setattr(RocksDb, "blocks", refused)
    result = query(many_queues, "--topic", "%LMQ%77", "--queue", "0", *options)
    assert result.status == 0
    assert 0 < len(read) < 20
    assert all(b"%LMQ%77" in key for key in read[-2:])


@pytest.fixture
def without_a_row(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store that lacks the row of offset 7 of one queue."""
    store = copied(unpacked(NAME), tmp_path / "store")
    with changed(store / "consumequeue") as families:
        families["default"].delete(unit_key("orders", 1, 7))
    return store


def test_a_row_that_is_missing(without_a_row: Path) -> None:
    """A pull ends before it, and one that begins there finds nothing."""
    puller = puller_of(Snapshot(open_store(without_a_row)), "orders", 1)
    assert pulled(puller, 0) == [*range(7)]
    answer = puller.pull(7, 32, ALL)
    assert (answer.status, answer.next_begin_offset) == ("OFFSET_FOUND_NULL", 0)
    assert pulled(puller, 8) == [*range(8, 17)]


def test_a_trace_says_that_it_is_missing(without_a_row: Path) -> None:
    """And where the others are, it is there."""
    snapshot = Snapshot(open_store(without_a_row))
    queue = snapshot.queue("orders", 1)
    assert queue is not None
    offsets = {unit.queue_offset: unit.physical_offset for unit in queue.units_behind(-1)}
    assert list(offsets) == [*range(7), *range(8, 17)]
    assert [queue.find(offset) for offset in offsets.values()] == [queue.unit_at(number) for number in offsets]
    [traced] = query(without_a_row, "--json", "--offset", str(offsets[6]), "--trace").of_kind("message")
    assert traced["places"]["consume_queue"]["state"] == "ok"
    assert traced["places"]["consume_queue"]["kind"] == "rocksdb"


def test_by_queue_offset(without_a_row: Path) -> None:
    """A message, also one without a row, whose hole is named."""
    options = ("--json", "--topic", "orders", "--queue", "1", "--queue-offset")
    [message] = query(without_a_row, *options, "6").of_kind("message")
    assert (message["topic"], message["queue_offset"]) == ("orders", 6)
    missing = query(without_a_row, *options, "7")
    assert [message["queue_offset"] for message in missing.of_kind("message")] == [7]
    assert "queue entry 7 is missing: 1 message of the log is out of consumers' reach" in missing.err


@pytest.fixture
def flushed_in_part(tmp_path: Path) -> Path:
    """A store of ten messages, of which RocksDB has the entries of the first six; a group has read eight."""
    log, units = LogBuilder(), []
    for number in range(10):
        begin = log.add(topic="orders", queue_id=0, queue_offset=number)
        units.append(("orders", 0, number, unit_value(begin, log.end - begin, 0, START_TIME)))
    store = log.write(tmp_path / "store")
    write_queues(store, units[:6], log.end)
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{"0":8,"3":1}}}')
    (store / "lock").touch()
    return store


def test_a_running_broker_has_more_in_memory(flushed_in_part: Path) -> None:
    """What RocksDB has not flushed is not missing, no lag is known, and each answer says so."""
    store = flushed_in_part
    group = "--group", "billing"
    note = "keeps queue entries in memory until RocksDB flushes them"
    assert [line["state"] for line in query(store, *group, "--json").lines] == ["hole", "no-queue"]
    with another_process(store / "lock", JAVA):
        traced = query(store, "--scan", "--trace", "--json")
        places = [message["places"] for message in traced.lines]
        assert [place["consume_queue"]["state"] for place in places] == ["ok"] * 6 + ["unread"] * 4
        assert [place["contradictions"] for place in places] == [[]] * 10
        read = query(store, *group, "--json")
        assert [(line["state"], line["lag"]) for line in read.lines] == [("unread", None)] * 2
        at = "--topic", "orders", "--queue", "0"
        others = [query(store, *at, *words) for words in (("--queue-offset", "9"), ("--queue-offset", "9", "--pull"),
                                                          ("--at", "2099-01-01"))]  # fmt: skip
        assert [note in each.err for each in (traced, read, *others)] == [True] * 5
        status = rmqtool("status", store, "--json").document["result"]
        assert (status["lag"]["groups"], status["not_looked_at"]) == (0, ["lags", "what waits"])
        shown = rmqtool("status", store)
        assert (shown.status, note in shown.out) == (Exit.OK, True)
        for command in ("status", "inspect"):
            found = rmqtool(command, store, "--format", "nagios", "--warning", "lag=1")
            assert (found.status, "lag=" in found.out) == (3, False)
        consumers = rmqtool("inspect", store, "--json").document["result"]["consumers"]
        assert [each["lag"] for each in consumers] == [None, None]
        assert "not flushed" in rmqtool("inspect", store).out
        assert note in rmqtool("pending", store).out
        page = flushed_in_part.with_name("report.html")
        rmqtool("report", store, "--output", page)
        assert "not known" in page.read_text()
        assert rmqtool("sql", store, "select count(lag) as known from groups").out == "known\n0\n"


def test_offsets_by_time(golden_store: GoldenStore) -> None:
    """Each message by its own time; what is asked past the end, 5.3.1 does not find."""
    root = golden_store(NAME)
    snapshot = Snapshot(open_store(root))
    queue = snapshot.queue("orders", 0)
    assert queue is not None
    units = [unit for offset in range(17) if (unit := queue.unit_at(offset))]
    times = [unit.store_timestamp or 0 for unit in units]
    found = QueueTimes(queue, snapshot.log_bytes)
    for time in times:
        assert found.boundary(time, "lower") == times.index(time)
        assert found.boundary(time, "upper") == 16 - times[::-1].index(time)
    versions = [parse_version(text) for text in ("5.2.0", "5.3.1", "5.3.2", "5.5.0")]
    assert [found.broker(times[-1] + 1, version) for version in versions] == [16, -1, 17, 17]
    assert [found.broker(0, version) for version in versions] == [0, 0, 0, 0]
    [line] = query(root, "--topic", "orders", "--queue", "0", "--at", str(times[5]), "--json").lines
    assert line["lower"] == times.index(times[5])
