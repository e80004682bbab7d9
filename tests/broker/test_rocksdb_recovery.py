"""Starts on queues in RocksDB: where they begin, what they make again, and what gets no row ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.broker.prediction import QueueChange, StartPrediction
from rmqtool.broker.recovery import Recovery
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME, LogBuilder
from tests.changed_rocksdb import changed, end_value, max_key, unit_key, unit_value, with_fields, write_queues
from tests.unchanged import unchanged
from tests.verify.verifying import codes_of, verify

PER_FILE = 4
MESSAGES = 14 * PER_FILE  # in files that hold four of them
QUEUES = 2
TOPIC = {"topicName": "orders", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}


@pytest.fixture
def log() -> LogBuilder:
    return orders(LogBuilder(file_size=4 * 200 + 50))


def orders(builder: LogBuilder) -> LogBuilder:
    for number in range(MESSAGES):
        builder.add(topic="orders", queue_id=number % QUEUES, queue_offset=number // QUEUES, body=b"x" * 80)
    return builder


def flushed(log: LogBuilder, store: Path, count: int) -> Path:
    """A killed store whose first `count` messages had their rows flushed."""
    log.write(store)
    (store / "abort").touch()
    ends = [*log.offsets[1:], log.end]
    size = log.offsets[1] - log.offsets[0]
    units = [("orders", number % QUEUES, number // QUEUES, unit_value(log.offsets[number], size, 0, START_TIME + 1))
             for number in range(count)]  # fmt: skip
    write_queues(store, units, ends[count - 1] if count else None)
    return store


def predict(store: Path, version: str, conf: BrokerConf | None = None) -> StartPrediction:
    with unchanged(store):
        snapshot = Snapshot(open_store(store, conf), parse_version(version))
        return Recovery(snapshot, RecoveryRules.of(parse_version(version), snapshot.store.conf)).predict()


def lost(start: StartPrediction) -> list[int]:
    return [queue.lost for queue in start.queues]


def test_the_log_has_files_of_four(log: LogBuilder) -> None:
    """So that the tenth last begins with the seventeenth message."""
    assert len(log.files) == MESSAGES // PER_FILE


@pytest.mark.parametrize(("version", "number"), [("5.2.0", 0), ("5.3.4", 0), ("5.4.0", 8), ("5.5.0", 8)])
def test_without_any_row(version: str, number: int, log: LogBuilder, tmp_path: Path) -> None:
    """Four of fourteen files are not looked at since 5.4.0."""
    start = predict(flushed(log, tmp_path, 0), version)
    assert start.queues == [
        QueueChange("simple", "orders", queue, 0, 0, number, 28, 0, 28 - number, number, True)
        for queue in range(QUEUES)
    ]


@pytest.mark.parametrize(
    ("count", "number", "minimum"), [(1, 8, 8), (10, 3, 8), (15, 1, 0), (16, 0, 0), (40, 0, 0), (MESSAGES, 0, 0)]
)
def test_behind_rows(count: int, number: int, minimum: int, log: LogBuilder, tmp_path: Path) -> None:
    """From the end of what was dispatched to the tenth last file.

    A minimum is searched by halves: it may be behind the gap though there are rows before it.
    """
    start = predict(flushed(log, tmp_path, count), "5.5.0")
    assert sum(lost(start)) == max(0, 16 - count)
    assert max(lost(start), default=0) == number
    assert sum(queue.dispatched for queue in start.queues) == min(40, MESSAGES - count)
    assert all((queue.min_offset, queue.max_offset) == (minimum, 28) for queue in start.queues)


@pytest.mark.parametrize(("setting", "number"), [("1000000", 0), ("13", 4), ("11", 12)])
def test_with_the_setting(setting: str, number: int, log: LogBuilder, tmp_path: Path) -> None:
    """So many files are looked at."""
    conf = BrokerConf({"commitLogRecoverMaxNum": setting})
    assert sum(lost(predict(flushed(log, tmp_path, 0), "5.5.0", conf))) == number


@pytest.mark.parametrize(("version", "number"), [("5.2.0", 16), ("5.3.3", 1), ("5.5.0", 1)])
def test_after_a_clean_stop(version: str, number: int, log: LogBuilder, tmp_path: Path) -> None:
    """Before 5.3.2 nothing is made again; since then all but the first, which begins where the rows end."""
    store = flushed(log, tmp_path, 40)
    (store / "abort").unlink()
    start = predict(store, version)
    assert sum(lost(start)) == number
    assert (start.dispatched_from is None) == (version == "5.2.0")
    whole = flushed(log, tmp_path / "whole", MESSAGES)
    (whole / "abort").unlink()
    assert predict(whole, version).dispatched_from is None


def test_a_log_without_a_record(tmp_path: Path) -> None:
    """Nothing gets a row."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(bytes(1024))
    write_queues(tmp_path, [], None)
    for _ in range(2):
        start = predict(tmp_path, "5.5.0")
        assert (start.dispatched_from, start.queues) == (None, [])
        (tmp_path / "abort").touch()


