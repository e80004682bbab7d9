"""The checkpoint of a DLedger node, with which it does not start where it cannot read its number."""

from __future__ import annotations

from rmqtool.base.shell import quote
from rmqtool.findings.report import Report
from rmqtool.store.dledger_node import NODE_CHECKPOINT, unreadable_committed_index
from rmqtool.store.snapshot import Snapshot

_CODE = "store.dledger-checkpoint"


def check_node_checkpoint(snapshot: Snapshot, report: Report) -> None:
    """Check what a node reads of its checkpoint (`DLedgerMmapFileStore#recover`)."""
    node = snapshot.store.dledger_directory
    if node is None:
        return
    report.check(_CODE)
    text = unreadable_committed_index(node)
    if text is not None:
        path = node / NODE_CHECKPOINT
        remedy = f"mv {quote(str(path))} {quote(f'{path}.old')}"
        shown = snapshot.store.relative(path)
        report.add(_CODE, remedy=remedy, file=shown, details={"found": text})
