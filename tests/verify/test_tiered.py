"""Damages of tiered storage are found before a broker destroys what is left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.config_json import load_config
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.tier_building import ROOM, SLOTS, take_back_index
from tests.verify.tiered_damages import (
    DAMAGES,
    FIRST,
    INDEX_DAMAGES,
    LOG,
    METADATA,
    UNIT,
    UNITS,
    begin_later,
    conf_of,
    damaged,
    expire,
    index_of,
    overwrite,
)
from tests.verify.verifying import codes_of, verify

RELEASES = ("5.1.4", "5.3.3", "5.5.1")


@pytest.fixture(params=RELEASES)
def store(request: pytest.FixtureRequest, golden_store: GoldenStore, tmp_path: Path) -> Path:
    return copied(golden_store(f"more/{request.param}-tiered"), tmp_path / "store")


def test_a_healthy_tier(store: Path) -> None:
    """Clean, with and without the messages in the local store; without its path it is not known."""
    outcome = verify(store, conf=conf_of(store))
    assert (outcome.verdict, codes_of(outcome)) == ("clean", set())
    expire(store)
    assert not {code for code in codes_of(verify(store, conf=conf_of(store))) if code.startswith("tiered.")}
    run = rmqtool("verify", store, "--tiered-path", store / "tiered", "--only", "tiered", "--json")
    assert not [each for each in run.document["findings"] if each["severity"] != "info"]
    assert rmqtool("verify", store, "--only", "tiered").status == 3


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found(store: Path, name: str) -> None:
    """Under its code, with its problem."""
    damage = DAMAGES[name]
    outcome = verify(damaged(store, name), conf=conf_of(store))
    found = [each for each in outcome.findings if each.code.startswith("tiered.")]
    assert outcome.verdict == "corrupt"
    assert damage.code in {each.code for each in found}
    assert damage.problem in {each.details.get("problem", "") for each in found if each.code == damage.code}
    assert {each.code for each in found} <= {damage.code, "tiered.record", "tiered.segment", "tiered.index"}


@pytest.mark.parametrize("problem", INDEX_DAMAGES)
@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_the_index(golden_store: GoldenStore, tmp_path: Path, version: str, problem: str) -> None:
    """Its size, items in wrong slots and items that lead nowhere: warnings, for no message is lost by them."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    notes = [each for each in verify(store, conf=conf_of(store)).findings if each.code == "tiered.index"]
    assert [(each.severity, each.details["problem"]) for each in notes] == [("info", "fewer")] * (version == "5.5.1")
    INDEX_DAMAGES[problem](index_of(store))
    outcome = verify(store, conf=conf_of(store))
    assert (outcome.verdict, codes_of(outcome)) == ("clean", {"tiered.index"})
    assert problem in {each.details["problem"] for each in outcome.findings if each.severity == "warning"}


