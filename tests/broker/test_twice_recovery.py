"""Starts on queues that are in files and in RocksDB: where they begin, and what becomes of the rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.broker.prediction import QueueChange
from rmqtool.broker.recovery import Recovery
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, Checkpoint
from rmqtool.formats.consume_queue import UNIT_SIZE, build_unit
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.broker.batches_twice import BATCHES, IN_FILES, IN_ROWS, TOPIC, batches_of_killed
from tests.building import START_TIME, LogBuilder
from tests.changed_rocksdb import changed, end_value, max_key, min_key, unit_key, unit_value, write_queues
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.unchanged import unchanged
from tests.verify.verifying import verify

PER_FILE, FILES = 4, 14
MESSAGES = PER_FILE * FILES
TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
LIGHT = {**TWICE, "combineCQUseRocksdbForLmq": "true"}
EVERY_FILE = {"combineCQMaxExtraSearchCommitLogFiles": "100", "commitLogRecoverMaxNum": "100"}
TOPICS = "orders", "early"
EARLY = 2
"""Messages of a topic that has them in the first file only."""


def store_of(root: Path, rows: int, *, killed: bool = True, queues: bool = True) -> Path:
    """A store whose first `rows` messages have rows, and all of them units in files; all times are the same."""
    log = LogBuilder(file_size=4 * 200 + 50)
    counts = dict.fromkeys(TOPICS, 0)
    names = [TOPICS[number < EARLY] for number in range(MESSAGES)]
    units, offsets = {topic: bytearray() for topic in TOPICS}, []
    for topic in names:
        at = log.add(topic=topic, queue_offset=counts[topic], body=b"x" * 80)
        offsets.append((topic, counts[topic], at))
        counts[topic] += 1
    log.write(root)
    size = log.offsets[1] - log.offsets[0]
    for topic, _, at in offsets:
        units[topic] += build_unit(at, size, 0)
    for topic in TOPICS if queues else ():
        (root / "consumequeue" / topic / "0").mkdir(parents=True)
        (root / "consumequeue" / topic / "0" / ("0" * 20)).write_bytes(
            bytes(units[topic]).ljust(100 * UNIT_SIZE, b"\0")
        )
    ends = [*log.offsets[1:], log.end]
    found = [(topic, 0, offset, unit_value(at, size, 0, START_TIME + 1)) for topic, offset, at in offsets[:rows]]
    write_queues(root, found, ends[rows - 1] if rows else None)
    with changed(root / "consumequeue") as families:  # a broker that was asked for minima
        for topic, queue_offset, at in offsets[:rows]:
            if queue_offset == 0:
                families["offset"][min_key(topic, 0)] = end_value(at, 0)
    fields = dict.fromkeys(CHECKPOINT_DTYPE.names or (), START_TIME + 3_600_000)
    (root / "checkpoint").write_bytes(
        Checkpoint.build({**fields, "logics_physical_offset": log.end}).ljust(4096, b"\0")
    )
    if killed:
        (root / "abort").touch()
    table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in TOPICS}
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return root


def rows_after(root: Path, version: str, settings: dict[str, str]) -> dict[str, QueueChange]:
    """What a start does with the rows, by topic."""
    with unchanged(root):
        snapshot = Snapshot(open_store(root, BrokerConf(settings)), parse_version(version))
        start = Recovery(snapshot, RecoveryRules.of(parse_version(version), snapshot.store.conf)).predict()
    assert start.refuses is None
    assert [each for each in start.queues if not each.in_rocksdb] == []
    return {each.topic: each for each in start.queues}


@pytest.mark.parametrize(
    ("version", "settings", "rows", "lost"),
    [
        ("5.3.3", TWICE, 10, 42),  # the last file, which the queues in files need
        ("5.3.3", {**TWICE, **EVERY_FILE}, 10, 42),
        ("5.3.4", TWICE, 10, 30),  # and three more
        ("5.3.4", {**TWICE, "combineCQMaxExtraSearchCommitLogFiles": "1"}, 10, 38),
        ("5.4.0", TWICE, 10, 30),
        ("5.4.0", TWICE, 44, 0),
        ("5.4.0", {**TWICE, "combineCQMaxExtraSearchCommitLogFiles": "100"}, 10, 6),  # ten files at most
        ("5.4.0", {**TWICE, **EVERY_FILE}, 10, 0),
        ("5.5.0", LIGHT, 10, 6),  # light queues are nowhere else, so that rows are searched for
        ("5.5.0", {**LIGHT, **EVERY_FILE}, 10, 0),
    ],
)
def test_after_a_kill(tmp_path: Path, version: str, settings: dict[str, str], rows: int, lost: int) -> None:
    """Rows of the files that are scanned, and those before them that are missing for good."""
    change = rows_after(store_of(tmp_path, rows), version, settings)["orders"]
    assert (change.lost, change.dispatched) == (lost, MESSAGES - rows - lost)
    assert change.max_offset == MESSAGES - EARLY


def test_batches_after_a_kill(tmp_path: Path) -> None:
    """As 5.3.3 does it: the files of a batch queue stay; its rows begin late, and end where the last batch begins."""
    root = batches_of_killed(tmp_path)
    change = rows_after(root, "5.3.3", TWICE)[TOPIC]
    assert change == QueueChange("simple", TOPIC, 0, 0, 0, *IN_ROWS, 0, len(BATCHES), in_rocksdb=True)
    queue = Snapshot(open_store(root, BrokerConf(TWICE)), parse_version("5.3.3")).queue(TOPIC, 0)
    assert queue is not None
    assert (queue.range.min_offset, queue.range.max_offset) == IN_FILES


@pytest.mark.parametrize(
    ("version", "settings", "in_rows"), [("5.4.0", TWICE, {False, True}), ("5.5.0", LIGHT, {True})]
)
def test_light_queues_after_a_kill(tmp_path: Path, version: str, settings: dict[str, str], in_rows: set[bool]) -> None:
    """A start of a broker that keeps them in RocksDB makes no files of them."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
    LogBuilder().add_all([{"properties": light}]).write(tmp_path)
    write_queues(tmp_path, [], None)
    (tmp_path / "abort").touch()
    conf = BrokerConf({**settings, "enableLmq": "true", "enableMultiDispatch": "true"})
    start = verify(tmp_path, version=version, conf=conf).start
    assert start is not None
    assert {each.in_rocksdb for each in start.queues if each.topic == "%LMQ%a"} == in_rows
    assert {each.in_rocksdb for each in start.queues if each.topic == "orders"} == {False, True}


