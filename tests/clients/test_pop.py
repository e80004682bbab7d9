"""Messages that POP consumers hold, in RocksDB and in the timer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.clients.losses import ClientLosses
from rmqtool.clients.never_delivered import lacks_pop_store, pop_lost
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.commands.running import rmqtool as run
from tests.pending.waiting_store import REVIVE, WaitingStore, rows_of, work_of
from tests.verify.timer_store import write_check
from tests.verify.verifying import verify

pytest.importorskip("rocksdict")
from tests.changed_rocksdb import pop_row, write_rows

KEPT = BrokerConf({"popConsumerKVServiceInit": "true"})


def test_rows_and_their_loss(tmp_path: Path) -> None:
    """A row of a message that is gone counts; without the database only broker.conf shows that something is lost."""
    builder = WaitingStore()
    for _ in range(3):
        builder.message("tasks")
    builder.committed = {("workers", "tasks"): 3}
    store = builder.build(tmp_path)
    write_rows(store / "kvStore", {"popState": dict(pop_row(offset) for offset in (0, 2, 7))})
    with_store = Snapshot(open_store(store, KEPT))
    assert (pop_lost(with_store), lacks_pop_store(with_store)) == (1, False)
    shutil.rmtree(store / "kvStore")
    without = Snapshot(open_store(store, KEPT))
    assert (pop_lost(without), lacks_pop_store(without)) == (0, True)
    assert not lacks_pop_store(Snapshot(open_store(store)))
    assert not work_of(store).notes.unread


def emptied(database: Path) -> None:
    for file in database.iterdir():
        file.unlink()


def a_file(database: Path) -> None:
    shutil.rmtree(database)
    database.write_text("x")


def without_manifest(database: Path) -> None:
    for file in database.glob("MANIFEST*"):
        file.unlink()


DAMAGES: list[tuple[Callable[[Path], object], bool, bool]] = [
    (lambda database: None, False, False),
    (shutil.rmtree, False, True),
    (emptied, False, True),
    (lambda database: (database / "CURRENT").unlink(), True, True),
    (without_manifest, True, True),
    (a_file, True, True),
]


@pytest.mark.parametrize(("damage", "refuses", "is_unknown"), DAMAGES)
def test_a_damaged_database(damage: Callable[[Path], object], refuses: bool, is_unknown: bool, tmp_path: Path) -> None:
    """A broker starts only on a database that RocksDB opens, and with an empty one; what was in it nobody knows."""
    builder = WaitingStore()
    builder.message("tasks")
    builder.committed = {("workers", "tasks"): 1}
    store = builder.build(tmp_path)
    write_rows(store / "kvStore", {"popState": dict([pop_row(0)])})
    damage(store / "kvStore")
    outcome = verify(store, version="5.5.0", conf=KEPT)
    assert outcome.clients is not None
    assert (outcome.clients.refuses is not None, outcome.clients.pop_unknown) == (refuses, is_unknown)
    assert ("unknown number of messages taken by POP" in outcome.clients.in_words) == is_unknown
    assert bool(ClientLosses(pop_unknown=outcome.clients.pop_unknown)) == is_unknown
    before = verify(store, version="5.3.1", conf=KEPT).start
    assert before is not None
    assert before.refusal is None


def with_check_points(root: Path) -> Path:
    """Two POPs in the timer, of three tasks and of two that are there; two of the first were acknowledged."""
    builder = WaitingStore()
    for _ in range(5):
        builder.message("tasks")
    due = START_TIME + 60_000
    fields: dict[str, Any] = {"t": "tasks", "q": 0, "c": "workers", "pt": START_TIME}
    for first in (0, 3):
        body = json.dumps({**fields, "so": first, "n": 3, "bm": 0, "it": 60_000}).encode()
        builder.timer(due, REVIVE, body, TAGS="ck")
    for tag, acknowledged in (("ack", {"ao": 0}), ("bAck", {"aol": [2]})):
        builder.timer(due, REVIVE, json.dumps({**fields, "so": 0, **acknowledged}).encode(), TAGS=tag)
    builder.timer(due)
    return builder.build(root)


@pytest.mark.slow
@pytest.mark.parametrize(("read", "timers", "pops"), [(0, 0, 0), (1, 1, 1), (2, 2, 3), (4, 4, 3), (5, 5, 3)])
def test_check_points_that_the_timer_has_read_and_lost(tmp_path: Path, read: int, timers: int, pops: int) -> None:
    """Without a timer log a start delivers none that `timercheck` counts as read: what they name never comes again."""
    store = with_check_points(tmp_path)
    write_check(store, queue_offset=read, read_until=START_TIME)
    result = run("--json", "verify", store, "--broker-version", "5.3.3").document["result"]
    for clients, lost in ((result["start"]["clients"], (timers, pops)), (result["plan"]["clients"], (0, 0))):
        assert (clients["timers"]["never"], clients["pop_lost"]) == lost
    assert len(rows_of(work_of(store), "pop")) == 3 - pops
