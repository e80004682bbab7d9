"""A store whose config files are damaged, repaired and verified again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmqtool.findings.finding import Finding
from rmqtool.repair.change import FileChange
from rmqtool.repair.config_files import config_changes
from rmqtool.rules.versions import parse_version
from rmqtool.store.config_json import load_config
from rmqtool.store.config_tables import MAIN_TABLES
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo
from tests.unchanged import snapshot, unchanged
from tests.verify.verifying import only, verify


def findings_of(store: Path, release: str | None) -> tuple[Finding, ...]:
    """What verify says about the configuration, and about the start."""
    return verify(store, version=release, selection=only("config.", "consumequeue.", "start.")).findings


def planned(
    store: Path, findings: Sequence[Finding], release: str | None = None, *, offsets: bool = False
) -> list[FileChange]:
    """The changes for findings; making them changes nothing."""
    snapshot = Snapshot(open_store(store), parse_version(release) if release else None)
    with unchanged(store):
        return config_changes(snapshot, findings, offsets=offsets)


def commit(store: Path, changes: Sequence[FileChange]) -> None:
    """Make the changes in one transaction."""
    with Transaction(open_store(store), "repair") as transaction:
        for change in changes:
            change.stage(transaction)
        transaction.commit()


def still_found(changes: Sequence[FileChange], findings: Sequence[Finding]) -> list[Finding]:
    """Findings that one of the changes has said to heal, in the file that it is about."""
    healed = {(code, change.name) for change in changes for code in change.codes}
    return [each for each in findings if (each.code, each.file) in healed]


def undo(store: Path) -> None:
    """Take the changes back."""
    with Undo(store) as session:
        session.put_back()


def contents(store: Path) -> dict[str, bytes]:
    """The digest of everything in a store but the tool's own directory."""
    return {path: entry.content for path, entry in snapshot(store).items() if not path.startswith(".rmqtool")}


def entries_of(store: Path) -> dict[tuple[str, str], Any]:
    """Every entry of the config tables that a start reads, by file and name."""
    found = {}
    for name, table in MAIN_TABLES.items():
        entries = load_config(store / "config" / name).content.get(table)
        for key, entry in entries.items() if isinstance(entries, dict) else ():
            found[name, key] = entry
    return found