@pytest.mark.parametrize("problem", ["", "written", "item", "key"])
def test_an_index_that_is_written(golden_store: GoldenStore, tmp_path: Path, problem: str) -> None:
    """Its size and its items, as those of a segment."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    path, first = take_back_index(store), 28 + 8 * SLOTS + 32
    if problem == "written":
        os.truncate(path, path.stat().st_size - 7)
    elif problem:
        overwrite(path, first + (18 if problem == "item" else 2), b"\x99")
    settings = {"tieredStoreIndexFileMaxHashSlotNum": str(SLOTS), "tieredStoreIndexFileMaxIndexNum": str(ROOM)}
    found = [each for each in verify(store, conf=conf_of(store, **settings)).findings if each.code == "tiered.index"]
    assert [each.details["problem"] for each in found if each.severity != "info"] == ([problem] if problem else [])


@pytest.mark.parametrize(("written", "named", "severity"), [
    ("5.3.3", None, []), ("5.3.3", "5.5.1", ["warning"]), ("5.3.3", "5.5.0", []), ("5.5.1", "5.5.1", []),
    ("5.5.1", "5.5.0", ["warning"]),
])  # fmt: skip
def test_hashes_of_another_release(
    golden_store: GoldenStore, tmp_path: Path, written: str, named: str | None, severity: list[str]
) -> None:
    """After an upgrade to 5.5.1 a broker does not find half of the keys of segments that are there."""
    store = copied(golden_store(f"more/{written}-tiered"), tmp_path / "store")
    outcome = verify(store, conf=conf_of(store), version=named)
    found = [each for each in outcome.findings if each.details.get("problem") == "hash"]
    assert [each.severity for each in found] == severity


def test_what_the_next_dispatch_deletes(store: Path) -> None:
    """How many messages only the tier has, and how many are nowhere any more."""
    [finding] = [
        each for each in verify(damaged(store, "the tier ends early"), conf=conf_of(store)).findings
        if each.code == "tiered.destroyed"
    ]  # fmt: skip
    details = finding.details
    assert (details["tiered_end"], details["messages"]) == (50, 50)
    assert details["missing"] == details["local_begin"] - 50 > 0


LOST = {
    "no metadata": (155, 155), "torn metadata": (155, 155), "the tier ends early": (78, 78),
    "no last segment of units": (56, 0), "no log segment": (90, 80), "torn units": (63, 0), "a torn end": (56, 0),
    "another name": (50, 50), "a unit": (1, 1), "a tag": (0, 0), "a body": (1, 1), "a record's tag": (1, 1),
    "zeros after the log": (0, 0),
}  # fmt: skip
"""What consumers of 5.1.4 and of 5.5.1 did not get, as these served it; 5.1.4 deletes a tier that ends early later."""


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("version", ["5.1.4", "5.5.1"])
def test_what_consumers_lose(golden_store: GoldenStore, tmp_path: Path, version: str, name: str) -> None:
    """Messages of the tier and those after them that no pull reaches; a repair brings back what it can."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    if name != "the tier ends early":
        expire(store)
    outcome = verify(damaged(store, name), conf=conf_of(store), version=version)
    assert outcome.clients is not None
    assert outcome.clients.counts()["tiered_lost"] == LOST[name][version != "5.1.4"]


def _row(content: dict[str, Any], table: str) -> dict[str, Any]:
    rows: dict[str, Any] = content[f"{table}FileSegmentTable"]["broker-a/history/0"]
    return rows[min(rows, key=int)]  # type: ignore[no-any-return]


def _queue_rows(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in content["queueMetadataTable"]["history"].values() if row["queue"]["queueId"] == 0]


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], int, int]] = {
    "a topic's name": (lambda m: m["topicMetadataTable"]["history"].update(topic="other"), 155, 155),
    "a topic's status": (lambda m: m["topicMetadataTable"]["history"].update(status=1), 155, 0),
    "a queue's number": (lambda m: [row["queue"].update(queueId=7) for row in _queue_rows(m)], 78, 78),
    "a size in quotes": (lambda m: _row(m, "commitLog").update(size=str(_row(m, "commitLog")["size"])), 0, 0),
    "a size that is no number": (lambda m: _row(m, "commitLog").update(size="x"), 0, 0),
    "deleted units": (lambda m: _row(m, "consumeQueue").update(status=2), 50, 0),
    "a deleted log": (lambda m: _row(m, "commitLog").update(status=2), 78, 0),
    "no row": (lambda m: m["consumeQueueFileSegmentTable"]["broker-a/history/0"].update({"0": None}), 0, 0),
}
"""Fields of the metadata, and what consumers of 5.1.4 and of 5.5.1 then do not get; the last two are read from .bak."""


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("version", ["5.1.4", "5.5.1"])
def test_fields_of_the_metadata(golden_store: GoldenStore, tmp_path: Path, version: str, name: str) -> None:
    """A start takes up queues by the names in their rows; a repair puts these right."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    expire(store)
    content = load_config(store / METADATA).content
    (store / METADATA).with_name(f"{METADATA.name}.bak").write_text(json.dumps(content))
    apply, *lost = EDITS[name]
    apply(content)
    (store / METADATA).write_text(json.dumps(content))
    outcome = verify(store, conf=conf_of(store), version=version)
    assert outcome.clients is not None
    assert outcome.clients.counts()["tiered_lost"] == lost[version != "5.1.4"]
    rmqtool("repair", store, "--tiered-path", store / "tiered", "--broker-version", version, "--yes")
    outcome = verify(store, conf=conf_of(store), version=version)
    assert outcome.clients is not None
    assert outcome.clients.counts()["tiered_lost"] == 0


def _last_unit(store: Path) -> None:
    """The last entry of a queue leads to the log's beginning: reads that end with it fail."""
    path = max((store / UNITS).iterdir(), key=lambda path: path.name[8:])
    overwrite(path, path.stat().st_size - UNIT, bytes(8))


