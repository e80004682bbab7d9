"""Exporting a store while a real broker's store classes write to it: nothing lost, nothing doubled, no damage."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.export.exporting import check, manifest_of, oracle_row, rows_of, sorted_properties
from tests.real_broker.harness import Harness

pytestmark = pytest.mark.broker

_RATE = 1000  # messages per second that the broker writes meanwhile


def _export(store: Path, output: Path) -> int:
    """Rows of one run."""
    options = ("--mode", "incremental", "--engine", "local", "--include", "prepared,rolled-back")
    done = rmqtool("export", store, "--output", output, *options)
    assert (done.status, done.err) == (0, ""), done.out + done.err
    rows: int = manifest_of(output)["runs"][-1]["rows"]
    return rows


@pytest.mark.parametrize("version", ["4.4.0", "5.5.0"])
def test_runs_beside_a_running_broker(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Each run adds what was written since; after the last one every record of the broker is there once."""
    broker, root, output = harness(version), tmp_path / "store", tmp_path / "out"
    root.mkdir()
    broker.write(root, "single")
    with broker.hold(root, messages_per_second=_RATE):
        rows = []
        for _ in range(4):
            rows.append(_export(root, output))
            time.sleep(0.3)
    assert sum(rows) > 1
    _export(root, output)
    expected = [oracle_row(record) for record in broker.oracle(root)["records"]]
    assert sorted_properties(rows_of(output)) == sorted_properties(expected)
    assert manifest_of(output)["skipped"] == []
    assert check(root, output) == []
