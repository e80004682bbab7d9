"""Findings about interrupted runs of our own, for commands that only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.paths import HOME


def interrupted_findings(root: Path) -> Iterator[Finding]:
    """The finding for a run that was interrupted; the next run that writes brings it to its end."""
    name = interrupted(root)
    if name:
        message = "a run of rmqtool that writes was interrupted"
        yield finding("store.interrupted-run", message, file=f"{HOME}/{name}", store=root)