@pytest.mark.parametrize(("version", "level", "apply", "lost"), [
    ("5.3.3", "NOT_IN_DISK", DAMAGES["a body"].apply, 0), ("5.3.3", "FORCE", DAMAGES["a body"].apply, 1),
    ("5.1.4", "FORCE", DAMAGES["no log segment"].apply, 94), ("5.1.4", "FORCE", _last_unit, 0),
    ("5.1.4", "FORCE", begin_later, 94), ("5.5.1", "FORCE", begin_later, 94), ("5.5.1", "NOT_IN_DISK", begin_later, 0),
])  # fmt: skip
def test_messages_that_force_hides(
    golden_store: GoldenStore, tmp_path: Path, version: str, level: str, apply: Callable[[Path], object], lost: int
) -> None:
    """As brokers served them: up to 5.2 what cannot be read in the tier is read in the local queue, even with FORCE."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    apply(store)
    outcome = verify(store, conf=conf_of(store, tieredStorageLevel=level), version=version)
    assert outcome.clients is not None
    assert outcome.clients.counts()["tiered_lost"] == lost


@pytest.mark.parametrize(("version", "level", "missed"), [
    ("5.1.4", "FORCE", 0), ("5.5.1", "FORCE", 3), ("5.5.1", "NOT_IN_DISK", 2),
])  # fmt: skip
def test_entries_with_the_hash_of_another_tag(
    golden_store: GoldenStore, tmp_path: Path, version: str, level: str, missed: int
) -> None:
    """A broker filters by them since 5.3, as real ones did; one of these three is read locally, if it is there."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    if level != "FORCE":
        expire(store)
    last = max((store / UNITS).iterdir(), key=lambda path: path.name[8:])
    for path, position in ((store / UNITS / FIRST, 3 * UNIT), (store / UNITS / FIRST, 9 * UNIT), (last, 5 * UNIT)):
        overwrite(path, position + 16, b"\1\1\1\1")
    outcome = verify(store, conf=conf_of(store, tieredStorageLevel=level), version=version)
    assert outcome.clients is not None
    counts = outcome.clients.counts()
    assert (counts["missed_by_tag"], counts["tiered_lost"]) == (missed, 0)
    run = rmqtool("verify", store, "--tiered-path", store / "tiered", "--broker-version", version, "--json")
    assert run.document["result"]["plan"]["clients"]["missed_by_tag"] == 0


def test_a_tier_that_begins_later(golden_store: GoldenStore, tmp_path: Path) -> None:
    """With FORCE it hides older local messages, until broker.conf is changed; a repair cannot."""
    store = copied(golden_store("more/5.5.1-tiered"), tmp_path / "store")
    begin_later(store)
    conf = tmp_path / "broker.conf"
    settings = {**conf_of(store).settings, "tieredStorageLevel": "FORCE"}
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    result = rmqtool("verify", store, "--json", "--broker-conf", conf).document
    [found] = [each for each in result["findings"] if each["severity"] != "info"]
    assert (found["code"], found["details"]["messages"]) == ("tiered.hidden", 94)
    plan = result["result"]["plan"]
    assert (result["result"]["verdict"], plan["clients"]["tiered_lost"]) == ("corrupt", 94)
    assert "tieredStorageLevel" in plan["steps"][0]["text"]
    assert "nothing to repair" in rmqtool("repair", store, "--yes", "--broker-conf", conf).err


