"""Stores of other layouts, written again by each release that can, are read as the golden ones are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.inspect.listings import objects
from tests.real_broker.harness import VERSIONS, Harness, scenarios
from tests.unchanged import unchanged

pytestmark = [pytest.mark.broker, pytest.mark.rare]
Factory = Callable[[str], Harness]


@pytest.mark.parametrize("version", [version for version in VERSIONS if "dledger" in scenarios(version)])
def test_dledger_of_each_release(harness: Factory, tmp_path: Path, version: str) -> None:
    """Every message that the queues lead to is in the entries, in the order of their Raft index."""
    harness(version).write(tmp_path, "dledger")
    with unchanged(tmp_path):
        messages = [found for found in objects(tmp_path / "dledger-n0") if found["kind"] == "message"]
        units = [found for found in objects(tmp_path / "consumequeue") if found["kind"] == "message"]
    assert [found["dledger_index"] for found in messages] == list(range(400))
    assert all(found["body_crc_ok"] for found in messages)
    assert sorted(found["physical_offset"] for found in messages) == sorted(found["physical_offset"] for found in units)


@pytest.mark.parametrize("version", [version for version in VERSIONS if "extras" in scenarios(version)])
def test_extras_of_each_release(harness: Factory, tmp_path: Path, version: str) -> None:
    """Ext units, timer and compaction of each 5.x."""
    harness(version).write(tmp_path, "extras")
    with unchanged(tmp_path):
        units = objects(tmp_path / "consumequeue" / "orders")
        ext = objects(tmp_path / "consumequeue_ext" / "orders")
        assert [unit["tags_code"] for unit in units] == [unit["address"] for unit in ext]
        waiting = [unit for unit in objects(tmp_path / "timerlog") if unit["kind"] == "timer_unit"]
        slots = objects(tmp_path / "timerwheel")
        assert len(waiting) == sum(slot["count"] for slot in slots) == 60
        assert all(slot["in_place"] for slot in slots)
        kept = [found for found in objects(tmp_path / "compaction" / "compactionLog") if found["kind"] == "message"]
        assert [found["queue_offset"] for found in kept] == list(range(60))


@pytest.mark.parametrize("version", [version for version in VERSIONS if "compacted" in scenarios(version)])
def test_a_compaction_of_each_release(harness: Factory, tmp_path: Path, version: str) -> None:
    """Once the broker's own schedule has compacted, the log has one message of each key there, and all after it."""
    harness(version).write(tmp_path, "compacted")
    with unchanged(tmp_path):
        lines = objects(tmp_path / "compaction" / "compactionLog")
        kept = [found for found in lines if found["kind"] == "message"]
        units = [unit for unit in objects(tmp_path / "compaction" / "compactionCq") if unit["kind"] == "batch"]
    assert {line["kind"] for line in lines} == {"message"}
    assert [unit["physical_offset"] for unit in units] == [found["physical_offset"] for found in kept]
    offsets = [found["queue_offset"] for found in kept]
    assert offsets == list(range(offsets[0], 60))
    assert len({found["keys"][0] for found in kept[:7]}) == 7
    assert offsets[0] > 0
