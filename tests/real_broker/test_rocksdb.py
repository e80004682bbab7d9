"""Killed stores with queues in RocksDB: what a start never makes again is predicted, entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.broker.offset_by_time import Boundary, QueueTimes
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.copies import copied
from tests.real_broker.harness import Harness
from tests.verify.verifying import codes_of, verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]
IN_ROCKSDB = {"storeType": "defaultRocksDB"}
WHOLE_LOG = {"commitLogRecoverMaxNum": "1000000"}
QUEUE = "live", 0
BOUNDARIES: tuple[Boundary, ...] = ("lower", "upper")
SIZE = 18 << 16  # of a log, bytes: files that the start does not look at, and ten that it does
CUT = {"commitlog.torn"}  # by a kill while a message is copied into the file: it stays past the end of the log


def range_of(store: Path) -> tuple[int, int]:
    loaded = Snapshot(open_store(store)).queue(*QUEUE)
    assert loaded is not None
    return loaded.range.min_offset, loaded.range.max_offset


def offsets_of(store: Path) -> list[int]:
    """Queue offsets that have a row."""
    database = Snapshot(open_store(store)).database
    assert database is not None
    offsets: list[int] = database.units(QUEUE, 0, 1 << 40).offsets.tolist()
    return offsets


@pytest.mark.one_in(2)
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("version", ["5.3.3", "5.4.0", "5.5.0"])
def test_what_a_start_leaves_out(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, flushed: bool
) -> None:
    """Also behind rows that an earlier broker had flushed; with the setting of the next step nothing is missing."""
    broker, store = harness(version), tmp_path / "store"
    store.mkdir()
    if flushed:
        broker.append(store, 500, IN_ROCKSDB, 2000)
    before = len(offsets_of(store)) if flushed else 0
    broker.append_and_kill(store, SIZE, IN_ROCKSDB)
    outcome = verify(store, version=version)
    [queue] = outcome.start.queues if outcome.start else []
    assert queue.max_offset_before == before
    assert (queue.lost > 1000) is (version != "5.3.3")
    lost = [finding for finding in outcome.findings if finding.code == "start.rows-lost"]
    assert sum(finding.count for finding in lost) == queue.lost
    whole = copied(store, tmp_path / "whole")
    assert verify(whole, version=version, conf=BrokerConf(WHOLE_LOG)).verdict == "dirty"
    for root, settings in ((store, {}), (whole, WHOLE_LOG)):
        with broker.hold(root, 0, {**IN_ROCKSDB, **settings}):
            pass
    assert range_of(store) == (queue.min_offset, queue.max_offset)
    rows = [*range(before), *range(before + queue.lost, before + queue.lost + queue.dispatched)]
    assert offsets_of(store) == rows
    assert offsets_of(whole) == [*range(queue.max_offset)]
    assert codes_of(verify(whole, version=version)) <= CUT
    after = verify(store, version=version)
    assert codes_of(after) - CUT == ({"consumequeue.missing-unit"} if queue.lost else set())
    assert sum(finding.count for finding in after.findings if finding.severity == "error") == queue.lost


@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.2.0", "5.3.3", "5.5.0"])
def test_offsets_by_time(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """What the release answers to every moment of a queue, and to those before and after it."""
    broker, store = harness(version), tmp_path / "store"
    store.mkdir()
    broker.append(store, 200, IN_ROCKSDB)
    snapshot = Snapshot(open_store(store))
    queue = snapshot.queue(*QUEUE)
    assert queue is not None
    units = [queue.unit_at(offset) for offset in range(queue.range.max_offset)]
    times = sorted({unit.store_timestamp or 0 for unit in units if unit})
    assert len(times) > 10
    moments = sorted({each + step for each in times[:40] + times[-5:] for step in (-1, 0, 1)} | {0, times[-1] + 9999})
    asked = [
        (moment, boundary) for moment in moments for boundary in (None, *(() if version == "5.2.0" else BOUNDARIES))
    ]
    questions = [[*QUEUE, moment, boundary.upper() if boundary else None]
                 for moment, boundary in asked]  # fmt: skip
    answers = broker.ask(store, {"time": questions, "query": [], "look": [], "pull": []}, IN_ROCKSDB)["time"]
    found = QueueTimes(queue, snapshot.log_bytes)
    ours = [
        found.boundary(moment, boundary) if boundary else found.broker(moment, parse_version(version))
        for moment, boundary in asked
    ]
    assert ours == answers
