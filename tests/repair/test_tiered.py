"""Queues of a tier are put right: each file as the broker had written it, and undo takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.tiered_damages import DAMAGES, LOG, UNIT, UNITS, damaged, expire, overwrite, with_tags

HEALED = sorted(set(DAMAGES) - {"a time of birth", "no metadata", "torn metadata"})


@pytest.fixture(params=["5.1.4", "5.3.3", "5.5.1"])
def store(request: pytest.FixtureRequest, golden_store: GoldenStore, tmp_path: Path) -> Path:
    return copied(golden_store(f"more/{request.param}-tiered"), tmp_path / "store")


def tier_of(store: Path) -> dict[Path, bytes]:
    """All files of the tier."""
    tier = store / "tiered"
    return {path.relative_to(tier): path.read_bytes() for path in tier.rglob("*") if path.is_file()}


def joined(files: dict[Path, bytes]) -> dict[Path, bytes]:
    """The segments of each flat file as one."""
    flat: dict[Path, bytes] = {}
    for path in sorted(files, key=lambda each: each.name[8:]):
        flat[path.parent] = flat.get(path.parent, b"") + files[path]
    return flat


def left(store: Path) -> list[tuple[str, str]]:
    """What verify still finds of the tier above information."""
    run = rmqtool("verify", store, "--tiered-path", store / "tiered", "--only", "tiered", "--json")
    return [(each["code"], each["message"]) for each in run.document["findings"] if each["severity"] != "info"]


@pytest.mark.slow
def test_units_that_lead_into_other_records(store: Path) -> None:
    """Nothing is written into the log where they lead: it may hold what nobody else has."""
    expire(store)
    whole = tier_of(store)
    last = max((store / UNITS).iterdir(), key=lambda path: path.name[8:])
    for number, place in ((5, 300), (7, 0), (9, 1 << 40)):
        overwrite(last, number * UNIT, place.to_bytes(8, "big"))
    assert "done: " in rmqtool("repair", store, "--tiered-path", store / "tiered", "--yes").err
    assert tier_of(store) == whole
    assert left(store) == []


@pytest.mark.parametrize("tags", [b"TagQ", b"\x91\x92\x93\x94"], ids=["a byte", "all of them"])
def test_entries_of_records_whose_tags_are_damaged(golden_store: GoldenStore, tmp_path: Path, tags: bytes) -> None:
    """They stay: by them consumers of the old tag get these messages, which nobody has whole any more."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    expire(store)
    with_tags(store, tags)
    damaged_tier = tier_of(store)
    assert left(store) == [("tiered.record", "1 message with other tags than their queue entries, first 2")]
    assert "nothing to repair" in rmqtool("repair", store, "--tiered-path", store / "tiered", "--yes").err
    assert tier_of(store) == damaged_tier


def test_metadata_with_a_damaged_name(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Rows of segments and the form of the file are put right by one change."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    path, name = store / "config" / "tieredStoreMetadata.json", b"baseOffset"
    last = path.read_bytes().rindex(name, 0, path.read_bytes().index(b"consumeQueueFileSegmentTable"))
    overwrite(path, last + 6, b"\xcd\xc3")
    found = rmqtool("verify", store, "--tiered-path", store / "tiered", "--json").document["findings"]
    assert {each["code"] for each in found} >= {"config.unreadable", "tiered.segment"}
    assert "done: " in rmqtool("repair", store, "--tiered-path", store / "tiered", "--yes").err
    assert left(store) == []


@pytest.mark.slow
def test_a_log_that_has_lost_its_beginning(store: Path) -> None:
    """It begins later then, which is on record until somebody has acknowledged it."""
    expire(store)
    min((store / LOG).iterdir(), key=lambda path: path.name[8:]).unlink()
    run = rmqtool("repair", store, "--tiered-path", store / "tiered", "--yes", "--json").document["result"]
    assert any("messages of tiered/" in str(change["lost"]) for change in run["changes"])
    assert left(store) == []
    found = rmqtool("verify", store, "--tiered-path", store / "tiered", "--json").document["findings"]
    assert "store.recorded-loss" in {each["code"] for each in found}


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", HEALED)
def test_each_damage_is_healed(store: Path, name: str) -> None:
    """While the commit log has the messages: byte for byte, once, and until undo."""
    whole = tier_of(store)
    damaged(store, name)
    broken = tier_of(store)
    run = rmqtool("repair", store, "--tiered-path", store / "tiered", "--yes")
    assert "done: " in run.err, run.err
    assert left(store) == []
    repaired = tier_of(store)
    if name == "the tier ends early":  # units that were in three segments are in one
        repaired, whole = joined(repaired), joined(whole)
    assert repaired == whole
    assert "nothing to repair" in rmqtool("repair", store, "--tiered-path", store / "tiered", "--yes").err
    assert rmqtool("undo", store, "--yes").status == 0
    assert tier_of(store) == broken