@pytest.mark.parametrize(("version", "files"), [("5.3.4", 4), ("5.4.0", 4), ("5.5.0", 1)])
def test_without_any_row(tmp_path: Path, version: str, files: int) -> None:
    """A new database is not searched for since 5.5.0; a queue without a row is set to its end."""
    changes = rows_after(store_of(tmp_path, 0), version, TWICE)
    assert changes["orders"].dispatched == files * PER_FILE
    early = changes["early"]
    assert (early.min_offset, early.max_offset, early.lost, early.dispatched) == (EARLY, EARLY, EARLY, 0)


@pytest.mark.parametrize(("killed", "files"), [(False, 10), (True, 1)])
def test_without_any_file_of_a_queue(tmp_path: Path, killed: bool, files: int) -> None:
    """A start makes units of what it scans; without broker.conf the rows are taken for all that there is."""
    root = store_of(tmp_path, MESSAGES, killed=killed, queues=False)

    def changes(settings: dict[str, str]) -> list[tuple[str, bool, int, int]]:
        with unchanged(root):
            snapshot = Snapshot(open_store(root, BrokerConf(settings)), parse_version("5.4.0"))
            start = Recovery(snapshot, RecoveryRules.of(snapshot.release, snapshot.store.conf)).predict()
        return [(each.topic, each.in_rocksdb, each.dispatched, each.max_offset) for each in start.queues]

    assert changes({}) == []
    assert changes(TWICE) == [("orders", False, files * PER_FILE, MESSAGES - EARLY)]
    assert changes({**TWICE, "storeType": "defaultRocksDB"}) == []


