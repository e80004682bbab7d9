"""Damages of compacted queues: what of them is found, what a start does with them, and what a repair brings back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.findings.report import Selection
from rmqtool.rules.broker_conf import BrokerConf
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.verifying import codes_of, verify

WITHOUT_TIMER = Selection((), ("timer",))
LOG, UNITS = Path("compaction/compactionLog/state/0"), Path("compaction/compactionCq/state/0")
FIRST, LAST = "00000000000000000000", "00000000000000016560"
RECORD, UNIT = 182, 46
CONF = BrokerConf({"compactionMappedFileSize": "4600", "compactionCqMappedFileSize": "920"})


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Write `data` into a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


class Damage(NamedTuple):
    """A damage, the code that it is found under, its problem, and whether a start refuses the store."""

    apply: Callable[[Path], object]
    code: str
    problem: str
    refuses: bool = False


def _old_names(store: Path) -> None:
    """The log's files are replaced, those of the units are about to be."""
    (store / UNITS / FIRST).rename(store / UNITS / "00000000000000005520")


def _half_replaced(store: Path) -> None:
    """Old files have their new name, and the new ones are not there yet."""
    for part in (LOG, UNITS):
        (store / part / "compacting").mkdir()
    for part in (LOG, UNITS):
        shutil.copy(store / part / FIRST, store / part / "compacting" / FIRST)
    (store / LOG / FIRST).rename(store / LOG / f"{FIRST}.delete")


def _deletes_left(store: Path) -> None:
    for part in (LOG, UNITS):
        shutil.copy(store / part / FIRST, store / part / f"{FIRST}.delete")


DAMAGES = {
    "two bytes of an offset": Damage(
        lambda s: overwrite(s / UNITS / FIRST, UNIT + 6, b"\1\1"), "compaction.unit", "wrong"
    ),
    "two bytes of a queue offset": Damage(
        lambda s: overwrite(s / UNITS / FIRST, UNIT + 34, b"\1\1"), "compaction.unit", "wrong"
    ),
    "a tag": Damage(lambda s: overwrite(s / UNITS / LAST, 18, b"\1"), "compaction.unit", "wrong"),
    "a size": Damage(lambda s: overwrite(s / UNITS / LAST, 8, b"\x7f"), "compaction.unit", "wrong"),
    "a unit of zeros": Damage(lambda s: overwrite(s / UNITS / FIRST, UNIT, bytes(UNIT)), "compaction.unit", "wrong"),
    "units at the end": Damage(
        lambda s: overwrite(s / UNITS / LAST, UNIT, bytes(2 * UNIT)), "compaction.unit", "cut"
    ),
    "stale units": Damage(
        lambda s: overwrite(s / UNITS / FIRST, 7 * UNIT, (s / UNITS / FIRST).read_bytes()[:UNIT]),
        "compaction.unit", "stale",
    ),
    "a magic code": Damage(lambda s: overwrite(s / LOG / FIRST, RECORD + 4, b"\0"), "compaction.record", ""),
    "a size of a record": Damage(lambda s: overwrite(s / LOG / FIRST, RECORD + 3, b"\0"), "compaction.record", ""),
    "a body": Damage(lambda s: overwrite(s / LOG / FIRST, RECORD + 93, b"\0"), "compaction.record", "body"),
    "a short log file": Damage(lambda s: os.truncate(s / LOG / FIRST, 5500), "compaction.files", "size"),
    "a short file of units": Damage(lambda s: os.truncate(s / UNITS / FIRST, 874), "compaction.files", "size"),
    "no units": Damage(lambda s: shutil.rmtree(s / UNITS), "compaction.files", "no-queue"),
    "no tree of units": Damage(lambda s: shutil.rmtree(s / "compaction/compactionCq"), "compaction.files", "no-queue"),
    "no file of units": Damage(lambda s: (s / UNITS / FIRST).unlink(), "compaction.files", "interrupted", True),
    "no log file": Damage(lambda s: (s / LOG / FIRST).unlink(), "compaction.files", "interrupted", True),
    "no last file of units": Damage(lambda s: (s / UNITS / LAST).unlink(), "compaction.files", "names", True),
    "units not yet replaced": Damage(_old_names, "compaction.files", "interrupted", True),
    "half replaced": Damage(_half_replaced, "compaction.files", "interrupted", True),
    "deleted files left": Damage(_deletes_left, "compaction.files", "interrupted", True),
    "a name": Damage(lambda s: (s / LOG / "x").write_bytes(bytes(5520)), "compaction.files", "name", True),
    "a queue id": Damage(lambda s: (s / LOG.parent / "old").mkdir(), "compaction.files", "queue-id", True),
    "position": Damage(
        lambda s: (s / "compaction/position-checkpoint").write_text('{"queueOffsetMap":{"state_0":100000}}'),
        "compaction.position", "",
    ),
}  # fmt: skip


