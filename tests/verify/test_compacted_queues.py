"""Damages of compacted queues: what of them is found, what a start does with them, and what a repair brings back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqtool.broker.copied_records import judged_records
from rmqtool.findings.report import Selection
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.compaction import compacted_queue, stored_units
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.compacted_damages import CONF, DAMAGES, FIRST, LAST, LOG, RECORD, UNIT, UNITS, overwrite
from tests.verify.verifying import codes_of, verify

WITHOUT_TIMER = Selection((), ("timer",))


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
    expected |= {"compaction.missing"} if name == "no last log file" else set()
    assert (outcome.verdict, codes_of(outcome)) == ("corrupt", expected)
    [finding] = [each for each in outcome.findings if each.code == damage.code]
    assert finding.details.get("problem", "") == damage.problem
    off = BrokerConf({**CONF.settings, "enableCompaction": "false"})
    assert codes_of(verify(store, selection=WITHOUT_TIMER, conf=off)) == set()


CLIENTS = {  # messages that consumers of the topic do not get, or not whole, and how many of them after a repair
    "two bytes of an offset": (1, 0),
    "an offset past the log": (6, 0),  # a pull then looks for the next file
    "a unit of zeros": (6, 0),  # and all after it in its file
    "units at the end": (2, 0),
    "a magic code": (1, 0),
    "a body": (1, 0),
    "a queue offset of a record": (1, 0),
    "a place of a record": (0, 0),  # clients make nothing but an id of it
    "a short file of units": (10, 0),
    "no units": (10, 0),
    "a log file cut in a record": (10, 0),
    "no last file of units": (3, 0),  # a start cuts the log as well
    "a tag": (0, 0),  # which a pull without one does not look at
    "position": (0, 0),
}


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", CLIENTS)
def test_what_consumers_lose(store: Path, tmp_path: Path, name: str) -> None:
    """How many messages of the topic they do not get, and what a repair leaves of that."""
    DAMAGES[name].apply(store)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONF.settings.items()) + "timerWheelEnable=false\n")
    result = rmqtool("verify", store, "--broker-conf", conf, "--skip", "timer", "--json").document["result"]
    plan = result["plan"]["clients"]
    assert (result["start"]["clients"]["compacted_lost"], plan["compacted_lost"] if plan else None) == CLIENTS[name]


LOST = ("no log file", "no last log file", "a time of birth")
"""Of these not all is repaired: bytes come from a backup alone, or nothing says which of two copies is right."""


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
def test_messages_of_a_last_file_that_is_gone(store: Path) -> None:
    """What its repair leaves missing is found before it: three keys have their newest message there."""
    DAMAGES["no last log file"].apply(store)
    [finding] = [each for each in verify(store, conf=CONF).findings if each.code == "compaction.missing"]
    assert dict(finding.details) == {"messages": 3, "first": 57}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "is_contradicted"), [(20, True), (56, True), (40, False)], ids=["queue", "time", "born"]
)
def test_records_without_a_copy(store: Path, at: int, is_contradicted: bool) -> None:
    """Where the commit log has them no more: a unit is right that fits among those around, if the record does not."""
    shutil.rmtree(store / "consumequeue" / "state")
    overwrite(store / LOG / FIRST, 3 * RECORD + at + 5, b"\x75")
    snapshot = Snapshot(open_store(store, CONF))
    queue = compacted_queue(snapshot.store, "state", 0)
    [(file, units), *_] = queue.pairs
    assert units is not None
    stored = stored_units(units)
    records = judged_records(snapshot, queue, file, stored)
    assert records.contradicted.tolist() == [number == 3 and is_contradicted for number in range(7)]
    assert records.units.tobytes() == stored[:7].tobytes()


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
