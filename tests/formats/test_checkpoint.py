"""The checkpoint file."""

from __future__ import annotations

from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, CHECKPOINT_FILE_SIZE, CHECKPOINT_SIZE, Checkpoint
from rmqtool.formats.layout import build, parse

STORED = bytes.fromhex(
    "0000018BCFE5687B 0000018BCFE56C63 0000018BCFE5704B 0000000000000001 0000000000000002 0000000000000003"
)
VALUES = {
    "physic_message_timestamp": 1700000000123,
    "logics_message_timestamp": 1700000001123,
    "index_message_timestamp": 1700000002123,
    "master_flushed_offset": 1,
    "confirm_physical_offset": 2,
    "logics_physical_offset": 3,
}


def test_checkpoint() -> None:
    """Each number stands where StoreCheckpoint puts it, in a page of otherwise unused bytes."""
    fields = parse(Checkpoint, STORED.ljust(CHECKPOINT_FILE_SIZE, b"\x00"))
    assert {name: fields[name] for name in VALUES} == VALUES
    assert tuple(VALUES) == CHECKPOINT_DTYPE.names
    assert build(Checkpoint, VALUES) == STORED
    assert (CHECKPOINT_SIZE, CHECKPOINT_FILE_SIZE) == (48, 4096)
