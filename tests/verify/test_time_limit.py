"""A verification that may only take so long: it tells what it has not looked at, and claims nothing about that."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.times import parse_duration
from rmqtool.store.store import open_store
from rmqtool.verify import log_pass
from rmqtool.verify.after_scan import AfterScan
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import AnyPart, LogPart, VerifyRequest
from rmqtool.verify.verification import Verification
from tests.commands.running import errors_of, rmqtool
from tests.unchanged import unchanged
from tests.verify.small_store import FILE_SIZE, StoreBuilder, small_store
from tests.verify.verifying import codes_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def limited(store: Path, seconds: float, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """A verification whose clock goes on by a second whenever it is looked at."""
    clock = itertools.count()
    monkeypatch.setattr(log_pass, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    run = Verification(open_store(store), VerifyRequest(part_size=350, time_limit=seconds))
    with unchanged(store):
        run.run(lambda size: None)
    return outcome_of(run)


@pytest.mark.slow
def test_what_was_not_reached_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However early it ends: a sound store has no finding, and the bytes that are left are those of the map."""
    left = []
    for seconds in (1.5, 4.5, 8.5, 12.5):
        outcome = limited(store, seconds, monkeypatch)
        assert (outcome.verdict, outcome.complete, outcome.status) == ("unproven", False, Exit.LOSSY)
        assert codes_of(outcome) == set()
        (gap,) = (gap for gap in outcome.gaps if gap.why == "time-limit")
        left.append(sum(extent.size for extent in outcome.log_map if extent.state == "not-reached"))
        assert gap.text.startswith(f"{left[-1]} bytes of the log (")
        assert outcome.start_not_predicted == "the time limit was reached"
    assert left == sorted(left, reverse=True)
    assert 0 < left[-1] < left[0] <= len([*(store / "commitlog").iterdir()]) * FILE_SIZE


@pytest.mark.slow
def test_time_enough(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is a verification as any other."""
    outcome = limited(store, 1e9, monkeypatch)
    assert (outcome.verdict, outcome.complete, outcome.status) == ("clean", True, Exit.OK)


def of_parts(
    store: Path, chosen: Callable[[Sequence[AnyPart]], Sequence[int]], monkeypatch: pytest.MonkeyPatch
) -> Outcome:
    """What an interrupted verification tells whose processes had done some of the parts, by number."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_pass, "order_of", chosen)
    monkeypatch.setattr(AfterScan, "check_all", interrupt)
    run = Verification(open_store(store), VerifyRequest(part_size=350))
    with suppress(KeyboardInterrupt):
        run.run(lambda size: None)
    return outcome_of(run)


@pytest.mark.slow
def test_parts_that_do_not_follow_each_other(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies between them is not missing."""
    for seed in range(12):
        rng = random.Random(seed)
        outcome = of_parts(store, lambda parts, rng=rng: rng.sample(range(len(parts)), len(parts) // 2), monkeypatch)  # type: ignore[misc]
        assert (outcome.verdict, codes_of(outcome)) == ("unproven", set())


def test_offsets_that_begin_again_behind_a_part_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told, for no part between explains them."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    offsets = [builder.put(queue_offset=number % 30) for number in range(60)]
    store = small_store(tmp_path / "store", builder)

    def chosen(parts: Sequence[AnyPart]) -> list[int]:
        left_out = [isinstance(part, LogPart) and part.start <= offsets[30] < part.stop for part in parts]
        assert any(left_out)
        return [number for number, is_left_out in enumerate(left_out) if not is_left_out]

    outcome = of_parts(store, chosen, monkeypatch)
    assert "commitlog.queue-offset-restart" in codes_of(outcome)


@pytest.mark.budget(2)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_of_a_command(jobs: str, store: Path) -> None:
    """Status 3, or 1 with what was found until then; no plan, for the rest is not known."""
    found = rmqtool("verify", store, "--time-limit", "0s", "-j", jobs, "--json")
    assert found.status == Exit.LOSSY
    assert errors_of("verify", found.document) == []
    assert found.document["result"]["complete"] is False
    assert [gap["why"] for gap in found.document["result"]["not_checked"]] == ["time-limit"]
    (store / "abort").touch()
    damaged = rmqtool("verify", store, "--time-limit", "0s", "-j", jobs, "--json")
    assert damaged.status == Exit.FINDINGS
    assert damaged.document["result"]["plan"]["steps"] == []


def test_what_is_printed(store: Path) -> None:
    """The verdict says what is missing; a monitor is told that nothing is proven, JUnit that it was skipped."""
    text = rmqtool("verify", store, "--time-limit", "0s").out
    assert "verdict  unproven - no problems in the parts read; " in text
    assert "the time limit ended the verification" in text
    plugin = rmqtool("verify", store, "--time-limit", "0s", "--format", "nagios")
    assert (plugin.status, "time limit reached, unproven so far" in plugin.out) == (3, True)
    report = rmqtool("verify", store, "--time-limit", "0s", "--format", "junit").out
    assert 'errors="0"' in report
    assert "the rest (time limit)" in report


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("90s", 90_000), ("1h30m", 5_400_000), ("0s", 0), (" 10m ", 600_000), ("5ms", 5)]
)
def test_lengths_of_time(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["10", "-5m", "m", "", "1.5h", "10 m", "tomorrow"])
def test_what_is_no_length_of_time(text: str, store: Path) -> None:
    """It is named, with examples, and nothing is read."""
    wrong = rmqtool("verify", store, f"--time-limit={text}")
    assert wrong.status == Exit.USAGE
    assert f"{text!r} is not a duration; examples: 90s, 10m, 1h30m" in wrong.err
