"""Healthy stores of every version have no finding above information; killed ones are only dirty."""

from __future__ import annotations

import re

import pytest

from tests.conftest import GoldenStore
from tests.golden import stores
from tests.verify.small_store import RECORDS, small_store
from tests.verify.verifying import codes_of, verify

KILLED = [name for name in stores.names() if name.endswith("-killed")]
HEALTHY = [name for name in stores.names() if name not in KILLED]


def listed(name: str) -> set[str]:
    """The findings that the page of the golden stores names for a store's scenario."""
    page = (stores.HERE / "README.md").read_text(encoding="utf-8")
    [row] = re.findall(rf"^\| `{name.partition('-')[2]}` \|.*$", page, re.MULTILINE)
    return {*re.findall(r"`([a-z-]+\.[a-z-]+)`", row.split(" | ")[3])}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.rare)])
def test_healthy_stores_are_clean(name: str, jobs: int, golden_store: GoldenStore) -> None:
    """Whatever the release and whatever is in the store; every record is counted."""
    outcome = verify(golden_store(name), jobs=jobs)
    assert codes_of(outcome) == set()
    assert codes_of(outcome, info=True) - {"timer.aged"} <= listed(name)  # which the day of the test decides
    assert outcome.verdict == "clean"
    assert outcome.total.totals.messages == len(stores.oracle(name)["records"])
    assert not outcome.total.extents


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_the_version_may_be_given(name: str, golden_store: GoldenStore) -> None:
    """The version that wrote the store, and the newest, which changes some things."""
    written_by = name.partition("-")[0]
    assert codes_of(verify(golden_store(name), version=written_by)) == set()
    newest = verify(golden_store(name), version="5.5")
    assert newest.verdict == "clean"
    assert codes_of(newest) <= ({"upgrade.changed"} if written_by < "5.4" else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_killed_stores_are_dirty(name: str, golden_store: GoldenStore) -> None:
    """What SIGKILL leaves is fixed by the next start."""
    outcome = verify(golden_store(name))
    assert outcome.verdict == "dirty"
    assert "store.unclean-stop" in codes_of(outcome) <= {"store.unclean-stop", "consumequeue.behind"}
    assert codes_of(outcome, info=True) <= listed(name)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", HEALTHY)
def test_every_unit_and_key_is_looked_at(name: str, golden_store: GoldenStore) -> None:
    """The counts of what was checked are those of the release."""
    oracle = stores.oracle(name)
    outcome = verify(golden_store(name))
    minimum = oracle["commit_log"]["min_offset"]
    units = [
        unit for queue in oracle["queues"] for unit in queue["units"] if unit[0] >= minimum and unit[1] != 0x7FFFFFFF
    ]
    assert outcome.report.checked.get("consumequeue.missing-unit", 0) == len(units)


def test_the_small_store_is_clean(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The healthy twin of every damage below."""
    outcome = verify(small_store(tmp_path_factory.mktemp("small") / "store"))
    assert [finding.message for finding in outcome.findings] == []
    assert outcome.total.totals.messages == RECORDS
