"""The harness itself: what it writes is what it says, and the golden oracles are not stale."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden import stores
from tests.real_broker.golden import EXAMPLE
from tests.real_broker.harness import GEOMETRY, VERSIONS, Harness

pytestmark = pytest.mark.broker
Factory = Callable[[str], Harness]
Snapshot = dict[str, tuple[int, bytes]]
FILE_SIZE = int(GEOMETRY["mappedFileSizeCommitLog"])


@pytest.mark.rare
@pytest.mark.parametrize("version", VERSIONS)
def test_clean_store_agrees_with_itself(harness: Factory, tmp_path: Path, version: str) -> None:
    """After a clean stop a start changes nothing, and every unit of a queue is a record of the log."""
    harness(version).write(tmp_path, "clean")
    before = snapshot(tmp_path)
    oracle = harness(version).oracle(tmp_path)

    assert snapshot(tmp_path) == before
    assert not (tmp_path / "abort").exists()
    assert oracle["recovered"]["commit_log"] == oracle["commit_log"]
    assert oracle["recovered"]["queues"] == oracle["queues"]
    last = oracle["records"][-1]
    assert last["physical_offset"] + last["message_size"] == oracle["commit_log"]["max_offset"]
    sizes = {record["physical_offset"]: record["message_size"] for record in oracle["records"]}
    for queue in oracle["queues"]:
        assert queue["units"]
        assert all(sizes[unit[0]] == unit[1] for unit in queue["units"])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", stores.names())
def test_golden_oracle_is_not_stale(harness: Factory, tmp_path: Path, name: str) -> None:
    """The release says today about a golden store what its committed oracle says."""
    golden = stores.oracle(name)
    fresh = harness(golden["version"]).oracle(stores.unpack(name, tmp_path))

    assert {**golden, **fresh} == golden
    assert set(golden) - set(fresh) <= {"scenario", "how", "facts"}


@pytest.mark.rare
@pytest.mark.parametrize("version", VERSIONS)
def test_killed_store_recovers(harness: Factory, tmp_path: Path, version: str) -> None:
    """A start after SIGKILL keeps every record but one that the kill may have torn; the next start changes nothing."""
    harness(version).write(tmp_path, "killed")
    assert (tmp_path / "abort").exists()
    records = harness(version).oracle(tmp_path)["records"]

    first = harness(version).recover(tmp_path)
    assert not (tmp_path / "abort").exists()
    ends = [record["physical_offset"] + record["message_size"] for record in records[-2:]]
    rolled = -(-ends[-1] // FILE_SIZE) * FILE_SIZE  # a blank ends the file, and the next record was not written
    assert first["commit_log"]["max_offset"] in [*ends, rolled]
    assert harness(version).recover(tmp_path) == first


@pytest.mark.parametrize("version", ["4.4.0", "5.5.0"])
def test_held_store_is_alive_until_released(harness: Factory, tmp_path: Path, version: str) -> None:
    """A held store has a living process and an abort file, takes messages, and ends with a clean stop."""
    with harness(version).hold(tmp_path, messages_per_second=200) as pid:
        os.kill(pid, 0)
        assert (tmp_path / "abort").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not (tmp_path / "abort").exists()
    assert [queue["topic"] for queue in written(harness(version).oracle(tmp_path))] == ["live"]


def test_example_store_is_sound(harness: Factory) -> None:
    """The example is a cleanly stopped store of its release: a start changes nothing."""
    before = snapshot(EXAMPLE)
    oracle = harness("5.3.3").oracle(EXAMPLE)

    assert snapshot(EXAMPLE) == before
    assert oracle["recovered"]["queues"] == oracle["queues"]
    assert {"orders", "payments", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= {
        queue["topic"] for queue in written(oracle)
    }
    assert sum(len(content) for _, content in before.values()) < 600_000


def written(oracle: dict[str, Any]) -> list[dict[str, Any]]:
    return [queue for queue in oracle["queues"] if queue["max_offset"] > 0]


def snapshot(root: Path) -> Snapshot:
    """Modification time and content of every file."""
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}
