"""Compacted logs that are missing: consumers of their topics read from nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.findings.report import Selection
from rmqtool.rules.broker_conf import BrokerConf
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.verifying import codes_of, verify

WITHOUT_TIMER = Selection((), ("timer",))
OFF = BrokerConf({"enableCompaction": "false"})


@pytest.fixture(params=["5.3.3", "5.5.0"])
def store(request: pytest.FixtureRequest, golden_store: GoldenStore, tmp_path: Path) -> Path:
    return copied(golden_store(f"more/{request.param}-compacted"), tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["compactionLog", "compactionLog/state"])
def test_a_queue_that_was_compacted(store: Path, part: str) -> None:
    """Its log is needed, unless the broker does not read them."""
    assert codes_of(verify(store, selection=WITHOUT_TIMER)) == set()
    shutil.rmtree(store / "compaction" / part)
    outcome = verify(store, selection=WITHOUT_TIMER)
    assert (outcome.verdict, codes_of(outcome)) == ("corrupt", {"store.compacted-log"})
    [finding] = outcome.findings
    assert (finding.topic, finding.queue_id) == ("state", 0)
    assert codes_of(verify(store, selection=WITHOUT_TIMER, conf=OFF)) == set()


@pytest.mark.slow
def test_all_of_it(store: Path) -> None:
    """Nothing tells whether there was a compacted log: no store is clean then."""
    shutil.rmtree(store / "compaction")
    outcome = verify(store, selection=WITHOUT_TIMER)
    assert (outcome.verdict, codes_of(outcome)) == ("unproven", set())
    assert any(text.startswith("1 queue of compacted topics (state 0)") for text in outcome.unproven)
    shutil.rmtree(store / "consumequeue" / "state")
    unproven = verify(store, selection=WITHOUT_TIMER).unproven
    assert not any("compacted" in text for text in unproven)