@pytest.mark.parametrize(("version", "is_set"), [("5.3.3", False), ("5.3.4", True), ("5.5.0", True)])
def test_rows_that_end_elsewhere(tmp_path: Path, version: str, is_set: bool) -> None:
    """The files decide; before the combined store nothing does."""
    root = store_of(tmp_path, MESSAGES, killed=False)
    with changed(root / "consumequeue") as families:
        families["offset"][max_key("orders", 0)] = end_value(0, 9)
    found = rows_after(root, version, TWICE)
    end = MESSAGES - EARLY
    assert found == ({"orders": QueueChange("simple", "orders", 0, 0, 10, end, end, 0, 0, end, True)} if is_set else {})


def test_without_its_first_file(tmp_path: Path) -> None:
    """A broker searches for the minimum from that of before on: also then no older row is read."""
    root = store_of(tmp_path, MESSAGES, killed=False)
    min((root / "commitlog").iterdir()).unlink()
    with changed(root / "consumequeue") as families:
        last = families["default"][unit_key("orders", 0, 9)]
        families["offset"][max_key("orders", 0)] = last[:8] + end_value(0, 9)[8:]
    change = rows_after(root, "5.5.0", TWICE)["orders"]
    end = MESSAGES - EARLY
    assert (change.min_offset, change.max_offset, change.lost) == (end, end, end - (PER_FILE - EARLY))


@pytest.mark.parametrize(
    ("settings", "version", "topics"),
    [
        (TWICE, "5.5.0", {"orders", "early"}),
        (TWICE, "5.5.1", {"orders", "early"}),
        ({}, "5.5.1", {"orders"}),
        ({**TWICE, "rocksdbCQSelectiveDoubleWriteEnable": "true"}, "5.5.1", set()),
    ],
)
def test_topics_that_are_not_written_twice(
    tmp_path: Path, settings: dict[str, str], version: str, topics: set[str]
) -> None:
    """Since 5.5.1 a setting leaves out all topics but those of LITE messages; without broker.conf nobody knows."""
    root = store_of(tmp_path, 10)
    with changed(root / "consumequeue") as families:
        families["offset"].delete(max_key("early", 0))
    assert rows_after(root, version, settings).keys() == topics


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, settings in ROCKSDB.items() if TWICE.items() <= settings.items()])
def test_golden_stores(tmp_path: Path, name: str) -> None:
    """A start changes nothing of what a broker left at a clean stop, in files or in rows."""
    outcome = verify(stores.unpack(name, tmp_path), conf=BrokerConf(ROCKSDB[name]))
    assert outcome.verdict == "clean"
    assert outcome.start is not None
    assert outcome.start.queues == []


@pytest.mark.slow
def test_what_verify_says(tmp_path: Path) -> None:
    """A warning with the settings that prevent it: consumers read the files."""
    root = store_of(tmp_path, 10)
    outcome = verify(root, version="5.4.0", conf=BrokerConf(TWICE))
    [lost] = [each for each in outcome.findings if each.code == "start.rows-lost"]
    assert (lost.severity, lost.count, lost.topic) == ("warning", 30, "orders")
    assert "combineCQMaxExtraSearchCommitLogFiles=1000000 and commitLogRecoverMaxNum=1000000 in all" in lost.message
    assert "queues in files are read" in lost.effect
    before = verify(root, version="5.3.3", conf=BrokerConf(TWICE))
    [lost] = [each for each in before.findings if each.code == "start.rows-lost"]
    assert "that queues in files need, whatever is in RocksDB" in lost.message
    assert outcome.start_not_predicted is None
