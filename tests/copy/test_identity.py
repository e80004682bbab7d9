"""What a copy for another broker, or for a slave, must not keep."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, checkpoint_file, read_checkpoint
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.verify.small_store import small_store

OFFSETS = ("master_flushed_offset", "confirm_physical_offset")


def epochs(*lines: str) -> str:
    """The file epochFileCheckpoint: how many, their CRC, and epoch and start offset of each."""
    body = "".join(f"{line}\n" for line in lines)
    return f"{len(lines)}\n{zlib.crc32(body.encode()) & 0x7FFFFFFF}\n{body}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = small_store(tmp_path / "store")
    (root / "brokerIdentity").write_text("DefaultCluster#broker-a#1")
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        (root / name).write_text(epochs("1-0", "2-5000", "3-9000000"))
    fields = read_checkpoint(open_store(root)) or dict.fromkeys(CHECKPOINT_TIMES, 1_700_000_000_000)
    (root / "checkpoint").write_bytes(checkpoint_file({**fields, **dict.fromkeys(OFFSETS, 4000)}))
    return root


@pytest.mark.parametrize("identity", [None, "slave", "controller", "broker-b"])
def test_identity(store: Path, tmp_path: Path, identity: str | None) -> None:
    """The same broker keeps all, a replica its epochs, another broker nothing; no epoch begins after the log."""
    copy = tmp_path / "copy"
    done = rmqtool("copy", store, "--output", copy, *(["--as", identity] if identity else []))
    assert done.status == Exit.OK
    assert (copy / "brokerIdentity").exists() is (identity is None)
    is_other = identity == "broker-b"
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        assert (copy / name).exists() is not is_other
        if not is_other:
            assert (copy / name).read_text() == epochs("1-0", "2-5000")
    checkpoint = read_checkpoint(open_store(copy))
    assert checkpoint
    assert [checkpoint[name] for name in OFFSETS] == [0 if is_other else 4000] * 2
    assert ("broker.conf must have" in done.err) is (identity is not None)
    assert rmqtool("copy", "--verify", copy).status == Exit.OK


def test_static_topics_belong_to_a_broker_of_a_name(store: Path, tmp_path: Path) -> None:
    """Another broker cannot take them over; a slave can."""
    mapping = {"topicQueueMappingInfoMap": {"orders": {"topic": "orders", "bname": "broker-a", "hostedQueues": {}}}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topicQueueMapping.json").write_text(json.dumps(mapping))
    assert rmqtool("copy", store, "--output", tmp_path / "slave", "--as", "slave").status == Exit.OK
    refused = rmqtool("copy", store, "--output", tmp_path / "other", "--as", "broker-b")
    assert (refused.status, "static topics" in refused.err) == (Exit.USAGE, True)
