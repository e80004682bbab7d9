"""The first start of a broker on a store that has lost topics or offsets: clients wait until these are made again."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.findings.finding import Finding
from rmqtool.repair.config_source import OFFSETS
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET
from rmqtool.store.lost_tables import MISSING, lost_table
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS


def start_text(findings: Sequence[Finding]) -> str:
    """The step that starts the broker; `findings` are those about `config/` that a repair has not healed before."""
    tasks = []
    if any(lost_table(finding) == TOPICS for finding in findings):
        tasks.append("make the lost topics again")
    if any(map(_is_without_offsets, findings)):
        tasks.append("set each group to where it was")
    if not tasks:
        return "Start the broker."
    return f"Stop the clients, then start the broker, and {' and '.join(tasks)} (below) before they start."


def _is_without_offsets(finding: Finding) -> bool:
    """Whether groups begin again: committed offsets that cannot be read, or are no longer there."""
    is_missing = finding.code == MISSING and finding.file in {f"{CONFIG}/{name}" for name in OFFSETS}
    return is_missing or finding.code == "config.consumer-offset" or lost_table(finding) == CONSUMER_OFFSET
