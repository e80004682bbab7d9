"""Repairs of a store in a test: what is planned for it, done, verified, and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqtool.findings.finding import Finding
from rmqtool.repair.change import Change
from rmqtool.repair.log_files import log_file_changes
from rmqtool.repair.not_healed import NotHealed, not_healed
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo
from tests.transaction.small import tree
from tests.unchanged import unchanged
from tests.verify.verifying import verify


def findings_of(store: Path, conf: BrokerConf | None = None) -> Sequence[Finding]:
    """What a verification finds."""
    return verify(store, conf=conf).findings


def plan(store: Path, conf: BrokerConf | None = None) -> list[Change]:
    """The changes for a store, which is only read."""
    findings = findings_of(store, conf)
    with unchanged(store):
        return log_file_changes(Snapshot(open_store(store, conf)), findings)


def left(store: Path, conf: BrokerConf | None = None) -> list[NotHealed]:
    """What the changes do not heal."""
    findings, snapshot = findings_of(store, conf), Snapshot(open_store(store, conf))
    return not_healed(snapshot, findings, log_file_changes(snapshot, findings))


def carry_out(store: Path, changes: Sequence[Change], conf: BrokerConf | None = None) -> None:
    """Make the changes in one transaction."""
    with Transaction(open_store(store, conf), "repair") as transaction:
        for change in changes:
            change.stage(transaction)
        transaction.commit()


def heal(store: Path, conf: BrokerConf | None = None) -> list[Change]:
    """Plan and repair; nothing is left to plan, and an undo gives back every byte."""
    before = tree(store)
    changes = plan(store, conf)
    assert changes
    carry_out(store, changes, conf)
    assert plan(store, conf) == []
    after = tree(store)
    with Undo(store) as undo:
        assert undo.put_back()
    assert tree(store) == before
    carry_out(store, changes, conf)
    assert tree(store) == after
    return changes
