"""The cleaner of every release deletes, file for file and run for run, what rmqtool predicts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clean.planning import age
from tests.commands.running import KILLED_AT_A_DELETION, ROOT
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.cleaning import compare
from tests.real_broker.harness import VERSIONS, Harness

pytestmark = pytest.mark.broker

SAMPLE = 12  # of each release; `make cleaner` compares more


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cleaner_does_what_is_predicted(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Files that go, the log's minimum and every queue's minimum, after each of up to four runs."""
    outcome = compare(harness(version), range(SAMPLE), tmp_path)
    assert outcome.differences == []
    assert outcome.gone["commitlog"] > SAMPLE / 2
    assert outcome.gone["consumequeue"] > SAMPLE / 2
    assert outcome.runs > outcome.deleting_runs


def data_files(store: Path) -> list[str]:
    parts = ("commitlog", "consumequeue", "batchconsumequeue")
    files = (path for part in parts for path in (store / part).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(store)) for path in files)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("deletions", [None, 2, 9])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_starts_on_what_is_left(
    harness: Callable[[str], Harness], unpacked: GoldenStore, version: str, deletions: int | None, tmp_path: Path
) -> None:
    """After a whole deletion, and after one that was killed: it starts, keeps all files, and serves what is left."""
    broker, store = harness(version), tmp_path / "store"
    copied(unpacked(f"{version}-clean"), store)
    age(store, keep=3)
    arguments = ["clean", str(store), "--manual", "--yes", "--allow-unread", "--json", "--broker-version", version]
    before = stores.oracle(f"{version}-clean")
    if deletions is None:
        command = [sys.executable, "-m", "rmqtool", *arguments]
    else:
        command = [sys.executable, "-c", KILLED_AT_A_DELETION, str(deletions), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == (0 if deletions is None else 9), done.stderr
    left = data_files(store)
    recovered: dict[str, Any] = broker.recover(store)
    minimum = min(int(path.rpartition("/")[2]) for path in left if path.startswith("commitlog/"))
    assert recovered["commit_log"] == {**before["commit_log"], "min_offset": minimum}
    assert set(left) <= set(recovered["files"])
    expected = [record for record in before["records"] if record["physical_offset"] >= minimum]
    reachable = {offset for queue in recovered["queues"] for _, offset in queue["reachable"]}
    served = {offset for queue in before["recovered"]["queues"] for _, offset in queue["reachable"]}
    assert reachable == served & {record["physical_offset"] for record in expected}
    if deletions is None:
        result = json.loads(done.stdout)["result"]
        assert result["min_offset"] == minimum
        found = {(queue["topic"], queue["queue_id"]): queue["min_offset"] for queue in recovered["queues"]}
        moved = {(queue["topic"], queue["queue_id"]): queue["min_offset_after"] for queue in result["queues"]}
        assert {queue: found[queue] for queue in moved} == moved
