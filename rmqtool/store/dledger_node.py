"""What a node of a DLedger group keeps beside its entries (`DLedgerMmapFileStore`)."""

from __future__ import annotations

import re
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.formats.java import decode_text

_CHECKPOINT = "checkpoint"
_LARGEST_CHECKPOINT = 4 << 10  # bytes; two lines
_COMMITTED = re.compile(r"^committedIndex=(-?\d{1,18})\s*$", re.ASCII | re.MULTILINE)


def committed_index(node: Path) -> int | None:
    """The Raft index up to which entries were committed when the checkpoint in a node's directory was last written.

    A node writes it every few seconds and at a clean stop: later entries may be committed too, and may be overwritten
    after a change of the leader. None without a checkpoint (`DLedgerMmapFileStore#persistCheckPoint`).
    """
    try:
        text = decode_text(read_all(node / _CHECKPOINT, _LARGEST_CHECKPOINT))
    except RmqtoolError:
        return None
    match = _COMMITTED.search(text)
    return int(match[1]) if match else None
