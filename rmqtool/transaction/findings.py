"""Findings about interrupted runs of our own, for commands that only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, Severity
from rmqtool.transaction.home import STAGING, interrupted
from rmqtool.transaction.journal import UnknownRunError
from rmqtool.transaction.paths import HOME
from rmqtool.transaction.unfinished import unfinished_deletion


def interrupted_findings(root: Path) -> Iterator[Finding]:
    """The finding for a run that was interrupted; the next run that writes brings it to its end."""
    try:
        name, deletion = interrupted(root), unfinished_deletion(root)
    except UnknownRunError as error:
        name, file = Path(str(error.file)).parts[-2:]
        yield finding("store.interrupted-run", severity="error", file=f"{HOME}/{name}/{file}", store=root,
                      details={"problem": "unknown"})  # fmt: skip
        return
    if name:
        facts = {"problem": "deletion", "deletion": deletion.text} if deletion else {"problem": "run"}
        severity: Severity | None = None if name == STAGING else "error"  # files may be half old and half new
        yield finding("store.interrupted-run", severity=severity, file=f"{HOME}/{name}", store=root, details=facts)
