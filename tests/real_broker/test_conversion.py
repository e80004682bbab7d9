"""Real brokers on converted stores: with the other `storeType` their users have all that they had."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.consume_queue import UNIT_DTYPE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import decode_units
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, open_store
from rmqtool.transaction.system import SYSTEM
from tests.changed_rocksdb import changed, end_value, max_key
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.golden import EXAMPLE
from tests.real_broker.harness import GEOMETRY, SHOP_SETTINGS, Harness
from tests.transaction.small import tree, undo

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Factory = Callable[[str], Harness]
BATCHES = "bulk/0"
LIGHT = "%LMQ%"
FILES = 5  # of a log of which two are deleted


def converted(root: Path, version: str, target: str, settings: dict[str, str]) -> dict[str, str]:
    """Convert a store whose broker has these settings; those that its broker needs then."""
    conf = root.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = rmqtool(
        *("rebuild-cq", root, "--to", target, "--yes", "--json", "--broker-version", version, "--broker-conf", conf)
    )
    assert (done.status, done.document["result"]["state"]) == (Exit.OK, "done")
    again = rmqtool(
        *("rebuild-cq", root, "--to", target, "--yes", "--json", "--broker-version", version, "--broker-conf", conf)
    )
    assert again.document["result"]["state"] == "nothing"
    needed: dict[str, str] = done.document["result"]["conversion"]["settings"]
    return needed


def served(survey: dict[str, Any], oracle: dict[str, Any]) -> dict[str, Any]:
    """What users have of what they had, but for batches, which RocksDB serves in part.

    Directories name queues of topics that are not configured, light ones and those that version 2 leaves out. Timers
    are left out: a broker does not deliver what was due a week ago, and had not when the oracle was asked.
    """
    names = {name for name in oracle["queues"] if name != BATCHES and LIGHT not in name}
    queues = {name: queue for name, queue in survey["queues"].items() if name in names}
    return {**survey, "queues": queues, "timers": []}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "name",
    ["more/5.1.4-rocksdb", "more/5.2.0-rocksdb", "more/5.3.3-rocksdb", "more/5.3.3-rocksdb-twice",
     "more/5.3.3-rocksdb-second-config", "more/5.4.0-rocksdb", "more/5.4.0-rocksdb-twice", "more/5.5.0-rocksdb",
     "more/5.5.0-rocksdb-single", "more/5.5.0-rocksdb-second-config", "more/5.5.0-rocksdb-twice",
     "more/5.5.1-rocksdb", "more/5.5.1-rocksdb-selected"],
)  # fmt: skip
def test_to_files(harness: Factory, golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """Every message, every end, topics, groups and offsets; light queues too, and every batch; undone to the byte."""
    version = stores.version_of(name)
    root = copied(golden_store(name), tmp_path / "store")
    before = tree(root)
    settings = {**GEOMETRY, **SHOP_SETTINGS, **ROCKSDB[name]}
    settings |= {"configManagerVersion": "v1"} if "-second" in name else {}
    needed = converted(root, version, "files", settings)
    undo(root, SYSTEM)
    assert tree(root) == before
    assert converted(root, version, "files", settings) == needed
    (survey,) = harness(version).survey([(root, ())], {**settings, **needed})
    oracle = stores.oracle(name)["survey"]
    assert served(survey, oracle) == served(oracle, oracle)
    batches = survey["queues"].get(BATCHES)
    # The units are those that a broker derives: 5.5.0 gives such a batch for each offset that is in it.
    assert batches is None or sorted({message[0] for message in batches["messages"]}) == [0, 4, 8, 12, 16]
    light = [len(queue["messages"]) for name, queue in survey["queues"].items() if LIGHT in name]
    assert light == [6, 6]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("more/5.4.0-rocksdb-twice", {}),
        ("more/5.5.0-rocksdb-twice", {}),
        ("more/5.5.0-rocksdb-twice", {"useSingleRocksDBForAllConfigs": "true"}),
        ("more/5.5.0-rocksdb-twice", {"useSeparateStorePathForRocksdbCQ": "true"}),
        ("more/5.4.0-rocksdb-twice", {"configManagerVersion": "v2"}),
    ],
)
def test_to_rocksdb(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, name: str, more: dict[str, str]
) -> None:
    """From files alone: the rows of a store that was written to both places are taken away first."""
    version = stores.version_of(name)
    root = copied(golden_store(name), tmp_path / "store")
    settings = {**GEOMETRY, **SHOP_SETTINGS, **ROCKSDB[name]}
    converted(root, version, "files", settings)
    in_files = {**{key: value for key, value in settings.items() if "ocks" not in key}, **more}
    in_files = {key: value for key, value in in_files.items() if key != "configManagerVersion"}
    before = tree(root)
    needed = converted(root, version, "rocksdb", {**in_files, **more})
    assert not [path for path in (root / CONFIG).iterdir() if "ffset.json" in path.name and "delay" not in path.name]
    undo(root, SYSTEM)
    assert tree(root) == before
    assert converted(root, version, "rocksdb", {**in_files, **more}) == needed
    (survey,) = harness(version).survey([(root, ())], {**in_files, **needed})
    oracle = stores.oracle(name)["survey"]
    assert served(survey, oracle) == served(oracle, oracle)
    database = Snapshot(open_store(root)).database
    assert database is not None
    assert [last.queue_offset for (topic, _), last in database.lasts.items() if topic.startswith(LIGHT)] == [5, 5]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("5.3.3", {}),
        ("5.5.0", {}),
        ("5.5.0", {"useSingleRocksDBForAllConfigs": "true"}),
        ("5.5.0", {"configManagerVersion": "v2"}),
    ],
)
def test_a_table_that_is_not_there(harness: Factory, tmp_path: Path, version: str, more: dict[str, str]) -> None:
    """The example has no file of groups: the broker begins with its own groups, and serves all the rest."""
    root = copied(EXAMPLE, tmp_path / "store")
    queues = {f"{queue.topic}/{queue.queue_id}" for queue in Snapshot(open_store(root)).queues}
    settings = {**GEOMETRY, **SHOP_SETTINGS, "enableLmq": "false", "enableMultiDispatch": "false", **more}
    needed = converted(root, version, "rocksdb", settings)
    assert rmqtool("verify", root, "--broker-version", version).status == Exit.OK
    (survey,) = harness(version).survey([(root, ())], {**settings, **needed})
    assert survey["refuses"] is None
    assert queues <= survey["queues"].keys()
    assert len(survey["groups"]) == 8  # which each broker has
    assert survey["committed"]["orders@warehouse/0"] == 20
    assert "config.missing" not in rmqtool("verify", root, "--broker-version", version).out


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("target", ["files", "rocksdb"])
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_after_a_retention(harness: Factory, tmp_path: Path, version: str, target: str) -> None:
    """With log files deleted a queue begins where it began; one without any message left goes on where it ended."""
    broker, root = harness(version), tmp_path / "store"
    root.mkdir()
    in_files, in_rocksdb = {"storeType": "default"}, {"storeType": "defaultRocksDB"}
    before, after = (in_rocksdb, in_files) if target == "files" else (in_files, in_rocksdb)
    with broker.hold(root, 5000, before):
        while len([*(root / "commitlog").iterdir()]) < FILES:
            time.sleep(0.05)
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    delete_queue_files(root)
    add_expired(root, in_rocksdb=target == "files")
    asked = {
        "pull": [["live", 0, 0, 32, None], ["gone", 0, 0, 32, None], ["gone", 0, 41, 32, None]],
        **{name: [] for name in ("query", "look", "time")},
    }
    said, begin, _ = broker.ask(root, asked, before)["pull"]
    assert said["min_offset"] > 0
    converted(root, version, target, {**GEOMETRY, **before})
    live, begin, end = broker.ask(root, asked, after)["pull"]
    assert live == said
    assert (begin["min_offset"], begin["max_offset"]) == (41, 41)
    assert end["status"] == "OFFSET_OVERFLOW_ONE"
    broker.append(root, 10, after)
    assert broker.ask(root, asked, after)["pull"][0]["max_offset"] > said["max_offset"]


def delete_queue_files(root: Path) -> None:
    """Delete what the cleaner deletes with the log; a broker takes the begin of the first file for the minimum."""
    log_min = min(int(path.name) for path in (root / "commitlog").iterdir())
    for path in (root / "consumequeue").glob("live/0/*"):
        if decode_units(UNIT_DTYPE, path.read_bytes())["physical_offset"][-1] in range(1, log_min):
            path.unlink()


def add_expired(root: Path, *, in_rocksdb: bool) -> None:
    """A queue whose last unit, number 40, is of a message in a deleted log file."""
    if in_rocksdb:
        with changed(root / "consumequeue") as families:
            families["offset"][max_key("gone", 0)] = end_value(500, 40)
        return
    directory = root / "consumequeue" / "gone" / "0"
    directory.mkdir(parents=True)
    units = [build_unit(500 + number, 100, 0) for number in range(30, 41)]
    (directory / file_name(600)).write_bytes(b"".join(units).ljust(600, b"\0"))
