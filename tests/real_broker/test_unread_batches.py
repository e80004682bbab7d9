"""Which batches a consumer gets from queues in RocksDB, and which brokers do not start with them, as predicted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.broker.upgrade import refusals
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.copies import copied
from tests.golden.rocksdb import UNREAD
from tests.real_broker.harness import Harness, HarnessError
from tests.real_broker.random_rocksdb import conf_of
from tests.verify.verifying import verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]
IN_ROCKSDB = {"storeType": "defaultRocksDB"}
TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
SEED = 4
READERS = ("5.2.0", "5.3.3", "5.4.0", "5.5.0")


def consumed(broker: Harness, root: Path, settings: dict[str, str]) -> set[int]:
    """The physical offsets of the batches that a consumer gets from the beginning, until it comes no farther."""
    offset, asked, found = 0, set[int](), set[int]()
    while offset not in asked:
        asked.add(offset)
        try:
            [answer] = broker.ask(root, {"pull": [["batches", 0, offset, 100, None]]}, settings)["pull"]
        except HarnessError as error:  # 5.5.0, where there is no row
            if "NullPointerException" not in str(error):
                raise
            break
        found.update(answer["physical_offsets"])
        offset = answer["next_begin_offset"]
    return found


def unread(root: Path, version: str, settings: dict[str, str]) -> int:
    """How many batches verify says that consumers do not get."""
    outcome = verify(root, version=version, conf=conf_of(settings))
    return sum(finding.count for finding in outcome.findings if finding.code in UNREAD)


@pytest.mark.rare
@pytest.mark.one_in(4)
@pytest.mark.parametrize("reader", READERS)
def test_batches_that_were_written_twice(harness: Callable[[str], Harness], tmp_path: Path, reader: str) -> None:
    """With storeType=defaultRocksDB a broker reads the rows: some of the batches. From files it reads all of them."""
    root = tmp_path / "store"
    root.mkdir()
    harness("5.3.3").write_random(root, TWICE, SEED, 300)
    database = Snapshot(open_store(root)).database
    assert database is not None
    batches = set(database.units(("batches", 0), 0, 1 << 40).values["physical_offset"].tolist())
    found = []
    for name, settings in (("files", {}), ("rows", IN_ROCKSDB)):
        predicted = unread(root, reader, settings)
        got = consumed(harness(reader), copied(root, tmp_path / name), settings)
        assert (got <= batches, len(batches) - len(got)) == (True, predicted), name
        found.append(predicted > 0)
    assert found == [False, True]


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("writer", ["5.3.3", "5.5.0"])
def test_batches_that_were_written_to_rocksdb(harness: Callable[[str], Harness], tmp_path: Path, writer: str) -> None:
    """By their own broker, too."""
    root = tmp_path / "store"
    root.mkdir()
    harness(writer).write_random(root, IN_ROCKSDB, SEED, 300)
    predicted = unread(root, writer, IN_ROCKSDB)
    database = Snapshot(open_store(root)).database
    assert database is not None
    batches = len(database.units(("batches", 0), 0, 1 << 40).offsets)
    got = consumed(harness(writer), root, IN_ROCKSDB)
    assert (batches - len(got), predicted > 0) == (predicted, True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("version", "starts"), [("5.3.3", True), ("5.4.0", False)])
def test_batch_queues_that_are_to_be_written_twice(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, starts: bool
) -> None:
    """Since CombineConsumeQueueStore a broker cannot load them then."""
    root = tmp_path / "store"
    root.mkdir()
    harness("5.3.3").write_random(root, TWICE, SEED, 100)
    snapshot = Snapshot(open_store(root, BrokerConf(TWICE)))
    assert bool([*refusals(snapshot, parse_version(version))]) != starts
    ask = {"pull": [["batches", 0, 0, 1, None]]}
    if starts:
        assert harness(version).ask(root, ask, TWICE)["pull"][0]["status"] == "FOUND"
    else:
        with pytest.raises(HarnessError, match="the store refuses to load"):
            harness(version).ask(root, ask, TWICE)