@pytest.fixture(params=["5.3.3", "5.5.0"])
def store(request: pytest.FixtureRequest, golden_store: GoldenStore, tmp_path: Path) -> Path:
    return copied(golden_store(f"more/{request.param}-compacted"), tmp_path / "store")


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found(store: Path, name: str) -> None:
    """Under its code and no other, and a start is refused where the broker refuses it."""
    damage = DAMAGES[name]
    damage.apply(store)
    outcome = verify(store, selection=WITHOUT_TIMER, conf=CONF)
    expected = {damage.code} | ({"start.refuses"} if damage.refuses else set())
    assert (outcome.verdict, codes_of(outcome)) == ("corrupt", expected)
    [finding] = [each for each in outcome.findings if each.code == damage.code]
    assert finding.details.get("problem", "") == damage.problem
    off = BrokerConf({**CONF.settings, "enableCompaction": "false"})
    assert codes_of(verify(store, selection=WITHOUT_TIMER, conf=off)) == set()


LOST = ("a short log file", "no log file")
"""Of these damages the bytes are gone: they come from a backup alone."""


def tree(store: Path) -> dict[str, bytes]:
    """The files below ``compaction/``, with their bytes."""
    root = store / "compaction"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DAMAGES if name not in LOST])
def test_each_damage_is_repaired(store: Path, tmp_path: Path, name: str) -> None:
    """All files are as the broker had written them, and undo brings the damage back."""
    whole = tree(store)
    del whole["position-checkpoint"]
    DAMAGES[name].apply(store)
    damaged = tree(store)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONF.settings.items()) + "timerWheelEnable=false\n")
    runs = 0
    while runs < 3 and "done: " in rmqtool("repair", store, "--yes", "--broker-conf", conf).err:
        runs += 1
    repaired = tree(store)
    position = json.loads(repaired.pop("position-checkpoint"))
    assert repaired == whole
    assert ("state_0" in position["queueOffsetMap"]) == (name != "position")
    assert not (store / "compaction/compactionLog/state/old").exists()
    assert codes_of(verify(store, selection=WITHOUT_TIMER, conf=CONF)) == set()
    for _ in range(runs):
        assert rmqtool("undo", store, "--yes").status == 0
    assert tree(store) == damaged


@pytest.mark.slow
def test_messages_that_only_the_commit_log_has(store: Path) -> None:
    """A message that is the newest of its key is lost for consumers, one of which a newer value is there is not."""
    for part, size in ((LOG, RECORD), (UNITS, UNIT)):
        overwrite(store / part / LAST, 2 * size, bytes(size))  # the last message
        overwrite(store / part / FIRST, 6 * size, bytes(size))  # that of another key
    outcome = verify(store, selection=WITHOUT_TIMER, conf=CONF)
    assert (outcome.verdict, codes_of(outcome)) == ("corrupt", {"compaction.missing"})
    [finding] = [each for each in outcome.findings if each.code == "compaction.missing"]
    assert dict(finding.details) == {"messages": 2, "first": 56}
    (store / "abort").write_text("1")  # a start after a crash dispatches again what is after the last one
    [finding] = [each for each in verify(store, conf=CONF).findings if each.code == "compaction.missing"]
    assert finding.severity == "error"


@pytest.mark.slow
def test_what_no_broker_reads(store: Path) -> None:
    """Directories of an interrupted compaction, and queues of other topics, are information."""
    for part in (LOG, UNITS):
        shutil.copytree(store / part, store / part.parent.parent / "gone" / "3")
    (store / LOG / "compacting").mkdir()
    (store / LOG / "compacting" / FIRST).write_bytes(bytes(5520))
    outcome = verify(store, selection=WITHOUT_TIMER, conf=CONF)
    assert codes_of(outcome) == set()
    found = {each.file: each.details["problem"] for each in outcome.findings if each.code == "compaction.leftover"}
    assert found == {str(LOG / "compacting"): "working", "compaction/compactionLog/gone/3": "topic"}


@pytest.mark.slow
def test_messages_before_the_minimum(store: Path) -> None:
    """Where the commit log begins later than the compacted log, a new consumer does not see its first messages."""
    path = store / "commitlog" / FIRST
    path.rename(path.with_name("00000000000000065536"))  # all units lead to before it: the queue is at its end
    [finding] = [each for each in verify(store, conf=CONF).findings if each.code == "compaction.minimum"]
    assert (finding.severity, finding.details["messages"], finding.details["first"]) == ("info", 10, 50)
