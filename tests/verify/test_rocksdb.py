"""Consume queues in RocksDB against the log: sound ones are clean, and each row that is lost or changed is told."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.parallel import WorkerPool
from rmqtool.findings.finding import Finding
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.store.unit_files import open_units
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.changed_rocksdb import (
    DISPATCHED_KEY,
    changed,
    end_value,
    max_key,
    min_key,
    unit_key,
    with_fields,
    write_queues,
)
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB, UNREAD
from tests.store.other_process import ROCKSDB as HELD
from tests.store.other_process import another_process
from tests.unchanged import unchanged
from tests.verify.verifying import codes_of, verify

QUEUES = [name for name, settings in ROCKSDB.items() if "storeType" in settings and "5.1.4" not in name]
NAME = "more/5.5.0-rocksdb"
ORDERS = ("orders", 1)  # of 17 units

Families = dict[str, Any]


@pytest.fixture
def store(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store to damage."""
    return copied(unpacked(NAME), tmp_path / "store")


def found(outcome: Outcome, code: str) -> list[Finding]:
    return [finding for finding in outcome.findings if finding.code == code]


@pytest.mark.slow
def test_light_queues_have_no_rows_before_5_3_2(golden_store: GoldenStore) -> None:
    """Whatever broker.conf says; without a named release it may be one of these that wrote the store."""
    store, conf = golden_store("more/5.2.0-rocksdb"), BrokerConf({"enableLmq": "true", "enableMultiDispatch": "true"})
    assert codes_of(verify(store, version="5.2.0", conf=conf)) == set()
    unnamed = verify(store, conf=conf)
    assert (unnamed.verdict, codes_of(unnamed)) == ("unproven", set())
    assert any("light queues" in gap.text for gap in unnamed.gaps)
    assert not any("light queues" in gap.text for gap in verify(store).gaps)
    assert "consumequeue.missing-queue" in codes_of(verify(store, version="5.3.3", conf=conf))


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 1])
def test_a_start_that_makes_rows_of_batches_anew(kept: int, unpacked: GoldenStore, tmp_path: Path) -> None:
    """The queue ends at the first offset of its last batch, as it always does: no message is lost by that."""
    store = copied(unpacked("more/5.3.3-rocksdb"), tmp_path / "store")
    with changed(store / "consumequeue") as families:
        for key in [key for key, _ in families["default"].items() if b"bulk" in key][kept:]:
            del families["default"][key]
        if kept:
            families["offset"][max_key("bulk", 0)] = end_value(*bulk_end(families["default"]))
        else:
            del families["offset"][max_key("bulk", 0)]
        families["offset"][DISPATCHED_KEY] = bytes(8)
    (store / "abort").touch()
    outcome = verify(store, version="5.3.3")
    assert outcome.verdict == "dirty"
    assert found(outcome, "start.queue-loss") == []


def bulk_end(units: Any) -> tuple[int, int]:
    """Physical and queue offset of the one unit that is left."""
    [(key, value)] = [(key, value) for key, value in units.items() if b"bulk" in key]
    return int.from_bytes(value[:8], "big"), int.from_bytes(key[-8:], "big")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUEUES)
def test_sound_stores_have_no_finding(name: str, golden_store: GoldenStore) -> None:
    """Every unit of every queue is compared; nothing in the store is touched."""
    outcome = verify(golden_store(name))
    assert (outcome.verdict, codes_of(outcome)) == ("clean", set())
    assert codes_of(outcome, info=True) - UNREAD - {"timer.aged"} <= {
        "store.rocksdb-queues",
        "config.rocksdb",
        "config.offset-out-of-range",
    }
    assert [gap.what for gap in outcome.gaps if "queues" in gap.what] == []
    records = stores.oracle(name)["survey"]["queues"].values()
    assert outcome.report.checked["consumequeue.missing-unit"] >= sum(len(queue["messages"]) for queue in records) > 80
    assert outcome.report.checked["consumequeue.wrong-end"] > 8


