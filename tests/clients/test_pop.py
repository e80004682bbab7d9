"""Messages that POP consumers hold, in RocksDB."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.clients.never_delivered import lacks_pop_store, pop_lost
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.pending.waiting_store import WaitingStore, work_of

pytest.importorskip("rocksdict")
from tests.changed_rocksdb import number, write_rows

KEPT = BrokerConf({"popConsumerKVServiceInit": "true"})


def pop_row(offset: int) -> tuple[bytes, bytes]:
    """The record of a message of topic `tasks` that a consumer of `workers` holds (`PopConsumerRecord`)."""
    return number(START_TIME) + b"workers@tasks@" + bytes(4) + b"@" + number(offset), b"{}"


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
