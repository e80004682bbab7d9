"""A broker that was converted to DLedger: its plain log and its DLedger log are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import inspect
from tests.conftest import GoldenStore

OLD_FILE = 65_536


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("more/5.3.3-converted")


def test_the_overview_shows_both_logs(store: Path) -> None:
    """The older one ends where the DLedger log begins; queues begin in the older one."""
    result = inspect(store, "--json").document["result"]
    assert result["broker"]["layout"] == "dledger"
    log = result["commit_log"]
    assert log["min_offset"] == OLD_FILE
    assert log["before_dledger"]["files"] == 1
    assert log["before_dledger"]["min_offset"] == 0
    assert 0 < log["before_dledger"]["max_offset"] <= OLD_FILE
    assert {(queue["min_offset"]) for queue in result["queues"]} == {0}
    assert "before DLedger in commitlog: 1 file" in inspect(store).out


def test_a_scan_counts_both_logs(store: Path) -> None:
    """All messages of the queues, of which one is older."""
    result = inspect(store, "--json", "--scan").document["result"]
    in_queues = sum(queue["max_offset"] for queue in result["queues"])
    assert result["commit_log"]["messages"] == in_queues == 401
    assert result["scan"]["damage"]["count"] == 0


@pytest.mark.slow
def test_filters_look_into_both_logs(store: Path) -> None:
    """The unit of the older message and those of the others are judged, each by its own record."""
    older = inspect(store, "--json", part="commitlog").of_kind("message")
    newer = inspect(store, "--json", part="dledger-n0").of_kind("message")
    first = newer[0]["store_timestamp"]
    keys = {older[0]["unique_key"], newer[-1]["unique_key"]}
    for options, expected in (
        (["--to", str(first)], older),
        (["--from", str(first)], newer),
        ([f"--key={key}" for key in keys], [m for m in older + newer if m["unique_key"] in keys]),
    ):
        found = inspect(store, "--json", *options, part="consumequeue")
        assert found.status == Exit.OK
        assert {line["kind"] for line in found.lines} == {"message"}
        assert sorted(line["physical_offset"] for line in found.lines) == [m["physical_offset"] for m in expected]


@pytest.mark.slow
def test_other_stores_have_no_older_log(golden_store: GoldenStore) -> None:
    """Neither plain stores nor those that were DLedger stores from the beginning."""
    for name in ("5.3.3-clean", "more/5.3.3-dledger"):
        assert inspect(golden_store(name), "--json").document["result"]["commit_log"]["before_dledger"] is None
