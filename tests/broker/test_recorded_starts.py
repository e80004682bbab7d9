"""Predictions against what the real brokers of six versions did with randomly damaged stores, recorded once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker import recorded
from tests.broker.comparing import compare, predict
from tests.broker.damages import damaged
from tests.golden import stores

ANSWERS = recorded.load()
CASES = [(version, int(seed)) for version, answers in ANSWERS.items() for seed in answers]
FEW = [case for case in CASES if case[1] < 6]
MORE = [pytest.param(*case, marks=() if case[1] % 3 == 0 else pytest.mark.rare) for case in CASES if case[1] >= 6]


@pytest.mark.parametrize(("version", "seed"), FEW)
def test_prediction_is_what_the_broker_did(version: str, seed: int, tmp_path: Path) -> None:
    """Refusal, hang, the log's maximum, deleted files, minimum and maximum of every queue."""
    check(version, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "seed"), MORE)
def test_more_predictions(version: str, seed: int, tmp_path: Path) -> None:
    """The rest of what was recorded."""
    check(version, seed, tmp_path)


def check(version: str, seed: int, scratch: Path) -> None:
    case = damaged(recorded.name_of(version, seed), seed, scratch)
    assert list(compare(case.what, predict(version, case.root), ANSWERS[version][str(seed)])) == []


def test_the_record_holds_every_kind_of_end() -> None:
    """Refusals, cuts, deleted files and changed queues of each version: a comparison of nothing proves nothing."""
    for version, answers in ANSWERS.items():
        assert len(answers) >= 40
        refused = sum(bool(answer["refuses"]) for answer in answers.values())
        assert refused > 3 or version == "4.4.0"  # which ignores what others refuse
        started = [answer for answer in answers.values() if not answer["refuses"]]
        assert len({answer["max_offset"] for answer in started}) > 3, version
        assert sum(bool(answer["deleted"]) for answer in started) > 3, version


@pytest.mark.parametrize("name", stores.names())
def test_golden_stores_start_as_their_oracles_say(name: str, tmp_path: Path) -> None:
    """An undamaged store: nothing is lost, and offsets are those that the release reported after its start."""
    golden = stores.oracle(name)
    start, bounds = predict(golden["version"], stores.unpack(name, tmp_path))
    assert (start.refuses, start.hangs, start.messages_lost, start.commit_log_bytes_cut) == (None, False, 0, 0)
    assert start.mode == ("abnormal" if golden["scenario"] == "killed" else "normal")
    assert start.max_offset_after == golden["commit_log"]["max_offset"]
    for queue in golden["recovered"]["queues"]:
        key = queue["kind"], queue["topic"], queue["queue_id"]
        assert bounds[key] == (queue["min_offset"], queue["max_offset"])