@pytest.mark.parametrize("name", ["5.5.0-rocksdb", "5.5.0-rocksdb-single"])
def test_each_database_is_opened_once(
    name: str, golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all that read it, and it is closed in the end: no directory of links is left."""
    opened: list[str] = []
    enter = RocksDb.__enter__

    def counted(database: RocksDb) -> RocksDb:
        opened.append(database.directory.name)
        return enter(database)

    monkeypatch.setattr(RocksDb, "__enter__", counted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome = verify(golden_store(f"more/{name}"))
    assert len(opened) == len({*opened}) > 2
    assert outcome.complete
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", QUEUES)
def test_the_version_may_be_given(name: str, golden_store: GoldenStore) -> None:
    """The release that wrote it."""
    assert codes_of(verify(golden_store(name), version=name[5:10])) == set()


def change(store: Path, row: Callable[[Families], object]) -> Outcome:
    with changed(store / "consumequeue") as families:
        row(families)
    return verify(store)


def unit_of(families: Families, queue_offset: int) -> bytes:
    value: bytes = families["default"][unit_key(*ORDERS, queue_offset)]
    return value


def put(families: Families, queue_offset: int, **fields: int) -> None:
    families["default"][unit_key(*ORDERS, queue_offset)] = with_fields(unit_of(families, queue_offset), **fields)


def move_end(families: Families, queue_offset: int, physical_offset: int | None = None) -> None:
    value = unit_of(families, min(queue_offset, 16))[:8] if physical_offset is None else None
    at = int.from_bytes(value, "big") if value is not None else physical_offset or 0
    families["offset"][max_key(*ORDERS)] = end_value(at, queue_offset)


def add_long(families: Families) -> None:
    families["default"][unit_key(*ORDERS, 5) + b"x"] = unit_of(families, 5)


DAMAGES: dict[str, tuple[Callable[[Families], object], str, int | None, int]] = {
    "first row gone": (lambda f: f["default"].delete(unit_key(*ORDERS, 0)), "consumequeue.missing-unit", 0, 1),
    "row gone": (lambda f: f["default"].delete(unit_key(*ORDERS, 7)), "consumequeue.missing-unit", 7, 1),
    "rows gone": (
        lambda f: [f["default"].delete(unit_key(*ORDERS, at)) for at in (3, 4, 5, 9)], "consumequeue.missing-unit", 3, 4
    ),
    "last row gone": (lambda f: f["default"].delete(unit_key(*ORDERS, 16)), "consumequeue.missing-unit", 16, 1),
    "all rows gone": (
        lambda f: [f["default"].delete(unit_key(*ORDERS, at)) for at in range(17)], "consumequeue.missing-unit", 0, 17
    ),
    "another record": (lambda f: put(f, 7, physical_offset=0), "consumequeue.wrong-record", 7, 1),
    "inside a record": (lambda f: put(f, 7, physical_offset=33), "consumequeue.wrong-record", 7, 1),
    "another size": (lambda f: put(f, 7, message_size=77), "consumequeue.wrong-record", 7, 1),
    "another tags code": (lambda f: put(f, 7, tags_code=77), "consumequeue.tags-code", 7, 1),
    "another time": (lambda f: put(f, 7, store_timestamp=77), "consumequeue.store-timestamp", 7, 1),
    "a value cut": (
        lambda f: f["default"].put(unit_key(*ORDERS, 7), unit_of(f, 7)[:20]), "consumequeue.missing-unit", 7, 1
    ),
    "a long key": (add_long, "consumequeue.row", None, 1),
    "a row of no record": (
        lambda f: f["default"].put(unit_key("orders", 99, 0), unit_of(f, 3)), "consumequeue.row", None, 1
    ),
    "a key of no queue": (lambda f: f["default"].put(b"nonsense", b""), "consumequeue.row", None, 1),
    "an end of no queue": (lambda f: f["offset"].put(b"nonsense", b""), "consumequeue.row", None, 1),
    "an end too low": (lambda f: move_end(f, 12), "consumequeue.wrong-end", 13, 4),
    "no end": (lambda f: f["offset"].delete(max_key(*ORDERS)), "consumequeue.wrong-end", 0, 17),
    "an end too high": (lambda f: move_end(f, 20), "consumequeue.wrong-end", 20, 1),
    "a beginning too high": (
        lambda f: f["offset"].put(min_key(*ORDERS), end_value(0, 9)), "consumequeue.wrong-end", 0, 9
    ),
    "an end of another message": (lambda f: move_end(f, 16, 33), "consumequeue.wrong-end", 16, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_each_changed_row_is_told(name: str, store: Path) -> None:
    """With its queue, its queue offset and how many there are; the queues of others are sound."""
    damage, code, queue_offset, count = DAMAGES[name]
    outcome = change(store, damage)
    [told, *_] = found(outcome, code)
    assert (told.queue_offset, sum(finding.count for finding in found(outcome, code))) == (queue_offset, count)
    assert {finding.topic for finding in outcome.findings if finding.severity == "error"} <= {"orders", None}
    assert outcome.verdict == "corrupt"


def test_the_whole_queue_is_gone(store: Path) -> None:
    """Rows and end."""

    def remove(families: Families) -> None:
        for at in range(17):
            families["default"].delete(unit_key(*ORDERS, at))
        families["offset"].delete(max_key(*ORDERS))

    [told] = found(change(store, remove), "consumequeue.missing-queue")
    assert told.message.startswith("17 messages without an entry")


@pytest.mark.slow
def test_rows_behind_the_end_of_the_log_are_normal(store: Path) -> None:
    """A start cuts the ends of queues, not their rows; the next messages are written over them."""

    def dirty(families: Families) -> None:
        value = with_fields(unit_of(families, 16), physical_offset=1 << 40)
        families["default"][unit_key(*ORDERS, 17)] = value

    outcome = change(store, dirty)
    assert codes_of(outcome) == set()
    assert [finding.queue_offset for finding in found(outcome, "consumequeue.stale-row")] == [17]


def test_far_rows_take_no_time(store: Path) -> None:
    """An end that is far away, with a row there, is not walked to unit by unit."""

    def far(families: Families) -> None:
        families["default"][unit_key(*ORDERS, 1 << 50)] = unit_of(families, 16)
        move_end(families, 1 << 50, int.from_bytes(unit_of(families, 16)[:8], "big"))

    outcome = change(store, far)
    assert {"consumequeue.hole", "consumequeue.duplicate-unit"} <= codes_of(outcome)
    [hole] = found(outcome, "consumequeue.hole")
    assert hole.count == (1 << 50) - 17


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_damaged_database_is_a_finding(name: str, how: str, store: Path) -> None:
    """With the directory and what to do; never a traceback, and never a sound store."""
    path = max((store / "consumequeue").glob(name), key=lambda path: path.stat().st_size)
    if how == "gone":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2)
    outcome = verify(store)
    assert outcome.verdict == "corrupt"
    database = found(outcome, "consumequeue.database")
    missing = found(outcome, "consumequeue.missing-queue") + found(outcome, "consumequeue.missing-unit")
    assert [finding.file for finding in database] == ["consumequeue"] or missing


def test_a_flipped_block_is_no_end(store: Path) -> None:
    """A cursor ends there without a word."""
    table = max((store / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 0xFF
    table.write_bytes(data)
    outcome = verify(store)
    [told] = found(outcome, "consumequeue.database")
    assert table.name in told.message
    assert re.search(r"\d+ queues? not compared: \S+ \d", told.message)
    assert f"in {table.name} offset" in told.message
    assert "consumequeue.missing-unit" not in codes_of(outcome)


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_any_flipped_byte(store: Path, seed: int) -> None:
    """Of tables, manifest and CURRENT: told, or nothing is lost by it."""
    chance = Random(seed)
    for path in (*(store / "consumequeue").glob("*.sst"), *(store / "consumequeue").glob("MANIFEST-*")):
        data = path.read_bytes()
        for position in chance.sample(range(len(data)), 4):
            path.write_bytes(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])
            outcome = verify(store)
            assert outcome.report.checked["consumequeue.missing-unit"] > 150
            assert codes_of(outcome) <= {"consumequeue.database"}
        path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_several_processes_give_the_same(jobs: int, store: Path) -> None:
    """Each opens the database for itself."""
    with changed(store / "consumequeue") as families:
        DAMAGES["rows gone"][0](families)
    request = VerifyRequest(jobs=jobs, part_size=10_000)
    with unchanged(store), WorkerPool[Any](jobs - 1) as pool:
        verification = Verification(open_store(store), request)
        verification.run(lambda size: None, pool)
        outcome = outcome_of(verification)
    assert sum(finding.count for finding in found(outcome, "consumequeue.missing-unit")) == 4
    assert codes_of(outcome) == {"consumequeue.missing-unit"}


def test_what_a_running_broker_has_not_flushed(store: Path) -> None:
    """Is no hole, and said."""

    def unflushed(families: Families) -> None:
        for at in range(10, 17):
            families["default"].delete(unit_key(*ORDERS, at))
        move_end(families, 9)
        for at in range(17):
            families["default"].delete(unit_key("orders", 2, at))
        families["offset"].delete(max_key("orders", 2))

    with changed(store / "consumequeue") as families:
        unflushed(families)
    (store / "rocksdbstore" / "LOCK").parent.mkdir(exist_ok=True)
    (store / "rocksdbstore" / "LOCK").touch()
    with another_process(store / "rocksdbstore" / "LOCK", HELD):
        outcome = verify(store)
    assert codes_of(outcome) == set()
    assert any("not flushed" in text for text in outcome.unproven)


def test_without_the_library(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install, and nothing about the queues."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    outcome = verify(store)
    assert codes_of(outcome) == set()
    assert any("pip install 'rmqtool[rocksdb]'" in gap.text for gap in outcome.gaps)
    assert outcome.verdict == "unproven"


@pytest.mark.slow
def test_the_end_of_the_log_is_lost(store: Path) -> None:
    """After a clean stop the database knows of messages after it."""
    with changed(store / "consumequeue") as families:
        families["offset"][DISPATCHED_KEY] = (1 << 30).to_bytes(8, "big")
    [told] = found(verify(store), "commitlog.end-missing")
    assert f"the queues in RocksDB know of messages up to {1 << 30}" in told.message


@pytest.fixture
def twice(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store whose queues are in files and in RocksDB."""
    store = copied(unpacked("5.5.0-shop"), tmp_path / "twice")
    rows = []
    for queue in Snapshot(open_store(store)).queues:
        with open_units(queue) as units:
            numbers = range(units.start, units.data_end if queue.kind == "simple" else 0)
            rows += [(queue.topic, queue.queue_id, number, units.read(number, 1) + bytes(8)) for number in numbers]
    write_queues(store, rows, None)
    return store


@pytest.mark.slow
def test_files_and_rows_that_are_the_same(twice: Path) -> None:
    """As a broker leaves them that writes both."""
    outcome = verify(twice)
    assert found(outcome, "consumequeue.copies-differ") == []
    assert outcome.report.checked["consumequeue.copies-differ"] > 100
    assert outcome.start is not None
    assert {each.topic for each in outcome.start.queues} == {"bulk"}  # batches, which have no rows here


@pytest.mark.slow
def test_files_and_rows_that_differ(twice: Path) -> None:
    """A row that is gone and one that is another; the files, which a broker reads, are sound."""
    with changed(twice / "consumequeue") as families:
        families["default"].delete(unit_key(*ORDERS, 3))
        put(families, 5, physical_offset=0)
    outcome = verify(twice)
    [told] = found(outcome, "consumequeue.copies-differ")
    assert (told.queue_offset, told.count) == (3, 2)
    assert "in RocksDB there is no row" in told.message
    assert "consumequeue.missing-unit" not in codes_of(outcome)


def test_a_broker_with_queues_in_rocksdb_alone_does_not_write_twice(store: Path) -> None:
    """`RocksDBMessageStore` does not look at the setting: the queues have no files, and rows are what counts."""
    conf = BrokerConf({"storeType": "defaultRocksDB", "rocksdbCQDoubleWriteEnable": "true"})
    assert verify(store, conf=conf).verdict == "clean"


@pytest.mark.slow
def test_a_queue_whose_files_are_gone(twice: Path) -> None:
    """Rows stand for it unless broker.conf says that both are written."""
    shutil.rmtree(twice / "consumequeue" / "orders" / "1")
    assert found(verify(twice), "consumequeue.missing-queue") == []
    conf = BrokerConf({"rocksdbCQDoubleWriteEnable": "true"})
    [told] = found(verify(twice, conf=conf, version="5.4.0"), "consumequeue.missing-queue")
    assert (told.topic, told.queue_id) == ORDERS


def without_files(unpacked: GoldenStore, root: Path, topics: str = "*") -> Path:
    """A store of a broker that writes queues twice, without the files of queues of some topics."""
    store = copied(unpacked("more/5.5.0-rocksdb-twice"), root / "twice")
    for directory in [path for path in (store / "consumequeue").glob(topics) if path.is_dir()]:
        shutil.rmtree(directory)
    return store


@pytest.mark.slow
@pytest.mark.parametrize(("topics", "why"), [("orders", "others in files as well"), ("*", "topics in JSON")])
def test_without_broker_conf_lost_files_are_a_doubt(
    topics: str, why: str, unpacked: GoldenStore, tmp_path: Path
) -> None:
    """A broker that left files for RocksDB has made no files of later queues: it is no finding, and never clean."""
    store = without_files(unpacked, tmp_path, topics)
    outcome = verify(store)
    assert (outcome.verdict, codes_of(outcome)) == ("unproven", set())
    [text] = [gap.text for gap in outcome.gaps if "files of queues" in gap.text]
    assert why in text
    only_rows = verify(store, conf=BrokerConf({"storeType": "defaultRocksDB"}))
    assert not any("files of queues" in gap.text for gap in only_rows.gaps)


@pytest.mark.slow
@pytest.mark.parametrize("topics", ["orders", "*"])
def test_rows_of_missing_files_are_no_duplicates(topics: str, unpacked: GoldenStore, tmp_path: Path) -> None:
    """They lead to the messages of their queue, as the units did that are missing."""
    conf = BrokerConf({**ROCKSDB["more/5.5.0-rocksdb-twice"]})
    outcome = verify(without_files(unpacked, tmp_path, topics), conf=conf)
    assert codes_of(outcome) == {"consumequeue.missing-queue"}


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "moved"), [("orders", [("desk", 15)] * 4), ("vouchers", [("gifts", 4)])])
def test_groups_begin_again_where_only_rows_are_left(
    topic: str, moved: list[tuple[str, int]], unpacked: GoldenStore, tmp_path: Path
) -> None:
    """A broker that writes queues twice reads the files: it serves no row of those that are gone."""
    conf = BrokerConf({**ROCKSDB["more/5.5.0-rocksdb-twice"]})
    clients = verify(without_files(unpacked, tmp_path, topic), conf=conf, version="5.5.0").clients
    assert clients is not None
    assert {each.topic for each in clients.unreachable.queues} == {topic}
    assert [(each.group, each.next_had) for each in clients.groups] == moved
    assert {each.next_after for each in clients.groups} == {0}


