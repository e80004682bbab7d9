"""A sample of a store: all that it tells is true, it is spread, and it says what was not looked at."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from rmqtool.base.errors import Exit
from rmqtool.store.store import open_store
from rmqtool.verify import log_pass
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.commands.running import errors_of, rmqtool
from tests.store.other_process import JAVA, another_process
from tests.unchanged import unchanged
from tests.verify.small_store import FILE_SIZE, small_store
from tests.verify.verifying import codes_of

PART_SIZE = 350


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.fixture(autouse=True)
def _the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve halves all have one place, or none has it, once in two thousand runs."""
    monkeypatch.setattr(log_pass, "random", Random(1))


def sampled(store: Path, share: float) -> Outcome:
    run = Verification(open_store(store), VerifyRequest(part_size=PART_SIZE, sample=share))
    with unchanged(store):
        run.run(lambda size: None)
    return outcome_of(run)


def extents_left(outcome: Outcome) -> list[tuple[int, int]]:
    return [(extent.physical_offset, extent.size) for extent in outcome.log_map if extent.state == "not-reached"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0001, 0.1, 0.5, 0.9])
def test_of_a_sound_store(share: float, store: Path) -> None:
    """Its parts are others each time, as many as were asked for; nothing is claimed of the rest."""
    outcomes = [sampled(store, share) for _ in range(8)]
    size = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    written = sampled(store, 1).log_end
    for outcome in outcomes:
        assert (outcome.verdict, outcome.complete, outcome.status) == ("unproven", False, Exit.OK)
        assert codes_of(outcome, info=True) <= {"store.not-started"}
        assert outcome.start_not_predicted == "only a sample was read"
        assert [gap.why for gap in outcome.gaps if gap.why != "empty"] == ["sample"]
        looked_at = size - sum(extent[1] for extent in extents_left(outcome))
        assert share * written <= looked_at + 1 <= share * written + 2 * PART_SIZE + size - written
    assert len({tuple(extents_left(outcome)) for outcome in outcomes}) > 3


@pytest.mark.slow
def test_it_is_spread(store: Path) -> None:
    """A quarter of the parts is no quarter of the log: wherever a third of it begins, some of it is looked at."""
    size = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    for _ in range(5):
        assert all(extent[1] < size / 3 for extent in extents_left(sampled(store, 0.25)))


@pytest.mark.slow
def test_all_of_it(store: Path) -> None:
    outcome = sampled(store, 1)
    assert (outcome.verdict, outcome.complete) == ("clean", True)


@pytest.mark.slow
def test_damage_is_found_where_it_is_looked_for(store: Path) -> None:
    """And is never found elsewhere."""
    log = sorted((store / "commitlog").iterdir())[1]
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    log.write_bytes(data)
    at = FILE_SIZE + 1000
    found = set()
    for _ in range(12):
        outcome = sampled(store, 0.5)
        is_left = any(start <= at < start + size for start, size in extents_left(outcome))
        assert bool(codes_of(outcome)) is not is_left
        found.add(outcome.status)
    assert found == {Exit.OK, Exit.FINDINGS}


def test_of_a_store_in_use(store: Path) -> None:
    """Its parts are whole files."""
    (store / "lock").touch()
    with another_process(store / "lock", JAVA):
        outcome = sampled(store, 0.1)
    assert (outcome.complete, outcome.status, codes_of(outcome)) == (False, Exit.OK, set())
    assert sum(size for _, size in extents_left(outcome)) >= FILE_SIZE


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_of_a_command(jobs: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was chosen to be left out changes no exit status; a plug-in says OK, and JUnit that the rest was skipped."""
    monkeypatch.setattr(log_pass, "_SMALL_PART", PART_SIZE)
    command = ("verify", store, "--sample", "5%", "-j", jobs)
    found = rmqtool(*command, "--json")
    assert errors_of("verify", found.document) == []
    assert (found.status, found.document["result"]["complete"]) == (Exit.OK, False)
    assert [gap["why"] for gap in found.document["result"]["not_checked"]] == ["sample"]
    text = rmqtool(*command)
    assert "verdict  unproven - no problems in the parts read; not read: all but a sample" in text.out
    assert "that point to them: --sample leaves them out" in " ".join(text.out.split())
    assert text.err == f"next: rmqtool verify {store}\n"
    plugin = rmqtool(*command, "--format", "nagios")
    assert (plugin.status, plugin.out[:50]) == (0, "RMQTOOL OK - a sample, unproven so far | messages=")
    assert "all but a sample" in rmqtool(*command, "--format", "junit").out
    (store / "abort").touch()
    assert rmqtool(*command).status == Exit.FINDINGS


@pytest.mark.parametrize("text", ["5", "0%", "101%", "-5%", "five%", "", "5%%", "1e1%", "0.00000001%"])
def test_what_is_no_share(text: str, store: Path) -> None:
    wrong = rmqtool("verify", store, f"--sample={text}")
    assert wrong.status == Exit.USAGE
    assert f"{text!r} is not a share above 0% and up to 100%; example: 5%" in wrong.err