def test_which_copy_is_right(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The one whose keys the local index has, if it has those of either; else nobody knows."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    tiered, local = store / LOG / FIRST, min((store / "commitlog").iterdir())
    begin = tiered.read_bytes().index(b"UNIQ_KEY\1") + 9
    key = tiered.read_bytes()[begin : begin + 32]
    overwrite(local, local.read_bytes().index(key), b"Z")
    assert codes_of(verify(store, conf=conf_of(store))) == {"commitlog.field"}
    shutil.rmtree(store / "index")
    assert "tiered.record" in codes_of(verify(store, conf=conf_of(store)))


def _moved(path: Path) -> None:
    path.rename(path.with_name("x"))


@pytest.mark.parametrize(("version", "apply", "lost"), [
    ("5.5.1", lambda s: os.truncate(s / LOG / FIRST, 1673), 86),  # where the record ends of which a part is left
    ("5.1.4", lambda s: overwrite(max((s / LOG).iterdir(), key=lambda path: path.name[8:]), 96, bytes(215)), 1),
    ("5.3.3", lambda s: _moved(s / LOG.parent.with_name("1") / "COMMIT_LOG" / FIRST), 83),
], ids=["cut", "zeros", "renamed"])  # fmt: skip
def test_where_reads_go(
    golden_store: GoldenStore, tmp_path: Path, version: str, apply: Callable[[Path], None], lost: int
) -> None:
    """Messages come one read after the other: what is passed over may be read locally, or not at all, as it was."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    expire(store)
    apply(store)
    outcome = verify(store, conf=conf_of(store), version=version)
    assert outcome.clients is not None
    assert outcome.clients.counts()["tiered_lost"] == lost


@pytest.mark.parametrize("name", ["no metadata", "the tier ends early", "a unit", "another name"])
def test_what_a_plan_gives_back(store: Path, name: str) -> None:
    """All, where the tier's log has it."""
    if name != "the tier ends early":
        expire(store)
    damaged(store, name)
    plan = rmqtool("verify", store, "--tiered-path", store / "tiered", "--json").document["result"]["plan"]
    assert plan["clients"]["tiered_lost"] == 0


def test_other_names_and_providers(store: Path) -> None:
    """Names that are not there are told; what another provider keeps is not damage, and not read."""
    outcome = verify(store, conf=conf_of(store, brokerName="broker-b"))
    assert codes_of(outcome) == {"tiered.broker-name"}
    conf = conf_of(store, tieredBackendServiceProvider="com.example.ObjectStorageSegment")
    outcome = verify(store, conf=conf)
    assert (outcome.verdict, codes_of(outcome)) == ("unproven", set())
    assert any("ObjectStorageSegment keeps its segments" in text for text in outcome.unproven)


def test_a_tier_ahead(store: Path) -> None:
    """An older local store: its queue ends before the tier."""
    for path in sorted((store / "consumequeue" / "history" / "0").iterdir())[2:]:
        path.unlink()
    assert "tiered.ahead" in codes_of(verify(store, conf=conf_of(store)))


def test_a_tree_that_is_gone(store: Path) -> None:
    """Segments that only the metadata have are missing; a wrong path is told, and never called clean."""
    shutil.rmtree(store / "tiered")
    outcome = verify(store, conf=conf_of(store))
    assert (outcome.verdict, codes_of(outcome)) == ("unproven", set())
    (store / "tiered").mkdir()
    found = [each for each in verify(store, conf=conf_of(store)).findings if each.code == "tiered.segment"]
    assert {(each.topic, each.details["problem"]) for each in found} >= {("history", "all")}
    assert rmqtool("verify", store, "--tiered-path", store / "x", "--only", "tiered").status == 3


TIMES = ("createTimestamp", "updateTimestamp")
OF_HOUR = ("minOffset", "maxOffset")  # up to 5.2.0 the clean-up of each hour writes them


@pytest.mark.parametrize("name", ["no metadata", "torn metadata"])
def test_metadata_are_written_again(store: Path, name: str) -> None:
    """As the broker had written them, but for times at which something was done; undo takes them away again."""
    whole = load_config(store / METADATA).content
    damaged(store, name)
    tier = store / "tiered"
    before = {path: path.read_bytes() for path in tier.rglob("*") if path.is_file()}
    assert "done: " in rmqtool("repair", store, "--tiered-path", tier, "--yes").err
    repaired = load_config(store / METADATA).content
    is_old = whole["indexFileSegmentTable"] == {}  # 5.1.4, which numbers topics as it likes where no index shows it
    assert _plain(repaired, is_old=is_old) == _plain(whole, is_old=is_old)
    assert {path: path.read_bytes() for path in tier.rglob("*") if path.is_file()} == before
    codes = codes_of(verify(store, conf=conf_of(store)))
    assert not {code for code in codes if code.startswith("tiered.")}
    assert rmqtool("undo", store, "--yes").status == 0
    assert "tiered.metadata" in codes_of(verify(store, conf=conf_of(store)))


def _plain(value: Any, *, is_old: bool) -> Any:
    """Metadata without what the segments do not show."""
    if not isinstance(value, dict):
        return value
    left_out = (*TIMES, *OF_HOUR, "topicId", "topicSerialNumber", "status", "sealTimestamp") if is_old else TIMES
    return {str(key): _plain(each, is_old=is_old) for key, each in value.items() if key not in left_out}