def test_ends_behind_the_log_are_moved_back(log: LogBuilder, tmp_path: Path) -> None:
    """The last messages were not on the disk: the end of each queue is its last message that is."""
    store = flushed(log, tmp_path, MESSAGES)
    with changed(store / "consumequeue") as families:
        value = with_fields(families["default"][unit_key("orders", 1, 27)], physical_offset=log.end)
        families["default"][unit_key("orders", 1, 28)] = value
        families["offset"][max_key("orders", 1)] = end_value(log.end, 28)
    assert predict(store, "5.5.0").queues == [QueueChange("simple", "orders", 1, 0, 29, 0, 28, 1, 0, 0, True)]


def cut(store: Path, number: int) -> Path:
    """A store with all rows, stopped cleanly, and a wrong CRC in a message, at which a start ends the log."""
    log = orders(LogBuilder(file_size=64 * 200))
    flushed(log, store, MESSAGES)
    (store / "abort").unlink()
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(log.offsets[number] + 8)
        file.write(b"\1\2\3\4")
    return store


@pytest.mark.parametrize(
    ("number", "ends"),
    [
        (45, [(23, 5), (21, 7)]),
        (40, [(14, 14), (20, 8)]),  # its row is the second one that the search by halves looks at
        (1, [(1, 27), (1, 28)]),  # the first row of the second queue is at the end of the log, and its maximum past it
        (0, [(1, 28), (28, 28)]),  # all rows are past the end of the log: the queue keeps its maximum
    ],
)
def test_where_queues_end_whose_rows_a_start_cuts(number: int, ends: list[tuple[int, int]], tmp_path: Path) -> None:
    """Maximum and rows that lead nowhere, as brokers of 5.3.3, 5.4.0 and 5.5.0 answer for golden stores."""
    start = predict(cut(tmp_path, number), "5.5.0")
    assert [(queue.max_offset, queue.truncated) for queue in start.queues] == ends
    assert [queue.served_end for queue in start.queues] == [28 - truncated for _, truncated in ends]


@pytest.mark.parametrize(("number", "refuses"), [(0, True), (40, False)])
def test_before_5_3_2_rows_past_the_log_stop_a_start(number: int, refuses: bool, tmp_path: Path) -> None:
    """Those of a queue that has no others, and whose topic is known."""
    store = cut(tmp_path, number)
    assert predict(store, "5.2.0").refusal is None
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"orders": TOPIC}}))
    assert (predict(store, "5.2.0").refusal is not None) is refuses
    assert predict(store, "5.3.2").refusal is None


def test_rows_that_are_the_only_queues(log: LogBuilder, tmp_path: Path) -> None:
    """They are not those of queues that are in files, too."""
    snapshot = Snapshot(open_store(flushed(log, tmp_path, 40)))
    found = Recovery(snapshot, RecoveryRules.of(parse_version("5.5.0"), snapshot.store.conf))
    assert (found.in_rocksdb is not None, found.twice) == (True, None)


def test_a_queue_without_cut_rows_is_served_whole() -> None:
    """Also one that is put in by hand, and had none before."""
    assert QueueChange("simple", "orders", 0, 0, 0, 3, 28, 0, 0).served_end == 28


@pytest.mark.slow
def test_it_is_a_finding_with_its_setting(log: LogBuilder, tmp_path: Path) -> None:
    """One for each queue, and none with the setting."""
    outcome = verify(flushed(log, tmp_path, 0), version="5.5.0")
    lost = [finding for finding in outcome.findings if finding.code == "start.rows-lost"]
    assert [(finding.count, "commitLogRecoverMaxNum=1000000" in finding.message) for finding in lost] == [(8, True)] * 2
    whole = verify(tmp_path, version="5.5.0", conf=BrokerConf({"commitLogRecoverMaxNum": "1000000"}))
    assert "start.rows-lost" not in codes_of(whole)


@pytest.mark.parametrize(("count", "file"), [(0, 0), (39, 9), (40, 10), (41, 10)])
def test_a_scan_after_a_crash_begins_where_rows_end(count: int, file: int, log: LogBuilder, tmp_path: Path) -> None:
    """Whatever the checkpoint says, which is missing here."""
    start = predict(flushed(log, tmp_path, count), "5.3.4")
    assert start.scan_from is not None
    assert start.scan_from.physical_offset == file * log.file_size