@pytest.mark.slow
def test_files_that_are_left_from_before(twice: Path) -> None:
    """With storeType=defaultRocksDB no broker reads them."""
    for path in (twice / "consumequeue" / "orders" / "1").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    conf = BrokerConf({"storeType": "defaultRocksDB"})
    assert "consumequeue.hole" not in codes_of(verify(twice, conf=conf))
    assert codes_of(verify(twice))


@pytest.mark.parametrize("part", [2, 1.25])
def test_a_manifest_that_lost_its_end(store: Path, part: float) -> None:
    """It opens, and names older tables or none: no command takes that for all rows."""
    [manifest] = (store / "consumequeue").glob("MANIFEST-*")
    os.truncate(manifest, int(manifest.stat().st_size / part))
    outcome = verify(store)
    [damaged] = found(outcome, "consumequeue.database")
    assert "the MANIFEST names fewer tables than there are" in damaged.message
    assert codes_of(outcome) == {"consumequeue.database"}
    for arguments in (
        ("clean", "--dry-run"),
        ("query", "--group", "desk"),
        ("query", "--at", "0", "--topic", "orders"),
    ):
        done = rmqtool(arguments[0], store, *arguments[1:])
        assert done.status == Exit.FAILED
        assert "rows may be missing" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("left", ["MANIFEST-", ".sst"])
def test_a_database_of_which_little_is_left(store: Path, left: str) -> None:
    """Still a database: its files are not taken for stray ones, nor the queues for queues in files."""
    for path in (store / "consumequeue").iterdir():
        if left not in path.name:
            path.unlink()
    outcome = verify(store)
    assert codes_of(outcome) == {"consumequeue.database"}
    done = rmqtool("repair", store, "--dry-run")
    assert "do not belong there" not in done.out
    assert "--broker-conf BROKER_CONF" in done.out


@pytest.mark.slow
def test_tables_that_are_left_over(store: Path) -> None:
    """As a broker leaves them that is killed while it writes one; no row is missing."""
    table = next((store / "consumequeue").glob("*.sst"))
    shutil.copy(table, store / "consumequeue" / "999999.sst")
    outcome = verify(store)
    assert codes_of(outcome) == set()
    [told] = found(outcome, "consumequeue.left-over-table")
    assert "999999.sst" in told.message
