"""Verdicts against what the users of real brokers lose, today: a few stores; `make losses` judges hundreds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_broker.harness import Harness
from tests.real_broker.healthy import run as run_healthy
from tests.real_broker.loss_stores import committed
from tests.real_broker.losses import run_matrix, run_random, undamaged
from tests.verify import losses_recorded as recorded

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Factory = Callable[[str], Harness]
_SEEDS = range(2)
_ROWS = ("index/: deleted", "config/: deleted", "config/topics.json: touched")


@pytest.mark.rare
def test_random_losses(harness: Factory, tmp_path: Path) -> None:
    """No store is `clean` or `dirty` whose users have less than before."""
    harness("5.3.3")
    results = list(run_random("5.3.3", _SEEDS, [committed("5.3.3", tmp_path)]))
    assert len(results) == len(_SEEDS)
    assert sum(bool(result.lost) for result in results) >= len(_SEEDS) / 2
    assert [str(result) for result in results if result.wrong] == []


@pytest.mark.rare
def test_the_record_is_what_the_broker_says(harness: Factory) -> None:
    """A few rows, asked again: keys are not found, topics are not known, and a later time changes nothing."""
    harness("4.9.7")
    results = list(run_matrix("4.9.7", _ROWS))
    lost = recorded.load()["4.9.7"]
    assert {result.case.name: result.lost for result in results} == {row: lost[row] for row in _ROWS}
    assert [sorted(result.lost) for result in results] == [["keys"], ["committed", "delays", "groups", "topics"], []]


@pytest.mark.rare
def test_a_survey_is_of_all_that_users_have(harness: Factory, tmp_path: Path) -> None:
    """An area that is empty before could lose nothing; timers that were due more than a week ago wait no longer."""
    harness("5.3.3")
    facts = undamaged("5.3.3", committed("5.3.3", tmp_path))
    assert facts.pop("refuses") is None
    assert sorted(facts) == ["committed", "delays", "groups", "keys", "queues", "timers", "topics"]
    assert all(value for area, value in facts.items() if area != "timers")
    assert all(len(queue["messages"]) > 0 for queue in facts["queues"].values())


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_no_alarm_while_it_runs_or_after_a_kill(harness: Factory, version: str) -> None:
    """A running broker, a copy of its store taken meanwhile, and a store that was killed at a random moment."""
    harness(version)
    assert [str(healthy) for healthy in run_healthy(version, 2, seed=0, stopped=False) if healthy.wrong] == []
