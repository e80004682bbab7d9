"""What lookups, queries by key and pulls find in every golden store is what the release that wrote it finds.

The oracle has asked after a start. Of a killed store that start dispatched the last records: there the answers that
the files as they stand allow must agree.
"""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.broker.pull import Subscription, puller_of
from rmqtool.rules.versions import PULL_BY_UNITS, parse_version
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.single_record import record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.golden.stores import oracle

NOT_DISPATCHED = 10  # records at the end of a killed store, at most


@pytest.fixture(params=stores.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def says(name: str) -> dict[str, Any]:
    return oracle(name)


@pytest.fixture
def snapshot(name: str, says: dict[str, Any], golden_store: GoldenStore) -> Snapshot:
    """The store by the rules of the release that wrote it."""
    return Snapshot(open_store(golden_store(name)), parse_version(says["version"]))


def last_indexed(snapshot: Snapshot, says: dict[str, Any]) -> int:
    """Where the index ends: of a cleanly stopped store with the log."""
    if says["scenario"] != "killed":
        return 1 << 62
    return max(file.end_physical_offset for file in snapshot.index.files)


@pytest.mark.slow
def test_keys_are_found(snapshot: Snapshot, says: dict[str, Any]) -> None:
    """A query finds what the broker finds, without a limit and as a set, and no index file is called damaged."""
    last = last_indexed(snapshot, says)
    for query in says["index"]["queries"][::4]:
        units = snapshot.index.query(query["topic"], query["key"], 10_000)
        found = sorted({unit.physical_offset for unit in units if record_at(snapshot.log.files, unit.physical_offset)})
        assert found == [offset for offset in query["physical_offsets"] if offset <= last]
    assert snapshot.index.problems == {}
    lost = [record for record in says["records"] if record["physical_offset"] > last]
    assert len(lost) <= NOT_DISPATCHED


@pytest.mark.one_in(6)
def test_every_record_is_found_at_its_offset(snapshot: Snapshot, says: dict[str, Any]) -> None:
    for record in says["records"][::7]:
        frame = record_at(snapshot.log.files, record["physical_offset"])
        assert frame is not None
        (message,) = message_dicts(frame, "", "none")
        assert message["message_id"] == record["message_id"]


@pytest.mark.one_in(2)
def test_reachable_messages(snapshot: Snapshot, says: dict[str, Any]) -> None:
    """A consumer that pulls one by one from the minimum to the maximum gets what the release gives it."""
    missing = 0
    for queue in says["queues"]:
        found = reachable(snapshot, queue["topic"], queue["queue_id"])
        assert found == queue["reachable"][: len(found)]
        missing += len(queue["reachable"]) - len(found)
    assert missing <= (NOT_DISPATCHED if says["scenario"] == "killed" else 0)


def reachable(snapshot: Snapshot, topic: str, queue_id: int) -> list[list[int]]:
    queue = snapshot.queue(topic, queue_id)
    assert queue is not None
    puller = puller_of(snapshot, topic, queue_id)
    offset, found = queue.range.min_offset, []
    while offset < queue.range.max_offset:
        answer = puller.pull(offset, 1, Subscription())
        if answer.status == "FOUND":
            (unit,) = answer.units
            told = unit.queue_offset if snapshot.release >= PULL_BY_UNITS else answer.next_begin_offset - 1
            found.append([told, unit.physical_offset])
        offset = max(offset + 1, answer.next_begin_offset)
    return found


@pytest.mark.one_in(6)
def test_every_unit_is_found_by_queue_offset(snapshot: Snapshot, says: dict[str, Any]) -> None:
    """Each unit of each queue is at its queue offset, and is found by the physical offset that it leads to."""
    for described in says["queues"]:
        queue = snapshot.queue(described["topic"], described["queue_id"])
        assert queue is not None
        for number, unit in enumerate(described["units"], described["first_unit"]):
            offset = unit[4] if described["kind"] == "batch" else number
            if offset >= queue.range.max_offset:
                assert says["scenario"] == "killed"
                continue
            found = queue.unit_at(offset)
            assert found is not None
            assert [found.physical_offset, found.message_size, found.tags_code] == unit[:3]
            again = queue.find(unit[0])
            assert again is not None
            assert again.queue_offset == offset


def test_units_behind_a_place_in_the_log(snapshot: Snapshot, says: dict[str, Any]) -> None:
    for described in says["queues"][:6]:
        queue = snapshot.queue(described["topic"], described["queue_id"])
        assert queue is not None
        offsets = [unit[0] for unit in described["units"]][: sum(file.count for file in queue.files)]
        for place in (-1, offsets[0], offsets[len(offsets) // 2], offsets[-1]):
            behind = [unit.physical_offset for unit in queue.units_behind(place)]
            assert behind == [offset for offset in offsets if offset > place]
