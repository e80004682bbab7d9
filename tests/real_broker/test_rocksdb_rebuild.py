"""Real brokers on rebuilt queue databases: their users have what they had, and what a start has lost comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.changed_rocksdb import changed, end_value, min_key
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.harness import GEOMETRY, SHOP_SETTINGS, Harness
from tests.verify.verifying import verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Factory = Callable[[str], Harness]
IN_ROCKSDB = {"storeType": "defaultRocksDB"}
QUEUE = "live", 0
SIZE = 18 << 16  # of a log, bytes: files that a start does not look at, and ten that it does


def rebuild(root: Path, version: str, settings: dict[str, str]) -> None:
    conf = root.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = rmqtool("rebuild-cq", root, "--yes", "--json", "--broker-version", version, "--broker-conf", conf)
    assert (done.status, done.document["result"]["state"]) == (Exit.OK, "done")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "name",
    ["more/5.2.0-rocksdb", "more/5.3.3-rocksdb", "more/5.3.3-rocksdb-twice", "more/5.4.0-rocksdb",
     "more/5.5.0-rocksdb", "more/5.5.0-rocksdb-single", "more/5.5.0-rocksdb-twice",
     "more/5.5.1-rocksdb"],
)  # fmt: skip
def test_users_have_what_they_had(harness: Factory, golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """Every queue with its minimum and maximum, every message, every group: of a database from nothing.

    Timers are left out: a broker does not deliver what was due a week ago, and had not when the oracle was asked.
    """
    version = stores.version_of(name)
    root = copied(golden_store(name), tmp_path / "store")
    database = root / ("consumequeue_rocksdb" if "-single" in name else "consumequeue")
    shutil.rmtree(database)
    rebuild(root, version, {**GEOMETRY, **SHOP_SETTINGS, **ROCKSDB[name]})
    (survey,) = harness(version).survey([(root, ())], ROCKSDB[name])
    assert {**survey, "timers": []} == {**stores.oracle(name)["survey"], "timers": []}


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_what_a_start_has_lost_comes_back(harness: Factory, tmp_path: Path, version: str) -> None:
    """Entries that a start after a crash never makes again; a broker goes on from there."""
    broker, root = harness(version), tmp_path / "store"
    root.mkdir()
    broker.append_and_kill(root, SIZE, IN_ROCKSDB)
    with broker.hold(root, 0, IN_ROCKSDB):
        pass
    lost, end = range_of(root)
    assert lost > 1000
    rebuild(root, version, IN_ROCKSDB)
    with broker.hold(root, 0, IN_ROCKSDB):
        pass
    assert range_of(root) == (0, end)
    database = Snapshot(open_store(root)).database
    assert database is not None
    assert database.units(QUEUE, 0, end).offsets.tolist() == [*range(end)]
    with broker.hold(root, 300, IN_ROCKSDB):
        pass
    assert range_of(root) > (0, end)


def range_of(root: Path) -> tuple[int, int]:
    loaded = Snapshot(open_store(root)).queue(*QUEUE)
    assert loaded is not None
    return loaded.range.min_offset, loaded.range.max_offset


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_beginning_behind_messages(harness: Factory, tmp_path: Path, version: str) -> None:
    """A broker trusts the min row; with a new database it finds the beginning again."""
    broker, root = harness(version), tmp_path / "store"
    root.mkdir()
    broker.append(root, 100, IN_ROCKSDB)
    end = range_of(root)[1]
    with changed(root / "consumequeue") as families:
        families["offset"][min_key(*QUEUE)] = end_value(0, 9)
    [found] = [each for each in verify(root, version=version).findings if each.code == "consumequeue.wrong-end"]
    assert (found.queue_offset, found.count) == (0, 9)
    [answer] = broker.ask(root, {"pull": [[*QUEUE, 0, 1, None]]}, IN_ROCKSDB)["pull"]
    assert (answer["status"], answer["next_begin_offset"]) == ("OFFSET_TOO_SMALL", 9)
    rebuild(root, version, IN_ROCKSDB)
    [answer] = broker.ask(root, {"pull": [[*QUEUE, 0, 1, None]]}, IN_ROCKSDB)["pull"]
    assert (answer["status"], answer["min_offset"], answer["max_offset"]) == ("FOUND", 0, end)
