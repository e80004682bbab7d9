"""What a tier deletes at its next hour, and what the next compaction leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.config_json import load_config
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.tiered_damages import METADATA, expire, with_ends

HOUR = 3_600_000
NOW = 1_800_000_000_000


def planned(store: Path, conf: Path, *more: str | Path) -> dict[str, Any]:
    """What is said beside the log."""
    run = rmqtool("clean", store, "--dry-run", "--tiered-path", store / "tiered", "--broker-conf", conf, "--json",
                  "--now", str(NOW), *more)  # fmt: skip
    result: dict[str, Any] = run.document["result"]
    return result


@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.1"])
def test_segments_that_expire(golden_store: GoldenStore, tmp_path: Path, version: str) -> None:
    """From the front, log and units apart; only messages that the local queue no longer has are lost."""
    store, conf = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store"), tmp_path / "broker.conf"
    expire(store)
    with_ends(store, NOW - 10 * HOUR, 2 * HOUR)
    for hours, segments, minimum, lost in ((20, 0, 0, 0), (9, 2, 94, 78), (7, 4, 120, 78)):
        conf.write_text(f"tieredStoreFileReservedTime={hours}\n")
        [first, _] = planned(store, conf)["tier"]
        assert (first["segments"], first["min_offset_after"], first["messages_deleted"]) == (segments, minimum, lost)
        assert first["next_expires_timestamp"] > NOW
    conf.write_text("tieredStoreFileReservedTime=1\ntieredStoreDeleteFileEnable=false\n")
    assert planned(store, conf)["tier"] == []
    conf.write_text("tieredStoreFileReservedTime=1\n")
    assert [each["min_offset_after"] for each in planned(store, conf)["tier"]] == [120, 120]
    metadata = load_config(store / METADATA).content
    metadata["topicMetadataTable"]["history"]["reserveTime"] = 20
    (store / METADATA).write_text(json.dumps(metadata))
    assert [each["segments"] for each in planned(store, conf)["tier"]] == [0, 0]
    shown = rmqtool("clean", store, "--dry-run", "--tiered-path", store / "tiered", "--now", str(NOW)).out
    assert "the next segment expires" in shown


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_the_next_compaction(golden_store: GoldenStore, tmp_path: Path, version: str) -> None:
    """As the broker has compacted the same messages; once that is done nothing is new."""
    conf = tmp_path / "broker.conf"
    conf.write_text("compactionMappedFileSize=4600\ncompactionCqMappedFileSize=920\n")
    store = copied(golden_store(f"more/{version}-compacted"), tmp_path / "store")
    [queue] = planned(store, conf)["compactions"]
    assert (queue["messages"], queue["superseded"], queue["skipped"]) == (10, 0, "nothing-new")
    for name in ("position-checkpoint", "position-checkpoint.bak"):
        (store / "compaction" / name).unlink(missing_ok=True)
    [queue] = planned(store, conf)["compactions"]
    assert (queue["messages"], queue["superseded"], queue["dropped"], queue["skipped"]) == (10, 0, 0, None)
    conf.write_text("enableCompaction=false\n")
    assert planned(store, conf)["compactions"] == []


def test_a_compaction_of_all(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Of 60 messages 10 stay, as in the store that 5.5.0 has compacted; a damaged record drops those after it."""
    conf = tmp_path / "broker.conf"
    conf.write_text("compactionMappedFileSize=4600\ncompactionCqMappedFileSize=920\n")
    store = copied(golden_store("more/5.5.0-extras"), tmp_path / "store")
    [queue] = planned(store, conf)["compactions"]
    assert (queue["messages"], queue["superseded"], queue["skipped"]) == (60, 50, None)
    assert "50 of 60 messages go: 50 older values" in rmqtool("clean", store, "--dry-run").out
    file = store / "compaction/compactionLog/state/0/00000000000000011040"
    data = bytearray(file.read_bytes())
    data[182 * 10 + 4] ^= 1
    file.write_bytes(data)
    [queue] = planned(store, conf)["compactions"]
    assert queue["dropped"] == 8
    conf.write_text("compactionMappedFileSize=4600\ncompactionCqMappedFileSize=920\nmaxOffsetMapSize=1000\n")
    assert planned(store, conf)["compactions"][0]["skipped"] == "too-many-keys"
