"""Findings of some topics only: those of the others are left out, all that names no topic stays."""

from __future__ import annotations

import pickle
from pathlib import Path
from shutil import rmtree

import pytest

from rmqtool.base.errors import Exit
from rmqtool.findings.report import Selection
from rmqtool.scan.filters import TopicChoice
from rmqtool.verify.outcome import Outcome
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.verifying import verify

CHOICES = {
    "one": TopicChoice(("orders",)),
    "another": TopicChoice(("payments",)),
    "a pattern": TopicChoice(("*RETRY*", "pay*")),
    "all but one": TopicChoice((), ("orders",)),
    "none that is there": TopicChoice(("nosuch",)),
}


@pytest.fixture(scope="module")
def broken(unpacked: GoldenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without some queues, with units of another queue in one, with a topic that topics.json lacks.

    To be read only.
    """
    store = copied(unpacked("5.3.3-shop"), tmp_path_factory.mktemp("broken") / "store")
    rmtree(store / "consumequeue" / "orders" / "1")
    rmtree(store / "consumequeue" / "payments" / "0")
    orders, payments = store / "consumequeue" / "orders" / "0", store / "consumequeue" / "payments" / "1"
    (name,) = (each.name for each in orders.iterdir())
    stolen = bytearray((payments / name).read_bytes())
    stolen[:40] = (orders / name).read_bytes()[:40]
    (payments / name).write_bytes(stolen)
    (store / "checkpoint").write_bytes(bytes(4096))
    return store


@pytest.fixture(scope="module")
def whole(broken: Path) -> Outcome:
    """What is found when nothing is left out."""
    return verify(broken, max_examples=1000)


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", CHOICES)
def test_only_findings_of_these_topics(broken: Path, whole: Outcome, name: str, jobs: int) -> None:
    """Examples and counts are those of the whole, without the findings that name another topic."""
    topics = CHOICES[name]
    some = verify(broken, jobs=jobs, max_examples=1000, selection=Selection(topics=topics))
    wanted = [each for each in whole.findings if each.topic is None or each.topic in topics]
    assert {each.topic for each in whole.findings} >= {None, "orders", "payments"}
    assert list(some.findings) == wanted
    assert some.start == whole.start
    assert some.lost == {topic: lost for topic, lost in whole.lost.items() if topic in topics}
    assert [gap.why for gap in some.gaps if gap.why == "topic"] == ["topic"]
    few = verify(broken, jobs=jobs, max_examples=1, selection=Selection(topics=topics))
    assert sum(each.count for each in few.findings) == sum(each.count for each in wanted)


def test_nothing_is_called_clean_that_was_left_out(broken: Path, tmp_path: Path) -> None:
    """Where only other topics are broken the verdict is unproven, as with --only."""
    store = copied(broken, tmp_path / "store")
    (store / "checkpoint").unlink()
    outcome = verify(store, selection=Selection(topics=TopicChoice(("vouchers",))))
    told = [each for each in outcome.findings if each.severity != "info"]
    assert [each.topic for each in told if each.topic] == []
    assert outcome.verdict != "clean"


@pytest.mark.slow
def test_the_command(broken: Path, tmp_path: Path) -> None:
    """It names the option beside the verdict, and again in a saved progress and in what follows."""
    found = rmqtool("verify", broken, "--topic", "orders")
    assert "not checked: other topics (--topic)" in found.out
    assert "payments, queue" not in found.out
    assert "orders, queue 1" in found.out
    options = ("--topic", "orders", "--time-limit", "0s", "--resume", tmp_path / "progress")
    assert "--topic orders" in rmqtool("verify", broken, *options).err
    refused = rmqtool("verify", broken, "--topic", "payments", *options[2:])
    assert refused.status == Exit.USAGE
    again = rmqtool("verify", broken, "--topic", "orders", "--resume", tmp_path / "progress")
    assert "orders, queue 1" in again.out


def test_a_topic_that_is_not_there(broken: Path, tmp_path: Path) -> None:
    """It is said before the log is read; a topic of the log alone counts as there."""
    store = copied(broken, tmp_path / "store")
    found = rmqtool("verify", broken, "--topic", "oders", "--only", "consumequeue")
    assert "there is no topic oders (did you mean orders" in found.err
    assert found.status == Exit.FINDINGS
    (store / "config" / "topics.json").unlink()
    rmtree(store / "consumequeue")
    found = rmqtool("verify", store, "--topic", "vouchers", "--only", "index")
    assert found.status == Exit.OK


def test_compiled_patterns_are_not_passed_on() -> None:
    """Progress in a file holds plain words."""
    choice = TopicChoice(("a*",))
    assert "abc" in choice
    assert b"_compile" not in pickle.dumps(choice)
    assert "abc" in pickle.loads(pickle.dumps(choice))
